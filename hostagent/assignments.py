# SPDX-License-Identifier: Apache-2.0
"""The controller's assignments as the agent keeps them: session settings, pins of flows, probed paths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controller.wire import agent_pb2 as pb
from controller.wire.protocol import ANSWER_DEADLINE_NS
from polyrhythm_job.protocol import NO_LEVEL


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The contents of the controller's Welcome; the defaults hold without a session.

    `equal_dscp`: for jobs without a level; `mice_dscp`: for flows below `elephant_bytes`, which need not ask
    for a path; `deadline_ns`: how long a flow waits for an answer; `profiles`: new jobs are profiled;
    `levels`: the DSCP of each priority level, the highest level first.
    """

    policy: str = ""
    equal_dscp: int = 0
    mice_dscp: int = 0
    elephant_bytes: int = 0
    deadline_ns: int = ANSWER_DEADLINE_NS
    profiles: bool = False
    levels: tuple[int, ...] = ()

    @classmethod
    def from_welcome(cls, welcome: pb.Welcome) -> SessionSettings:
        """The settings in a Welcome message."""
        return cls(
            welcome.policy,
            welcome.equal_dscp,
            welcome.mice_dscp,
            welcome.elephant_bytes,
            welcome.answer_deadline_ns or ANSWER_DEADLINE_NS,
            welcome.profiles,
            tuple(welcome.level_dscp),
        )

    def level(self, pins: Iterable[Pin]) -> int:
        """The level of a job with these pins: the level of its highest flow, 0 the highest."""
        known = {dscp: level for level, dscp in enumerate(self.levels)}
        return min((known.get(pin.dscp, NO_LEVEL) for pin in pins), default=NO_LEVEL)


@dataclass(frozen=True, slots=True)
class Pin:
    """Source port, DSCP and rate cap of a flow. `source_port` 0: by ECMP; `rate_cap_bps` 0: no cap."""

    source_port: int
    dscp: int
    rate_cap_bps: int = 0


@dataclass(frozen=True, slots=True)
class ProbedPath:
    """The controller's answer to a probe request: the path that packets of the flow take."""

    path: tuple[str, ...]
    verified: bool
