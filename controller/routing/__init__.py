# SPDX-License-Identifier: Apache-2.0
"""Routing: what switches forward by, which path a flow takes, and the source port that leads there."""
