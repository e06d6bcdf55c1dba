# SPDX-License-Identifier: Apache-2.0
"""The arrays of the compiled engine for some jobs (see `sim.kernels.state`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from controller.model import REALIGN
from controller.routing.spreading import PACKET_BITS
from sim.jobrun import JobRun, LoopState, flowlet_rule
from sim.task_graph import FLOW

if TYPE_CHECKING:
    from sim.kernels.state import State

_LOG_ENTRIES = 4096
_Crossed = tuple[tuple[int, float], ...]
"""Links, each with the portion of a channel's bits that crosses it."""


def binding_links(
    capacity: NDArray[np.float64], runs: Sequence[JobRun]
) -> tuple[NDArray[np.int64], list[_Crossed], NDArray[np.float64]]:
    """The links that can be short or be chosen, which of them each channel crosses, and its best rate.

    A channel that may choose crosses none yet.
    """
    limits = np.concatenate([np.zeros(0), *(r.program.channel_limit for r in runs)])
    channels = [(run, c) for run in runs for c in range(len(run.paths))]
    best = np.array(
        [run.best_rate(c, limit, capacity) for (run, c), limit in zip(channels, limits, strict=True)]
    ).reshape(len(channels))
    load: dict[int, float] = {}
    for (run, c), rate in zip(channels, best, strict=True):
        for link, portion in run.may_cross(c):
            load[link] = load.get(link, 0.0) + rate * portion
    binding = {link for link, rate in load.items() if rate > capacity[link] * (1 + 1e-9)}
    binding.update(link for run, c in channels for way in run.ways_of(c) for link in way)
    number = {link: i for i, link in enumerate(sorted(binding))}
    paths = [
        () if run.ways_of(c) else tuple((number[k], part) for k, part in run.crossed(c) if k in number)
        for run, c in channels
    ]
    return np.array(sorted(binding), dtype=np.int64), paths, best


