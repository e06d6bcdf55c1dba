# SPDX-License-Identifier: Apache-2.0
"""A sharing group as arrays: what the fluid model and its compiled kernel start from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.interleave.joint.fair_rates import CONTROL, MOST_CONTROL
from controller.interleave.joint.instance import Instance
from controller.interleave.joint.sharing_groups import SharingGroup
from controller.interleave.joint.steady_rates import steady_rates_of
from controller.interleave.joint.windows import WINDOW_BITS
from controller.interleave.slot_tolerance import TOUCH, HeldJob, slot_tolerances
from controller.model import REALIGN

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class FluidArrays(NamedTuple):
    """A sharing group as arrays. Times in ns, rates in bit/ns.

    By job: its steps are `first[j]` to `first[j + 1]`; `level`, `period`, `shift`, `mltcp`,
    `uncontended_size`; `window` is the most bits of a flow in flight (0: they change with MLTCP). An
    iteration that is ready more than `late` after its slot waits for the next one. If it begins more than
    `gap` after it (TOUCH of its period included), all slots of its `slot_set` move later (`later_by`). The
    first iteration of a run waits for its slot. By step: `up`, `rate`, `compute`. By stream: `job`, `flows`,
    `relative_size`, `steady` (see `steady_rates`), and its links, `at[s]` to `at[s + 1]` of `link`. By link:
    `capacity`, `control` as in `fair_rates`, and `queues` as in `Instance`.
    """

    first: Ints
    up: Floats
    rate: Floats
    compute: Floats
    level: Ints
    period: Floats
    shift: Floats
    mltcp: NDArray[np.bool_]
    uncontended_size: Floats
    window: Floats
    job: Ints
    flows: Floats
    relative_size: Floats
    steady: Floats
    at: Ints
    link: Ints
    capacity: Floats
    control: Floats
    queues: NDArray[np.bool_]
    jitter: float
    slope: float
    intercept: float
    late: Floats
    gap: Floats
    slot_set: Ints


def fluid_arrays(
    instance: Instance,
    group: SharingGroup,
    shortening: Sequence[float] | None = None,
    longer: float = 0.0,
) -> FluidArrays:
    """The arrays of a sharing group. `shortening` is a factor for all phases of each job; None: 1. Each Up
    phase is `longer` by this part of itself, and the compute after it shorter by the same time.
    """
    factors = [1.0] * len(group.jobs) if shortening is None else shortening
    place = {j: i for i, j in enumerate(group.jobs)}
    steps = [instance.jobs[j].steps for j in group.jobs]
    links = sorted({k for s in group.streams for k in s.links})
    number = {k: i for i, k in enumerate(links)}
    flat = [s for own in steps for s in own]
    times = np.array([f for f, own in zip(factors, steps, strict=True) for _ in own], dtype=np.float64)
    more = np.array([min(longer * s.up_ns, s.compute_ns) for s in flat], dtype=np.float64)
    late, gap, slot_set = _slot_tolerances(instance, group)
    capacity = np.array([instance.capacity_bps[k] / 1e9 for k in links], dtype=np.float64)
    queues = np.array([bool(instance.queues) and instance.queues[k] for k in links], dtype=np.bool_)
    return FluidArrays(
        first=np.cumsum([0, *map(len, steps)]).astype(np.int64),
        up=(np.array([s.up_ns for s in flat], dtype=np.float64) + more) * times,
        rate=np.array([s.rate_bps / 1e9 for s in flat], dtype=np.float64),
        compute=(np.array([s.compute_ns for s in flat], dtype=np.float64) - more) * times,
        level=np.array(group.level, dtype=np.int64),
        period=np.array([r[0] for r in group.timings], dtype=np.float64),
        shift=np.array([r[1] for r in group.timings], dtype=np.float64),
        mltcp=np.array(group.mltcp, dtype=np.bool_),
        uncontended_size=np.array(group.uncontended_size, dtype=np.float64),
        window=np.array(
            [0.0 if own else WINDOW_BITS * f for own, f in zip(group.mltcp, factors, strict=True)],
            dtype=np.float64,
        ),
        job=np.array([place[s.job] for s in group.streams], dtype=np.int64),
        flows=np.array([s.count for s in group.streams], dtype=np.float64),
        relative_size=np.array([s.relative_size for s in group.streams], dtype=np.float64),
        steady=np.array(steady_rates_of(instance, group, factors), dtype=np.float64),
        at=np.cumsum([0, *(len(s.links) for s in group.streams)]).astype(np.int64),
        link=np.array([number[k] for s in group.streams for k in s.links], dtype=np.int64),
        capacity=capacity,
        control=np.where(queues, np.minimum(CONTROL * capacity, MOST_CONTROL), 0.0),
        queues=queues,
        jitter=instance.jitter,
        slope=instance.mltcp[0],
        intercept=instance.mltcp[1],
        late=late,
        gap=gap,
        slot_set=slot_set,
    )


def _slot_tolerances(instance: Instance, group: SharingGroup) -> tuple[Floats, Floats, Ints]:
    """`late`, `gap` and `slot_set` of `FluidArrays`, as the controller decides them."""
    count = len(group.jobs)
    late = np.array([REALIGN * period for period, _ in group.timings], dtype=np.float64)
    gap, slot_set = np.full(count, np.inf), np.arange(count, dtype=np.int64)
    if not instance.slots_move:
        return late, gap, slot_set
    held = {
        i: HeldJob(round(period), round(shift), _bursts(instance, j))
        for i, (j, (period, shift)) in enumerate(zip(group.jobs, group.timings, strict=True))
        if period
    }
    if len(held) > 1:
        place = {j: i for i, j in enumerate(group.jobs)}
        using: dict[int, dict[int, None]] = defaultdict(dict)
        for s in group.streams:
            for k in s.links:
                using[k][place[s.job]] = None
        for i, found in slot_tolerances(held, [tuple(jobs) for jobs in using.values()]).items():
            late[i] = found.latest * group.timings[i][0]
            gap[i] = found.gap_ns + TOUCH * group.timings[i][0]
            slot_set[i] = min(found.group)
    return late, gap, slot_set


def _bursts(instance: Instance, j: int) -> tuple[tuple[int, int], ...]:
    """Start and end of each Up phase of a job, from its first one on, in ns."""
    bursts, at = [], 0
    for s in instance.jobs[j].steps:
        bursts.append((at, at + s.up_ns))
        at += s.up_ns + s.compute_ns
    return tuple(bursts)
