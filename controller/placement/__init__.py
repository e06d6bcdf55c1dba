# SPDX-License-Identifier: Apache-2.0
"""Placement: which hosts a job could get. The planner ranks these candidates."""
