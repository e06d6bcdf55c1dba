# SPDX-License-Identifier: Apache-2.0
"""What each job puts on each directed link, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controller.interleave.circle import SharedLink
from controller.model import Job, Phase, Profile
from controller.priority.jobs import LinkJob
from controller.routing.backend import backend, plain_suffices
from controller.routing.fabric import Floats, Ints
from controller.routing.numbering import DirectedLink, LinkNumbers


@dataclass(frozen=True, eq=False)
class BytesOnLinks(Mapping[DirectedLink, float]):
    """The bytes of one job by link, in the order in which its flows meet the links. `link` and `sent` have
    one entry for each link."""

    links: LinkNumbers
    link: Ints
    sent: Floats

    @cached_property
    def _by_name(self) -> Mapping[DirectedLink, float]:
        names = self.links.names
        return {names[k]: b for k, b in zip(self.link.tolist(), self.sent.tolist(), strict=True)}

    def values(self) -> ValuesView[float]:
        """The bytes, without the names of the links."""
        return _Sent(self)

    def __getitem__(self, name: DirectedLink) -> float:
        return self._by_name[name]

    def __iter__(self) -> Iterator[DirectedLink]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self.link)


class _Sent(ValuesView[float]):
    _mapping: BytesOnLinks

    def __iter__(self) -> Iterator[float]:
        return iter(self._mapping.sent.tolist())


@dataclass(frozen=True, eq=False)
class LinkUse:
    """The use of links by jobs, entry by entry: job `job[e]` puts `sent[e]` bytes an iteration on the link of
    number `link[e]`, with `flows[e]` routed elephants.

    Entries are sorted by job. Those of job j are from `first[j]` to `first[j + 1]`, in the order in which its
    flows meet the links. `hops` (jobs,) is the number of links of the longest path of each job, and
    `total` (jobs,) all bytes that it sends.
    """

    links: LinkNumbers
    job: Ints
    link: Ints
    sent: Floats
    flows: Ints
    first: NDArray[np.intp]
    hops: Ints
    total: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        links: LinkNumbers,
        rows: Ints,
        job: Ints,
        jobs: int,
        size: NDArray[np.int64],
        routed: NDArray[np.bool_],
    ) -> LinkUse:
        """The use of links by flows. Flow f of job `job[f]` sends `size[f]` bytes on the links of `rows[f]`,
        where -1 is none. The flows stand one job after another. `routed` (flows,) are the elephants with a
        path, or with a port that decides it."""
        kernels = backend(plain_suffices(len(job)))
        owner, link, sent, flows, longest = kernels.use_of_links(
            rows, job, size, routed, len(links.names), jobs
        )
        first = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=jobs))))
        total = np.bincount(job, size, jobs).astype(np.int64)
        return cls(links, owner, link, sent, flows, first, longest, total)

    @cached_property
    def slowest_s(self) -> Floats:
        """The seconds that the slowest link of each job needs for an iteration's bytes, (jobs,); 0: none."""
        seconds = 8 * self.sent / self.links.rate[self.link]
        found = np.zeros(len(self.first) - 1)
        some = np.flatnonzero(np.diff(self.first))
        if len(some):
            found[some] = np.maximum.reduceat(seconds, self.first[some])
        return found

    def link_jobs(self, jobs: Sequence[Job], profiles: Mapping[str, Profile]) -> list[LinkJob]:
        """The jobs as priority methods see them, with these bytes on links.

        If the communication and compute times of a job were measured, they count, and the part of them that
        does not fit into the period one after the other overlaps. Otherwise all time outside the Up phases
        counts as compute.
        """
        found, first, slowest = [], self.first.tolist(), self.slowest_s.tolist()
        for j, job in enumerate(jobs):
            some = slice(first[j], first[j + 1])
            profile, measured = profiles[job.name], job.measured
            compute, overlap_start, traffic = profile.period_ns - profile.up_ns, 1.0, slowest[j]
            if measured is not None and measured.compute_ns is not None:
                compute = measured.compute_ns
                alone = (profile.period_ns - measured.communication_ns) / compute
                overlap_start = min(1.0, max(0.0, alone))
            if measured is not None and first[j] < first[j + 1]:
                traffic = measured.communication_ns / 1e9
            found.append(
                LinkJob(
                    name=job.name,
                    gpus=job.gpus,
                    work=job.flops_per_iteration,
                    compute_s=compute / 1e9,
                    bytes_on=BytesOnLinks(self.links, self.link[some], self.sent[some]),
                    overlap_start=overlap_start,
                    traffic_s=traffic,
                    total_bytes=int(self.total[j]),
                    distance=int(self.hops[j]),
                )
            )
        return found

    def shared(self, jobs: Sequence[Job], profiles: Mapping[str, Profile]) -> tuple[SharedLink, ...]:
        """The links that routed elephants of several jobs use, sorted by name. No job demands more than the
        link's rate. Links with the same rate and the same flows have the same object as demands."""
        used = np.flatnonzero(self.flows > 0)
        several = np.bincount(self.link[used], minlength=len(self.links.names)) > 1
        used = used[several[self.link[used]]]
        if not len(used):
            return ()
        names = [job.name for job in jobs]
        place = np.empty(len(names), dtype=np.int64)
        place[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        used = used[np.lexsort((place[self.job[used]], self.links.rank[self.link[used]]))]
        link = self.link[used]
        starts = np.flatnonzero(np.append(True, link[1:] != link[:-1]))
        rates = self.links.rate[link[starts]].tolist()
        ends = [*starts[1:].tolist(), len(link)]
        pairs = list(zip(self.job[used].tolist(), self.flows[used].tolist(), strict=True))
        demands: dict[tuple[float, tuple[tuple[int, int], ...]], Mapping[str, tuple[Phase, ...]]] = {}
        phases: dict[tuple[int, int, float], tuple[Phase, ...]] = {}
        found = []
        for begin, end, number, rate in zip(starts.tolist(), ends, link[starts].tolist(), rates, strict=True):
            key = rate, tuple(pairs[begin:end])
            if key not in demands:
                for j, count in key[1]:
                    if (j, count, rate) not in phases:
                        phases[j, count, rate] = tuple(
                            Phase(p.start_ns, p.end_ns, min(count * p.rate_bps, int(rate)))
                            for p in profiles[names[j]].phases
                        )
                demands[key] = {names[j]: phases[j, count, rate] for j, count in key[1]}
            found.append(SharedLink(self.links.names[number], int(rate), demands[key]))
        return tuple(found)
