# SPDX-License-Identifier: Apache-2.0
"""Measuring jobs: profiles from byte counts, detection of changes, and the queue of jobs to profile."""
