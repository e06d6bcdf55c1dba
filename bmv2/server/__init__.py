# SPDX-License-Identifier: Apache-2.0
"""The embedded switch's servers: P4Runtime and gNMI on one port, as Stratum has them."""

from bmv2.server.service import SwitchServer, serve

__all__ = ["SwitchServer", "serve"]
