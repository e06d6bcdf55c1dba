# SPDX-License-Identifier: Apache-2.0
"""Jobs with their bytes on each link: the input of every priority method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from controller.priority.crux import Contender, traffic_time

Rates = Mapping[Any, float]
"""Link -> bit/s. What names a link is the caller's: a text in a file, a pair of nodes in the planner."""


@dataclass(frozen=True, slots=True)
class LinkJob:
    """A job, per iteration.

    `work` is W_j in flop of all GPUs together. Communication starts after the part `overlap_start` of
    `compute_s`. `bytes_on` are its bytes on each link. `distance` is the longest path of its traffic, in
    hops. `total_bytes` is all that it sends, if that is not the sum over the links. `traffic_s` is t_j if it
    was measured.
    """

    name: str
    gpus: int
    work: float
    compute_s: float
    bytes_on: Mapping[Any, float]
    overlap_start: float = 1.0
    distance: int = 0
    total_bytes: float | None = None
    traffic_s: float | None = None

    def seconds_on(self, rate_bps: Rates) -> Mapping[Any, float]:
        """The seconds that each link needs for an iteration's bytes; links without bytes are left out."""
        return {link: 8 * sent / rate_bps[link] for link, sent in self.bytes_on.items() if sent > 0}

    def contender(self, rate_bps: Rates) -> Contender:
        """The job as CRUX sees it. t_j is the measured value, or the time of the slowest link."""
        return Contender(
            name=self.name,
            work=self.work,
            compute_s=self.compute_s,
            traffic_s=traffic_time(self.bytes_on, rate_bps) if self.traffic_s is None else self.traffic_s,
            total_bytes=sum(self.bytes_on.values()) if self.total_bytes is None else self.total_bytes,
            overlap_start=self.overlap_start,
        )


def shared_links(jobs: Sequence[LinkJob]) -> Mapping[tuple[str, str], tuple[Any, ...]]:
    """The pairs of jobs that both send on some link, in the given order, with these links."""
    on: dict[Any, list[str]] = {}
    for job in jobs:
        for link, sent in job.bytes_on.items():
            if sent > 0:
                on.setdefault(link, []).append(job.name)
    pairs: dict[tuple[str, str], list[Any]] = {}
    for link, names in on.items():
        for pair in combinations(names, 2):
            pairs.setdefault(pair, []).append(link)
    return {pair: tuple(links) for pair, links in pairs.items()}