def allocate(
    capacity: NDArray[np.float64],
    marks: NDArray[np.int8],
    runs: Sequence[JobRun],
    links: NDArray[np.int64],
    paths: Sequence[_Crossed],
    best: NDArray[np.float64],
    now: int,
    log: bool,
) -> State:
    """The kernel's arrays for these jobs."""
    from sim.kernels import state as k

    programs = [r.program for r in runs]
    sizes = np.array([len(p.kind) for p in programs], dtype=np.int64)
    first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    first_channel = np.cumsum([0, *(len(r.paths) for r in runs)])
    loops = [(i, loop) for i, run in enumerate(runs) for loop in run.loops]
    t, n, j, m = int(first[-1]), len(paths), len(loops), len(links)
    number = {int(link): i for i, link in enumerate(links)}
    ways = [
        [[number[k] for k in way] for way in run.ways_of(c)] for run in runs for c in range(len(run.paths))
    ]
    hops = max([1, *map(len, paths), *(len(way) for some in ways for way in some)])
    path = np.full((n, hops), -1, dtype=np.int32)
    portion = np.ones((n, hops))
    for i, p in enumerate(paths):
        path[i, : len(p)] = [link for link, _ in p]
        portion[i, : len(p)] = [part for _, part in p]
    jobs = np.zeros((j, k.JOB_COLUMNS), dtype=np.int64)
    # Only the classes that occur, for every event looks at each.
    classes = sorted({run.klass for run in runs})
    roots = np.concatenate(
        [np.zeros(0, np.int64), *(p.loops[:-1] + f for p, f in zip(programs, first, strict=False))]
    )
    ends = np.append(roots[1:], t)
    for at, (i, loop) in enumerate(loops):
        run = runs[i]
        for column, value in (
            (k.ROOT, roots[at]),
            (k.SINK, ends[at] - 1),
            (k.FIRST, first[i]),
            (k.COUNT, loop.count),
            (k.TARGET, run.iterations),
            (k.BEGIN, loop.begin),
            (k.TOTAL, loop.total),
            (k.EPOCH, run.schedule.epoch),
            (k.SHIFT, run.schedule.shift),
            (k.PERIOD, run.schedule.period),
            (k.READY, loop.ready),
            (k.HELD, loop.slot_wait),
            (k.LONGEST, loop.longest),
            (k.ENDED, loop.ended),
            (k.JITTER, run.jitter),
            (k.SALT, run.salt),
            (k.ONCE, run.schedule.once),
            (k.LATE_BY, int(run.schedule.late * run.schedule.period)),
            (k.FIRST_BY, int(min(run.schedule.late, REALIGN) * run.schedule.period)),
            (k.ALIGNED, loop.aligned),
        ):
            jobs[at, column] = value

    def joined(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
        return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)

    channel = joined([p.channel + c for p, c in zip(programs, first_channel, strict=False)], np.int32)
    kind = joined([p.kind for p in programs], np.int8)
    limit = joined([p.limit for p in programs], np.float64)
    flows = kind == FLOW
    limit[flows] = np.minimum(limit[flows], best[channel[flows]])
    edges = np.cumsum([0, *(len(p.succ) for p in programs)])
    succ_at = joined([p.succ_at[:-1] + e for p, e in zip(programs, edges, strict=False)], np.int64)

    reg = np.zeros(k.REGISTERS, dtype=np.int64)
    reg[k.HOPS], reg[k.CLASSES_IN] = hops, len(classes)
    reg[k.FIRST_PACKET] = PACKET_BITS
    if rule := flowlet_rule(runs):
        reg[k.GAP], reg[k.HALF_LIFE] = rule.gap, rule.half_life
    reg[k.REFERENCE] = _reference(runs, loops)
    tasks = np.zeros(t, dtype=k.TASK)
    tasks["kind"], tasks["limit"], tasks["channel"] = kind, limit, channel
    tasks["job"] = np.repeat(np.arange(j, dtype=np.int32), ends - roots)
    gates = joined(
        [np.where(p.gives >= 0, p.gives + f, -1) for p, f in zip(programs, first, strict=False)], np.int32
    )
    tasks["gives"] = gates
    tasks["tokens"] = joined([r.progress.tokens for r in runs if r.progress], np.int32)
    tasks["bits"] = joined([p.bits for p in programs], np.float64)
    tasks["span"] = joined([p.span for p in programs], np.int64)
    tasks["indegree"] = joined([p.indegree for p in programs], np.int32)
    tasks["waiting"] = joined([r.progress.waiting for r in runs if r.progress], np.int32)
    tasks["before"] = joined([p.before for p in programs], np.float64)
    table = np.zeros(m, dtype=k.LINK)
    table["cap"], table["marks"] = capacity[links], marks[links]
    table["full_at"] = len(classes)
    table["load_at"], table["least"] = now, -1
    cells = np.zeros(m * len(classes), dtype=k.CELL)
    cells["solved"] = -1.0
    channels = np.zeros(n, dtype=k.CHANNEL)
    channels["sent"] = joined([r.sent for r in runs], np.float64)
    channels["congested"] = joined([r.congested for r in runs], np.float64)
    channels["whole"] = joined([p.whole for p in programs], np.float64)
    channels["klass"] = np.repeat(
        [classes.index(run.klass) for run in runs], [len(run.paths) for run in runs]
    )
    flowlets = np.zeros(n, dtype=k.FLOWLET)
    owners = [p.queue_pair + c for p, c in zip(programs, first_channel, strict=False)]
    flowlets["owner"] = joined(owners, np.int32)
    flowlets["way"] = -1
    row_of_ways = np.full((sum(map(len, ways)), hops), -1, dtype=np.int32)
    for row, way in zip(row_of_ways, (way for some in ways for way in some), strict=True):
        row[: len(way)] = way
    for run, c in zip(runs, first_channel, strict=False):
        if run.flowlets is not None:
            some = flowlets[c : c + len(run.paths)]
            some["way"], some["since"] = run.flowlets.way, run.flowlets.since
    # A flow takes room at every link that it may choose.
    either = [(i, link) for i, some in enumerate(ways) for link in {link for way in some for link in way}]
    flow, chosen = (np.array(x, dtype=np.int64) for x in zip(*either, strict=True)) if either else ((), ())
    crossed = np.concatenate(
        (
            (path.astype(np.int64) * len(classes) + channels["klass"][:, None])[path >= 0],
            np.asarray(chosen, np.int64) * len(classes) + channels["klass"][np.asarray(flow, np.int64)],
        )
    )
    cells["first"] = np.cumsum(np.bincount(crossed, minlength=len(cells))) - np.bincount(
        crossed, minlength=len(cells)
    )
    flows_now = np.zeros(n, dtype=k.FLOWING)
    flows_now["task"], flows_now["bottleneck"] = -1, -2
    return k.State(
        reg=reg,
        links=table,
        cells=cells,
        tasks=tasks,
        slots=np.zeros(len(crossed), dtype=k.SLOT),
        seat=np.full(n * hops, -1, dtype=np.int32),
        flows=flows_now,
        channels=channels,
        heap=np.zeros(t, dtype=k.TIMED),
        place=np.full(t, -1, dtype=np.int32),
        levels=np.zeros(m, dtype=k.LEVEL),
        rank=np.full(m, -1, dtype=np.int32),
        weights=weight_table(runs)[[i for i, _ in loops]],
        jobs=jobs,
        log=np.zeros((max(_LOG_ENTRIES, 8 * j) if log else 0, 3), dtype=np.int64),
        last_log=np.full(j, -1, dtype=np.int32),
        succ_at=np.append(succ_at, edges[-1]),
        succ=joined([p.succ + f for p, f in zip(programs, first, strict=False)], np.int32),
        path=path.reshape(-1),
        portion=portion.reshape(-1),
        flowlets=flowlets,
        first_way=np.cumsum([0, *map(len, ways)]).astype(np.int32),
        ways=row_of_ways.reshape(-1),
        carried=carried_of(runs),
        starters=np.zeros(n, dtype=k.TIMED),
        waiting_at=np.full(n, -1, dtype=np.int32),
        saved=np.zeros(k.PER_JOB * j + k.PER_TASK * t, dtype=np.int64),
        saved_counts=np.zeros((j, 3), dtype=np.int64),
    )


