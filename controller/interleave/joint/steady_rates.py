# SPDX-License-Identifier: Apache-2.0
"""Short bursts of a higher level that the queues of the fabric smooth for the levels below. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.interleave.joint.instance import UNSCHEDULED, Instance
from controller.interleave.joint.sharing_groups import SharingGroup
from controller.interleave.joint.windows import WINDOW_BITS

SPARE = 2.0
"""The windows of the flows of lower levels must hold so many times what a burst stops. Chosen: not all of
these flows send at any time."""
SENT = -1.0
"""In place of a steady rate: the levels below get what the stream leaves at each time."""


@dataclass(frozen=True, slots=True)
class LeveledStream:
    """A stream as `steady_rates` needs it: its `level`, the number of `flows` over its full `links`, and of
    each flow the `rate` (the largest, bit/ns), the longest `burst` in ns and the `mean` rate alone. `free`:
    its job has neither slots nor MLTCP.
    """

    level: int
    flows: float
    links: tuple[int, ...]
    rate: float
    burst: float
    mean: float
    free: bool


@dataclass(slots=True)
class _Link:
    """A full link: by level the most that its streams send in bit/ns, and their number of flows; `single` is
    the lowest level of a stream that waits in no other queue (-1: none)."""

    wanted: list[float]
    flows: list[float]
    single: int = -1


def steady_rates(
    streams: Sequence[LeveledStream], capacity: Mapping[int, float], queues: Mapping[int, bool]
) -> list[float]:
    """By stream: the rate of one flow in bit/ns that the levels below see of it at all times; SENT: there is
    none. `capacity` (bit/ns) and `queues` (as in `Instance`) are by link.

    While a burst of a higher level stops a link, flows of lower levels that also wait in another full queue
    go on there: their windows fill the queue before the stopped link, or empty the one behind it. So the
    other link loses nothing, and in the mean they get what the higher level leaves. That holds for bursts
    that are shorter than the windows last. The stream must never be stopped itself, for its mean rate must
    be known.
    """
    levels = 1 + max((s.level for s in streams), default=0)
    links: dict[int, _Link] = {}
    for s in streams:
        waits = sum(queues[k] for k in s.links)
        for k in s.links:
            link = links.setdefault(k, _Link([0.0] * levels, [0.0] * levels))
            link.wanted[s.level] += s.flows * s.rate
            link.flows[s.level] += s.flows
            if waits - queues[k] == 0:
                link.single = max(link.single, s.level)
    return [
        s.mean if s.free and all(_smooths(links[k], s, capacity[k], queues[k]) for k in s.links) else SENT
        for s in streams
    ]


def _smooths(link: _Link, stream: LeveledStream, capacity: float, queue: bool) -> bool:
    """Whether a link carries all of the level of a stream, and hides its bursts from the levels below."""
    below = stream.level + 1
    if sum(link.wanted[:below]) > capacity:
        return False
    lower = sum(link.flows[below:])
    held = lower * WINDOW_BITS
    return lower == 0 or (queue and link.single < below and held >= SPARE * stream.burst * capacity)


def steady_rates_of(instance: Instance, group: SharingGroup, factors: Sequence[float]) -> list[float]:
    """`steady_rates` of a group's streams. `factors` shorten the phases of each job."""
    if not instance.queues or max(group.level) == 0:
        return [SENT] * len(group.streams)
    place = {j: i for i, j in enumerate(group.jobs)}
    streams = []
    for s in group.streams:
        i, job = place[s.job], instance.jobs[s.job]
        bits = s.relative_size * sum(step.up_ns * step.rate_bps for step in job.steps) / 1e9
        streams.append(
            LeveledStream(
                level=group.level[i],
                flows=s.count,
                links=s.links,
                rate=max(step.rate_bps for step in job.steps) / 1e9,
                burst=max(step.up_ns for step in job.steps) * factors[i],
                mean=bits / job.alone_ns,
                free=group.timings[i] == UNSCHEDULED and not group.mltcp[i],
            )
        )
    links = {k for s in streams for k in s.links}
    return steady_rates(
        streams, {k: instance.capacity_bps[k] / 1e9 for k in links}, {k: instance.queues[k] for k in links}
    )
