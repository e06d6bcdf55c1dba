# SPDX-License-Identifier: Apache-2.0
"""Links, jobs and phases as flat arrays, for the compiled search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.interleave.circle import SharedLink

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class LinkArrays(NamedTuple):
    """Times in ns, rates in bit/s.

    By job: `period`; its entries are `mine[mine_first[j]:mine_first[j + 1]]`. By link: `length` of the
    circle, `capacity`, `limit` (the highest rate that is no excess), `weight` in the sum, `events`, the most
    edges on the circle; its entries are `first[l]` to `first[l + 1]`. By entry (a job on a link): `job`,
    `link`; its phases are `phase[e]` to `phase[e + 1]`. By phase: `begin`, `end`, `rate`.
    """

    period: Ints
    mine_first: Ints
    mine: Ints
    length: Ints
    capacity: Ints
    limit: Ints
    weight: Floats
    events: Ints
    first: Ints
    job: Ints
    link: Ints
    phase: Ints
    begin: Ints
    end: Ints
    rate: Ints


def group_identical_links(links: Sequence[SharedLink]) -> list[list[SharedLink]]:
    """Links with the same capacity, jobs and demands, together."""
    alike: dict[tuple[object, ...], list[SharedLink]] = {}
    for link in links:
        alike.setdefault((link.rate_bps, *sorted(link.demands.items())), []).append(link)
    return list(alike.values())


def pack(
    links: Sequence[SharedLink],
    weights: Sequence[int],
    jobs: Sequence[str],
    periods: Mapping[str, int],
    slack: float,
) -> LinkArrays:
    """The arrays for `links`, each of which counts `weights` times. Jobs are numbered in order."""
    number = {name: i for i, name in enumerate(jobs)}
    first, phase = [0], [0]
    job: list[int] = []
    link_of: list[int] = []
    begin: list[int] = []
    end: list[int] = []
    rate: list[int] = []
    length: list[int] = []
    events: list[int] = []
    mine: list[list[int]] = [[] for _ in jobs]
    for index, link in enumerate(links):
        around = math.lcm(*(periods[name] for name in link.demands))
        count = 0
        for name, phases in link.demands.items():
            mine[number[name]].append(len(job))
            job.append(number[name])
            link_of.append(index)
            for p in phases:
                if p.start_ns < p.end_ns and p.rate_bps > 0:
                    begin.append(p.start_ns)
                    end.append(p.end_ns)
                    rate.append(p.rate_bps)
            count += 2 * (len(begin) - phase[-1]) * (around // periods[name])
            phase.append(len(begin))
        first.append(len(job))
        length.append(around)
        events.append(count)
    bounds = [0]
    for entries in mine:
        bounds.append(bounds[-1] + len(entries))
    capacity = [link.rate_bps for link in links]
    return LinkArrays(
        period=np.array([periods[name] for name in jobs], dtype=np.int64),
        mine_first=np.array(bounds, dtype=np.int64),
        mine=np.array([e for entries in mine for e in entries], dtype=np.int64),
        length=np.array(length, dtype=np.int64),
        capacity=np.array(capacity, dtype=np.int64),
        limit=np.array([math.floor(c * (1 + slack)) for c in capacity], dtype=np.int64),
        weight=np.array(weights, dtype=np.float64),
        events=np.array(events, dtype=np.int64),
        first=np.array(first, dtype=np.int64),
        job=np.array(job, dtype=np.int64),
        link=np.array(link_of, dtype=np.int64),
        phase=np.array(phase, dtype=np.int64),
        begin=np.array(begin, dtype=np.int64),
        end=np.array(end, dtype=np.int64),
        rate=np.array(rate, dtype=np.int64),
    )
