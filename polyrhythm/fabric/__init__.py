# SPDX-License-Identifier: Apache-2.0
"""The embedded fabric: one process and one event heap with switches, NICs, agents and gRPC servers."""
