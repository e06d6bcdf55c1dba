# SPDX-License-Identifier: Apache-2.0
"""The cluster simulator's room: flow level, event driven, with the controller's own planner."""
