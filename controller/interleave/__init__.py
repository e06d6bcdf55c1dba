# SPDX-License-Identifier: Apache-2.0
"""Interleaving: when each job talks, so that jobs sharing links take turns (CASSINI)."""
