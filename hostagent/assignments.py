# SPDX-License-Identifier: Apache-2.0
"""What an agent has been told by the controller: traffic classes, and where flows go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controller.wire import agent_pb2 as pb
from hostagent.job import UNPLANNED

DEFAULT_DEADLINE_NS = 10_000_000


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What Welcome says of traffic classes, of which flows ask, and of whether jobs are profiled; the
    defaults hold without a session. `levels` are the DSCPs of the job levels, the highest first."""

    policy: str = ""
    equal_dscp: int = 0
    mice_dscp: int = 0
    elephant_bytes: int = 0
    deadline_ns: int = DEFAULT_DEADLINE_NS
    profiles: bool = False
    levels: tuple[int, ...] = ()

    @classmethod
    def of(cls, welcome: pb.Welcome) -> SessionSettings:
        """From the controller's word."""
        return cls(
            welcome.policy,
            welcome.equal_dscp,
            welcome.mice_dscp,
            welcome.elephant_bytes,
            welcome.answer_deadline_ns or DEFAULT_DEADLINE_NS,
            welcome.profiles,
            tuple(welcome.level_dscp),
        )

    def level(self, pins: Iterable[Pin]) -> int:
        """The level of a job with these pins: that of its highest flow, 0 the highest."""
        known = {dscp: level for level, dscp in enumerate(self.levels)}
        return min((known.get(pin.dscp, UNPLANNED) for pin in pins), default=UNPLANNED)


@dataclass(frozen=True, slots=True)
class Pin:
    """Where a flow goes: `source_port` 0 leaves the choice to the agent (ECMP)."""

    source_port: int
    dscp: int
    rate_cap_bps: int = 0


@dataclass(frozen=True, slots=True)
class ProbedPath:
    """The controller's answer to a probe request: the path the packets of the flow take."""

    path: tuple[str, ...]
    verified: bool
