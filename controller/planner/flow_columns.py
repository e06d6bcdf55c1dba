# SPDX-License-Identifier: Apache-2.0
"""The flows of all jobs as columns. Those of a job are made once, and stay while the job stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from controller.model import Flow, Job
from controller.routing.fabric import Ints
from controller.routing.numbering import Numbering, numbering
from controller.routing.topology_cache import cached_by_part
from topo.graph import Topology

_FIELDS = attrgetter("name", "src", "dst", "bytes_per_iteration")


@dataclass(frozen=True, eq=False)
class JobColumns:
    """The flows of one job: `src` and `dst` (flows,) are numbers of hosts, `size` (flows,) is in bytes an
    iteration."""

    numbers: Numbering
    names: tuple[str, ...]
    src: Ints
    dst: Ints
    size: NDArray[np.int64]

    @cached_property
    def row(self) -> Mapping[str, int]:
        """The index of each flow by name."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def access_s(self) -> float:
        """The seconds that the slowest cable of a host of the job needs for an iteration's bytes."""
        numbers = self.numbers
        sent, got = (np.bincount(ends, self.size, len(numbers.hosts)) for ends in (self.src, self.dst))
        return float((8 * np.maximum(sent, got) / numbers.host_bps).max(initial=0.0))

    @cached_property
    def access(self) -> Ints:
        """The links of each flow at its hosts, which it uses on any path, (flows, 2)."""
        links = self.numbers.access_links
        return np.stack((links[self.src, 0], links[self.dst, 1]), axis=1)


@cached_by_part
def columns_of(topology: Topology, flows: tuple[Flow, ...]) -> JobColumns:
    """The columns of a job's flows. Raises KeyError if a host is not on the fabric, and OverflowError for a
    size above 64 bits."""
    numbers = numbering(topology)
    number = numbers.host.__getitem__
    names, sources, destinations, sizes = zip(*map(_FIELDS, flows), strict=True) if flows else ((),) * 4
    return JobColumns(
        numbers,
        names,
        np.array([*map(number, sources)], dtype=np.int32),
        np.array([*map(number, destinations)], dtype=np.int32),
        np.array(sizes, dtype=np.int64),
    )


@dataclass(frozen=True, eq=False)
class FlowColumns:
    """The flows of all jobs, one job after another. `job` (flows,) is the index of the flow's job, and the
    flows of job j are those from `first[j]` to `first[j + 1]`. `elephant` (flows,) are those that get a path.
    `parts` are the columns of each job.
    """

    numbers: Numbering
    parts: Sequence[JobColumns]
    names: Sequence[str]
    src: Ints
    dst: Ints
    size: NDArray[np.int64]
    job: Ints
    first: NDArray[np.intp]
    elephant: NDArray[np.bool_]

    @classmethod
    def of(cls, topology: Topology, jobs: Sequence[Job], elephant_bytes: int) -> FlowColumns:
        """The flows of these jobs. Mice, and flows within a host, get no path."""
        parts = [columns_of(topology, job.flows) for job in jobs]
        counts = [len(p.names) for p in parts]
        src, dst = (
            np.concatenate([np.empty(0, np.int32), *columns])
            for columns in ([p.src for p in parts], [p.dst for p in parts])
        )
        size = np.concatenate([np.empty(0, np.int64), *(p.size for p in parts)])
        return cls(
            numbering(topology),
            parts,
            list(chain.from_iterable(p.names for p in parts)),
            src,
            dst,
            size,
            np.repeat(np.arange(len(jobs), dtype=np.int32), counts),
            np.concatenate(([0], np.cumsum(counts))).astype(np.intp),
            (size >= elephant_bytes) & (src != dst),
        )

    @cached_property
    def elephants(self) -> NDArray[np.intp]:
        """The indices of the flows that get a path."""
        return np.flatnonzero(self.elephant)

    @cached_property
    def access(self) -> Ints:
        """The links of each flow at its hosts, which it uses on any path, (flows, 2)."""
        return np.concatenate([np.empty((0, 2), np.int32), *(p.access for p in self.parts)])
