# SPDX-License-Identifier: Apache-2.0
"""From iteration reports and byte counts to a measured job: profile, work, communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from controller.measure.confidence import confidence, half_width, slope_half_width
from controller.measure.selection import Sample, counting
from controller.measure.series import Series
from controller.measure.shape import discover, estimate, spans_of
from controller.model.job import Flow, Job, Measurement, Phase, Profile


def from_iterations(
    job: Job, samples: Sequence[Sample], series: Series, changes_ns: Sequence[int] = ()
) -> Job | None:
    """The job as measured from the iterations of its workers; None if none of its first worker's counts.

    Iterations that overlap a change at one of `changes_ns`, or are unlike the others, do not count
    (`controller/measure/selection.py`). The period is the median of the first worker's (CASSINI profiles one
    iteration, and a ring keeps all workers in step). Communication and compute are those of the slowest
    worker, W_j is the sum over the workers (CRUX, section 5). Up phases come from the byte counts of the same
    iterations. Without byte counts there is one phase, as long as the communication, with all the bytes.
    """
    by_rank: dict[int, list[Sample]] = {}
    for sample in counting(samples, changes_ns):
        by_rank.setdefault(sample.rank, []).append(sample)
    first = by_rank.get(0)
    if not first:
        return None
    period = max(1, int(median(s.own_ns for s in first)))
    communication = max(int(median(s.communication_ns for s in own)) for own in by_rank.values())
    compute = max(int(median(s.compute_ns for s in own)) for own in by_rank.values())
    work = [median(s.flops for s in own) for own in by_rank.values()]
    # Workers without reports are assumed to do the same work as the others.
    flops = sum(work) * len(job.hosts) / len(work)
    # The blur of the first start lies in the bin before it. What follows an iteration's end does not count.
    begin, end = min(s.start_ns for s in first), max(s.end_ns for s in first)
    table, origin = series.window(begin - 2 * series.bin_ns, end + period)
    spans = [(float(s.start_ns - origin), float(s.end_ns - origin)) for s in first]
    profile = estimate(table, series.bin_ns, spans, period)
    flows = _flows(job, {rank: median(s.bytes_sent for s in own) for rank, own in by_rank.items()})
    if profile is None or not profile.phases:
        profile = Profile(period, _single_phase(flows, min(communication, period)))
    known = confidence(profile, table, series.bin_ns, spans, half_width([s.own_ns for s in first]))
    return replace(
        job,
        profile=profile,
        flops_per_iteration=flops or job.flops_per_iteration,
        flows=flows,
        measured=Measurement(len(first), communication, compute or None, flops or None, "iterations", known),
    )


def from_bytes(job: Job, series: Series, start_ns: int, end_ns: int, flops: float) -> Job | None:
    """The job as measured from byte counts in [start_ns, end_ns) alone; None if nothing repeats.

    `flops` are those of the whole interval (0: not known).
    """
    table, _ = series.window(start_ns, end_ns)
    found = discover(table, series.bin_ns)
    if found is None:
        return None
    profile, starts = found
    slope = slope_half_width(starts, profile.period_ns)
    known = confidence(profile, table, series.bin_ns, spans_of(starts), slope)
    work = flops * profile.period_ns / (end_ns - start_ns)
    # Only whole iterations are used: a part of one would bias the bytes of an iteration.
    count = round((starts[-1] - starts[0]) / profile.period_ns)
    edges = np.arange(table.shape[1] + 1) * float(series.bin_ns)
    span = [starts[0], starts[0] + max(1, count) * profile.period_ns]
    curves = [np.concatenate([[0.0], np.cumsum(row)]) for row in table]
    each = [float(np.diff(np.interp(span, edges, c))[0]) / max(1, count) for c in curves]
    sent = dict(zip(series.flows, each, strict=True))
    flows = tuple(
        replace(f, bytes_per_iteration=round(sent[f.name])) if sent.get(f.name) else f for f in job.flows
    )
    return replace(
        job,
        profile=profile,
        flops_per_iteration=work or job.flops_per_iteration,
        flows=flows,
        measured=Measurement(len(starts), profile.up_ns, None, work or None, "bytes", known),
    )


def _flows(job: Job, sent: Mapping[int, float]) -> tuple[Flow, ...]:
    """The flows of the job with the bytes that their workers report, in equal shares for each flow of a
    worker.
    """
    rank_of = {host: rank for rank, host in enumerate(job.hosts)}
    of = {rank: sum(rank_of.get(f.src) == rank for f in job.flows) for rank in sent}
    flows = []
    for flow in job.flows:
        rank = rank_of.get(flow.src, -1)
        known = rank in sent and of[rank]
        flows.append(replace(flow, bytes_per_iteration=round(sent[rank] / of[rank])) if known else flow)
    return tuple(flows)


def _single_phase(flows: Sequence[Flow], communication_ns: int) -> tuple[Phase, ...]:
    most = max((f.bytes_per_iteration for f in flows), default=0)
    rate = round(most * 8e9 / communication_ns) if communication_ns > 0 else 0
    return (Phase(0, communication_ns, rate),) if rate > 0 else ()
