# SPDX-License-Identifier: Apache-2.0
"""Whole plans as values, and their judge: paths, levels and rhythms under one fluid."""
