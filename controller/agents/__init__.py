# SPDX-License-Identifier: Apache-2.0
"""The agents' side of the controller: gRPC server, TLS, and the protocol's words as values."""
