# SPDX-License-Identifier: Apache-2.0
"""Priorities: the order of the jobs, and their levels on the switches (CRUX and its baselines)."""