def carried_of(runs: Sequence[JobRun]) -> NDArray[np.float64]:
    """What the channels have sent by their ways, in the order of the channels and ways."""
    found = [
        run.flowlets.carried[c, : len(some)]
        for run in runs
        if run.flowlets is not None
        for c, some in enumerate(run.ways)
    ]
    return np.concatenate([np.zeros(0), *found])


def weight_table(runs: Sequence[JobRun]) -> NDArray[np.float64]:
    """The weights of each job by steps of equal parts of an iteration's bytes, shape (jobs, steps); all
    ones for a job without. No steps if none has any.

    Raises:
        ValueError: two jobs have different numbers of steps, or a weight is not positive.
    """
    steps = max((len(run.weights) for run in runs), default=0)
    for run in runs:
        if len(run.weights) not in (0, steps) or not all(0 < w < np.inf for w in run.weights):
            raise ValueError(f"job {run.name}: {steps} positive weights are needed, as the other jobs have")
    return np.array([run.weights or (1.0,) * steps for run in runs], np.float64).reshape(len(runs), steps)


def _reference(runs: Sequence[JobRun], loops: Sequence[tuple[int, LoopState]]) -> int:
    """The loop whose iterations mark the points where repeats are looked for: the first of the job with the
    longest compute.
    """
    compute = [int(run.program.span.sum()) // len(run.loops) for run in runs]
    alive = [row for row, (_, loop) in enumerate(loops) if loop.ended < 0]
    return max(alive, key=lambda row: compute[loops[row][0]], default=0)
