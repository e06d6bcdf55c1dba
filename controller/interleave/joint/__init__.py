# SPDX-License-Identifier: Apache-2.0
"""Time and space as one search: who goes where, who goes first and when each job talks, judged together."""
