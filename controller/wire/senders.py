# SPDX-License-Identifier: Apache-2.0
"""The names of the congestion controls that a job's senders can use, as scenarios, plans and agents write
them.
"""

from __future__ import annotations

from typing import Literal

DCQCN = "dcqcn"
PLAIN = (DCQCN, "reno", "cubic", "dctcp")
"""The congestion controls without MLTCP. DCQCN, the default, sets a rate; the others set a window."""
_MLTCP = "mltcp-"
SENDERS = (*PLAIN, *(_MLTCP + name for name in PLAIN))
"""All names in their canonical form: each congestion control plain, then each as MLTCP."""
SYNONYMS = {"mltcp": _MLTCP + DCQCN}
"""Names that are read, but never written."""

KERNEL_TCP = "kernel-tcp"
"""What a scenario may say besides: its job sends over the TCP of the hosts' kernel (Mininet fabric only)."""

Sender = Literal[
    "dcqcn",
    "reno",
    "cubic",
    "dctcp",
    "mltcp-dcqcn",
    "mltcp-reno",
    "mltcp-cubic",
    "mltcp-dctcp",
    "mltcp",
]
"""What a file may say: SENDERS and SYNONYMS."""


def canonical_sender(name: str) -> str:
    """The canonical form of a sender's name. Raises ValueError, with the legal names, for any other name."""
    name = SYNONYMS.get(name, name)
    if name not in SENDERS:
        raise ValueError(f"sender {name!r}; legal: {', '.join((*SENDERS, *SYNONYMS))}")
    return name


def plain_sender(sender: str) -> str:
    """The congestion control of a canonical `sender` without MLTCP."""
    return sender.removeprefix(_MLTCP)


def uses_mltcp(sender: str) -> bool:
    """Whether a canonical `sender` is MLTCP."""
    return sender.startswith(_MLTCP)


def as_mltcp(sender: str) -> str:
    """A canonical `sender` as MLTCP; one that is MLTCP already stays."""
    return _MLTCP + plain_sender(sender)


def sender_in_force(planned: str, own: str) -> str:
    """The congestion control that a plan has for a job, or the job's own one where the plan names none."""
    planned = SYNONYMS.get(planned, planned)
    return planned if planned in SENDERS else own
