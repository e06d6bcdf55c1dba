# SPDX-License-Identifier: Apache-2.0
"""Jobs with what they put on each link: what every priority method starts from."""

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
    """A job per iteration: `work` is W_j in flop, all GPUs together; `compute_s` its computing time, after
    the part `overlap_start` of which communication starts; `bytes_on` what it sends on each link.
    `distance` is the longest way that its traffic takes, in hops; `total_bytes` all that it sends, where
    that is not the sum over the links; `traffic_s` is t_j where it was measured.
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
        """Seconds that each link takes for an iteration's bytes; links without any are left out."""
        return {link: 8 * sent / rate_bps[link] for link, sent in self.bytes_on.items() if sent > 0}

    def contender(self, rate_bps: Rates) -> Contender:
        """The job as CRUX sees it: t_j is measured, or the time of its slowest link."""
        return Contender(
            name=self.name,
            work=self.work,
            compute_s=self.compute_s,
            traffic_s=traffic_time(self.bytes_on, rate_bps) if self.traffic_s is None else self.traffic_s,
            total_bytes=sum(self.bytes_on.values()) if self.total_bytes is None else self.total_bytes,
            overlap_start=self.overlap_start,
        )


def shared_links(jobs: Sequence[LinkJob]) -> Mapping[tuple[str, str], tuple[Any, ...]]:
    """The pairs of jobs that both send on some link, in the order given, and which links these are."""
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
