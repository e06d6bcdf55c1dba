# SPDX-License-Identifier: Apache-2.0
"""Plans as values, and their evaluation: paths, levels and time-shifts of all jobs in one fluid model."""
