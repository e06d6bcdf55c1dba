# SPDX-License-Identifier: Apache-2.0
"""What followed a failure on the Mininet fabric, from what left the switches and what agents heard. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyrhythm.fabric.failures import Failover, Failure


@dataclass(frozen=True, slots=True)
class PortChange:
    """At `at_ns` a flow (addresses and UDP ports, as in the packet) left a switch by another port than
    before, or for the first time."""

    at_ns: int
    switch: str
    flow: bytes
    port: int


def after_failure(
    failure: Failure, at_ns: int, changes: Sequence[PortChange], moves_ns: Sequence[int]
) -> Failover:
    """What became of the flows that left living switches by the dead ports at `at_ns`.

    Packets lost are not counted: the kernel refuses what is sent by an interface that is down, and no
    switch tells of it.
    """
    outcome = Failover(failure, lost=None)
    living = {end for end in failure.ends if end[0] != failure.switch}
    ordered = sorted(changes, key=lambda change: change.at_ns)
    last = {(c.switch, c.flow): (c.switch, c.port) for c in ordered if c.at_ns <= at_ns}
    for change in ordered:
        cut = last.get((change.switch, change.flow)) in living
        if change.at_ns > at_ns and cut and (change.switch, change.port) not in living:
            outcome.backup_ns = change.at_ns - at_ns
            break
    for heard in sorted(moves_ns):
        if heard > at_ns:
            outcome.heard(heard - at_ns)
    return outcome
