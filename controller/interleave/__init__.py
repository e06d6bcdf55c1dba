# SPDX-License-Identifier: Apache-2.0
"""Interleaving: time-shifts and periods with which jobs share links in time (CASSINI)."""
