# SPDX-License-Identifier: Apache-2.0
"""Interleaving: time-shifts and periods with which jobs take turns on the links that they share (CASSINI)."""
