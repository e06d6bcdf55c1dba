# SPDX-License-Identifier: Apache-2.0
"""Facts of the agent protocol that are not in `agent.proto` and that both ends need."""

from __future__ import annotations

PROTOCOL = 1
"""The version of the protocol, as Hello carries it."""

NO_PINNING = "none"
PINNINGS = ("verbs", "shim", "udp", "emulated", "sockets", NO_PINNING)
"""How an agent sets the UDP source port of a flow; with NO_PINNING its NIC chooses the port, and with sockets
its flows are connections of TCP or UDP only."""

CONNECTS = (6, 17)
"""The IP protocols (RFC 790) of which an agent may steer connections: TCP and UDP."""

NEW_DSCP = "qp"
FIXED_DSCP = "fixed"
DSCP_BEHAVIOURS = (NEW_DSCP, FIXED_DSCP)
"""What an open queue pair does with a new DSCP: it takes it, or it keeps its first one."""

ANSWER_DEADLINE_NS = 10_000_000
"""How long a flow waits for the controller's answer before it goes by ECMP, unless Welcome says otherwise.
Chosen: small against a communication phase."""

MAX_GPUS = 10_000_000
"""The most GPUs of one job. Chosen: far above any cluster of today."""
