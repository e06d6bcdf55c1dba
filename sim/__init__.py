# SPDX-License-Identifier: Apache-2.0
"""The cluster simulator. It works at flow level, is event driven, and calls the planner of the controller."""
