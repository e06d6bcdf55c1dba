# SPDX-License-Identifier: Apache-2.0
"""Which job, link and moment slowed the iterations of a job, from what was measured. Pure.

The measurements are iteration reports of workers and the switches' counters between two polls. A link is
blamed where it was full or marked packets during the iteration; the job that is named beside it has a planned
path over that link and was communicating at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from controller.live.recorder import Iteration, LoadSample
from controller.model.job import Job
from controller.model.plan import Plan
from topo.graph import Topology

# Chosen: an iteration is slow from so much above the usual one on. Those of a job that is alone vary less.
SLOW_FACTOR = 1.05
FULL_PER_CENT = 90
"""From this load in a poll interval on a link counts as full. Chosen: headers and gaps take the rest."""
MOST_BLAMED = 20


@dataclass(frozen=True, slots=True)
class Blamed:
    """A slow iteration and its reason. `usual_ns` is the median of the job's other iterations. `link` None:
    no link on its paths was full or marked packets, or none was measured then; `other` None: no other job
    was communicating there. The moment is the poll interval in which the link was fullest."""

    iteration: Iteration
    usual_ns: int
    link: str | None
    other: str | None
    moment_ns: tuple[int, int] | None
    load: int | None
    marks: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Measured:
    """All that the answer is made from. `directions` numbers the columns of samples by name of the link."""

    topology: Topology
    plan: Plan
    jobs: Mapping[str, Job]
    iterations: Mapping[str, Sequence[Iteration]]
    samples: Sequence[LoadSample]
    directions: Mapping[str, int]


def blamed(measured: Measured, job: str) -> tuple[Blamed, ...]:
    """The slow ones of a job's last iterations, the slowest first; at most MOST_BLAMED."""
    own = measured.iterations.get(job, ())
    if len(own) < 2:
        return ()
    usual_ns = round(median(it.length_ns for it in own))
    slow = [it for it in own if it.length_ns > SLOW_FACTOR * usual_ns]
    slow.sort(key=lambda it: (-it.length_ns, it.index))
    links = _links_of(measured, job)
    return tuple(_blame(measured, job, it, usual_ns, links) for it in slow[:MOST_BLAMED])


def _links_of(measured: Measured, job: str) -> Mapping[str, int]:
    """The directions on the planned paths of a job; of several cables between two switches all."""
    found: dict[str, int] = {}
    for flow in measured.jobs[job].flows if job in measured.jobs else ():
        planned = measured.plan.flows.get(flow.name)
        for src, dst in pairwise((planned.path or ()) if planned is not None else ()):
            for name in _names(measured.topology, src, dst):
                found[name] = measured.directions[name]
    return found


def _names(topology: Topology, src: str, dst: str) -> Iterable[str]:
    """The names of the directions from a node to the next."""
    bundle = topology.bundles.get((min(src, dst), max(src, dst)))
    if bundle is None:
        return (f"{src}>{dst}",)
    names = []
    for cable in bundle:
        ends = {node: f"{node}:{port}" for node, port in topology.cables[cable]}
        names.append(f"{ends[src]}>{ends[dst]}")
    return names


def _blame(measured: Measured, job: str, it: Iteration, usual_ns: int, links: Mapping[str, int]) -> Blamed:
    slower_ms = (it.length_ns - usual_ns) / 1e6
    begin = f"iteration {it.index} took {it.length_ns / 1e6:.1f} ms, {slower_ms:.1f} ms more than usual"
    during = [s for s in measured.samples if s.end_ns > it.start_ns and s.start_ns < it.end_ns]
    names, at = list(links), np.fromiter(links.values(), np.intp, len(links))
    if not during or not names:
        text = f"{begin}; no counters were read meanwhile; its slowest worker was on {it.host}"
        return Blamed(it, usual_ns, None, None, None, None, None, text)
    load = np.array([sample.load[at] for sample in during])
    marks = np.array([sample.marks[at] for sample in during])
    worst = max(range(len(names)), key=lambda n: (int(marks[:, n].max()), int(load[:, n].max()), names[n]))
    if marks[:, worst].max() <= 0:
        worst = max(range(len(names)), key=lambda n: (int(load[:, n].max()), names[n]))
    place = max(range(len(during)), key=lambda s: (int(marks[s, worst]), int(load[s, worst])))
    top_load, top_marks = int(load[place, worst]), int(marks[place, worst])
    if top_marks <= 0 and top_load < FULL_PER_CENT:
        text = f"{begin}; no link on its paths was full or marked packets: its worker on {it.host} was slow"
        return Blamed(it, usual_ns, None, None, None, None, None, text)
    moment = max(during[place].start_ns, it.start_ns), min(during[place].end_ns, it.end_ns)
    other = _other(measured, job, names[worst], moment)
    full = f"{top_load} % full" if top_load >= 0 else "of unknown load"
    whose = (
        f"while {other} communicated there too" if other else "while no other planned job communicated there"
    )
    text = f"{begin}: {names[worst]} was {full} and marked {max(0, top_marks)} packets, {whose}"
    return Blamed(
        it,
        usual_ns,
        names[worst],
        other,
        moment,
        top_load if top_load >= 0 else None,
        top_marks if top_marks >= 0 else None,
        text,
    )


def _other(measured: Measured, job: str, link: str, moment: tuple[int, int]) -> str | None:
    """The other job on a link that communicated longest in a moment; None: none did."""
    best: tuple[int, str] | None = None
    for name in sorted(measured.jobs.keys() - {job}):
        overlap = sum(
            _communicated(measured.jobs[name], it, moment) for it in measured.iterations.get(name, ())
        )
        if overlap > (best[0] if best else 0) and link in _links_of(measured, name):
            best = overlap, name
    return best[1] if best else None


def _communicated(job: Job, it: Iteration, moment: tuple[int, int]) -> int:
    """For how many ns of a moment a job communicated in an iteration.

    An iteration begins with its first Up phase. Its phases stand as in the profile; the last one ends later
    by what the workers communicated longer than the profile says.
    """
    if it.end_ns <= moment[0] or it.start_ns >= moment[1]:
        return 0
    phases = job.profile.phases
    if not phases:
        spans = [(0, it.communication_ns)]
    else:
        planned_ns = sum(p.end_ns - p.start_ns for p in phases)
        spans = [(p.start_ns, p.end_ns) for p in phases]
        spans[-1] = spans[-1][0], spans[-1][1] + max(0, it.communication_ns - planned_ns)
    overlaps = (
        min(it.start_ns + end, it.end_ns, moment[1]) - max(it.start_ns + begin, moment[0])
        for begin, end in spans
    )
    return sum(max(0, overlap) for overlap in overlaps)
