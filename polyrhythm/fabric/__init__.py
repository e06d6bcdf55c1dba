# SPDX-License-Identifier: Apache-2.0
"""The embedded fabric: one process, one event heap, real switches, NICs, agents and gRPC."""
