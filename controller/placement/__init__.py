# SPDX-License-Identifier: Apache-2.0
"""Placement: which hosts a job gets; the fabric's jobs come placed, so nothing is decided here."""
