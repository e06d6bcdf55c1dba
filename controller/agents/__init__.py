# SPDX-License-Identifier: Apache-2.0
"""The controller's side of the agents: gRPC server, TLS, and translation of the protocol's messages."""
