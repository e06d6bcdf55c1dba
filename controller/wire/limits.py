# SPDX-License-Identifier: Apache-2.0
"""The limits of what others may send or open: one table, shown in SECURITY.md.

Each is chosen: far above what a large cluster needs, and low enough that memory and time stay bounded.
"""

from __future__ import annotations

from typing import Final

# REST and the page.
MAX_REQUEST_BODY_BYTES: Final = 1 << 20
"""The most bytes in the body of a REST request."""
MAX_WEB_REQUESTS: Final = 256
"""The most open REST requests and event streams together, health checks not counted. More are answered with
503, and so are event streams beyond seven eighths of it."""
MAX_WEB_CONNECTIONS: Final = 1_024
"""The most open web connections. Beyond it the oldest one closes that waits for its client."""
MAX_WEB_REQUESTS_PER_S: Final = 1_000
"""The most REST requests a second from one address, health checks not counted. More are answered with 429."""
MAX_IDLE_S: Final = 10.0
"""The longest that a web connection may wait with its first or next request, or the rest of one, in seconds.
It is looked at that often."""
MAX_AUDIT_WAITING: Final = 10_000
"""The most records that wait to be written to the audit file. The rest is in the log only."""
MAX_AUDIT_KEPT: Final = 1_000
"""The most records of the audit log that REST shows. Older ones are in the log and the audit file only."""
MAX_TOKENS: Final = 1_000
"""The most entries in the file of tokens."""

# Agents.
MAX_AGENT_MESSAGE_BYTES: Final = 4 << 20
"""The most bytes in one message of an agent."""
MAX_NAME_CHARS: Final = 200
"""The most characters of a job's or a model's name."""
MAX_FLOW_NAME_CHARS: Final = 1_000
"""The most characters of a flow's name: a job's name, two names of hosts as DNS has them, and a number."""
MAX_REASON_CHARS: Final = 200
"""The most characters that are kept of an agent's reason."""
MAX_REPORT_BINS: Final = 8192
"""The most bins of one flow in one report of byte counts."""
MAX_FLOWS_OF_PAIR: Final = 1024
"""The most flows of a job from one host to another: NCCL's most queue pairs of a connection (128) for eight
connections. They must differ in their source ports, of which there are 16,384."""
MAX_FLOWS_OF_JOB: Final = 1 << 16
"""The most flows of one job: a ring on each of 65,536 NICs."""
MAX_HOSTS_OF_JOB: Final = 1 << 16
"""The most hosts, each a NIC, that the description of a job names."""
MAX_PHASES_OF_JOB: Final = 1_000
"""The most phases of a job's profile."""
MAX_CONNECTIONS_OF_FLOW: Final = 64
"""The most TCP and UDP connections of one flow that switches have entries for."""
MAX_CONNECTIONS_OF_HOST: Final = 4_096
"""The most TCP and UDP connections of one host that its agent reports."""
MAX_CONNECTIONS_OF_MESSAGE: Final = 1_024
"""The most connections in one message of an agent."""
MAX_JOBS_OF_HOST: Final = 256
"""The most jobs of which one host has a worker."""
MAX_FLOWS_OF_HOST: Final = 1 << 17
"""The most flows of all jobs of which one host has a worker."""
MAX_MESSAGES_PER_S: Final = 10_000
"""The most messages, and reports of iterations, a second that are read from one agent. More than that wait in
its connection."""
MAX_EARLIER_REPORTS: Final = 1_024
"""The most reports of iterations that one message of an agent carries besides its own."""
MAX_UNSENT_MESSAGES: Final = 1 << 18
"""The most messages that wait for one agent to read them. Then its session ends."""

# The agent's Unix socket.
MAX_LOCAL_CONNECTIONS: Final = 512
"""The most open connections of training processes with one agent. A user other than the superuser gets no
more when it has as many as are free, so a second user finds room too: alone it has half of them at most."""
MAX_LOCAL_STATUS_WAITING: Final = 16
"""The most questions of one such connection for the agent's state that wait for their turn. The answers to
one user take at most a tenth of the agent's time."""
MAX_LOCAL_LINE_BYTES: Final = 1 << 16
"""The most bytes in one request of a training process."""
MAX_LOCAL_UNSENT_BYTES: Final = 1 << 20
"""The most bytes that may wait for a training process when the agent has more for it. Then its connection
ends."""
MAX_FLOWS_OF_USER: Final = 1 << 14
"""The most open flows that one user of the host has asked for."""
MAX_LOCAL_SILENCE_S: Final = 10
"""The longest that a connection may take to its first request, in seconds."""
