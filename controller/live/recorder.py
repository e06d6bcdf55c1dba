# SPDX-License-Identifier: Apache-2.0
"""Records what is measured, for the history, the log, and the question what slowed an iteration."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.live.event_log import EventLog
from controller.live.history import History
from controller.live.messages import IterationReport
from controller.live.notices import IterationDone, JobArrived, JobLeft, Notice
from controller.live.past_states import PastStates
from topo.graph import Topology

KEPT_ITERATIONS = 240
"""The last iterations of each job that blame looks at. Chosen: minutes."""
_SAMPLE_BYTES = 16 << 20
_MOST_SAMPLES = 1_200
"""Chosen: the samples of loads that blame looks at take so much memory, or cover two minutes of polls."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of a job as its workers reported it: from the first one's begin to the last one's end.

    `length_ns` is that of its slowest worker, `host` the host of that worker. `marks` and `retransmits` are
    packets of all workers.
    """

    index: int
    start_ns: int
    end_ns: int
    length_ns: int
    communication_ns: int
    host: str
    marks: int
    retransmits: int


@dataclass(frozen=True, slots=True)
class LoadSample:
    """The loads of all directions in [start_ns, end_ns), by number: per cent, -1: not measured; and ECN
    marks, -1: not measured."""

    start_ns: int
    end_ns: int
    load: NDArray[np.int8]
    marks: NDArray[np.int32]


@dataclass(slots=True)
class _JobReports:
    """The reports of iterations that not all workers have ended."""

    ranks: int
    open: dict[int, dict[int, IterationReport]]
    ended: deque[Iteration]


class Recorder:
    """What was measured on one fabric. `history`, `log` and `states` are read by the API."""

    def __init__(self, topology: Topology) -> None:
        self.history = History()
        self.log = EventLog()
        self.states = PastStates()
        self.topology = topology
        names = [
            (_end(topology, switch, port, peer.node), _end(topology, peer.node, peer.port, switch))
            for switch, ports in topology.ports.items()
            for port, peer in ports.items()
        ]
        names += [(h.name, h.leaf) for h in topology.hosts]
        self.directions = {f"{src}>{dst}": number for number, (src, dst) in enumerate(names)}
        """The numbers of the directions of cables by name, those of `Topology.directions`."""
        most = min(_MOST_SAMPLES, max(8, _SAMPLE_BYTES // (5 * max(1, len(names)))))
        self.samples: deque[LoadSample] = deque(maxlen=most)
        self._jobs: dict[str, _JobReports] = {}
        self._read_ns: int | None = None

    def noticed(self, notice: Notice) -> None:
        """Take up what has happened."""
        match notice:
            case IterationDone(now_ns, report):
                self._report(now_ns, report)
            case JobArrived(_, job):
                self._jobs[job.name] = _JobReports(len(job.hosts), {}, deque(maxlen=KEPT_ITERATIONS))
            case JobLeft(_, job):
                self._jobs.pop(job.name, None)
        self.log.noticed(notice)

    def iterations(self) -> Mapping[str, tuple[Iteration, ...]]:
        """The last iterations of the present jobs, the oldest first."""
        return {name: tuple(found.ended) for name, found in self._jobs.items()}

    def _report(self, now_ns: int, report: IterationReport) -> None:
        job = self._jobs.get(report.job)
        if job is None:
            return
        open_ = job.open.setdefault(report.index, {})
        open_.setdefault(report.rank, report)
        if len(open_) < job.ranks:
            # A worker that no longer reports leaves no more than these.
            if len(job.open) > job.ranks + 64:
                del job.open[min(job.open)]
            return
        # Reports of a worker come in order, so reports that earlier iterations still miss will never come.
        for index in sorted(i for i in job.open if i <= report.index):
            ended = _whole(index, tuple(job.open.pop(index).values()))
            job.ended.append(ended)
            self.history.add_iteration(now_ns, report.job, ended.length_ns / 1e6)

    def loads_read(self, now_ns: int, load: NDArray[np.float64], marks: NDArray[np.float64]) -> None:
        """The counters were read: busy fraction and ECN marks of each direction since the last time, in the
        order of `LinkLoads`. NaN: not measured.
        """
        before_ns, self._read_ns = self._read_ns, now_ns
        if before_ns is None or now_ns <= before_ns:
            return
        self.history.add_links(now_ns, load, marks * 1e9 / (now_ns - before_ns))
        self.samples.append(
            LoadSample(
                before_ns,
                now_ns,
                np.where(np.isnan(load), -1, np.rint(100 * np.nan_to_num(load))).astype(np.int8),
                np.where(np.isnan(marks), -1, np.nan_to_num(marks)).astype(np.int32),
            )
        )


def _end(topology: Topology, node: str, port: int, other: str) -> str:
    """The name of an end of a cable: the node, or NODE:PORT where several cables join the same two."""
    several = tuple(sorted((node, other))) in topology.bundles
    return f"{node}:{port}" if several else node


def _whole(index: int, reports: tuple[IterationReport, ...]) -> Iteration:
    slowest = max(reports, key=lambda r: r.end_ns - r.start_ns)
    return Iteration(
        index,
        min(r.start_ns for r in reports),
        max(r.end_ns for r in reports),
        slowest.end_ns - slowest.start_ns,
        max(r.communication_ns for r in reports),
        slowest.host,
        sum(r.ecn_marks for r in reports),
        sum(r.retransmits for r in reports),
    )
