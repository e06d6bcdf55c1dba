# SPDX-License-Identifier: Apache-2.0
"""Ranks candidate placements of a new job by how well it can share links in time (CASSINI, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from controller.interleave.link_sharing import SLACK, contended
from controller.interleave.solve import TooFineError, interleave
from controller.interleave.timing import Cassini
from controller.model import Job
from controller.placement.advice import JobPlace, job_place
from controller.planner.demand import Demands
from controller.planner.inputs import DirectedLink, PlanInput, check
from controller.planner.routing_stage import route_flows
from controller.routing.routings import Ecmp

MOST = 64
"""The most candidates of one question. Chosen: six times what a scheduler with auctions offers for a job."""


@dataclass(frozen=True, slots=True)
class LinkScore:
    """A full link that several jobs would share.

    `score` is its compatibility score under the shifts of the whole placement, `best_score` that of the link
    alone. They differ where the affinity graph has loops.
    """

    link: DirectedLink
    jobs: tuple[str, ...]
    score: float
    best_score: float


@dataclass(frozen=True, slots=True)
class Compatibility:
    """How well jobs on given hosts can share links in time.

    `score` is the mean score of `links`, 1 if there are none, and 0 if the links' circles are too fine to be
    judged (`too_fine` says why). `lost` is the part of it that is lost because of `loops`, the number of
    loops in the affinity graph. `cut_off` are the flows without a path.
    """

    score: float
    lost: float
    loops: int
    links: tuple[LinkScore, ...]
    cut_off: tuple[str, ...]
    too_fine: str = ""


@dataclass(frozen=True, slots=True)
class RankedPlacement:
    """One candidate placement, judged.

    `index` is its position in the list of candidates. `compatibility` is the mean score of `links`, 1 if
    there are none, and 0 if the links' circles are too fine to be judged. `lost` is the part of it that is
    lost because the affinity graph has loops (`loops`). `cut_off` are the flows of the job without a path.
    `why` says it in words. `place` is where the job's GPUs would be.
    """

    index: int
    job: Job
    compatibility: float
    lost: float
    loops: bool
    links: tuple[LinkScore, ...]
    cut_off: tuple[str, ...]
    why: str
    place: JobPlace


Mapper = Callable[
    [Callable[[tuple[int, Job]], RankedPlacement], Iterable[tuple[int, Job]]], Iterable[RankedPlacement]
]
"""Calls a function for each candidate, as `map` does; an executor's `map` does it in parallel."""


def rank_placements(
    inputs: PlanInput, candidates: Sequence[Job], *, loops: bool = True, mapper: Mapper = map
) -> list[RankedPlacement]:
    """Rank the candidates for one new job, most compatible first; equally compatible ones in their order.

    Each candidate is the new job with its hosts and flows. `inputs` holds the jobs that run already. Paths
    are what the policy of `inputs` chooses for these jobs and the candidate. Candidates with flows that have
    no path come last. `loops` False leaves out candidates with a loop in the affinity graph, as the thesis
    does. The order does not depend on `mapper`.

    Raises:
        ValueError: no candidate, more than MOST, or a job that the fabric cannot have; the message says why.
    """
    if not 1 <= len(candidates) <= MOST:
        raise ValueError(f"{len(candidates)} candidates; legal: 1 to {MOST}")
    judged = list(mapper(partial(_judged, inputs), enumerate(candidates)))
    return ranked(judged, loops=loops)


def ranked(judged: Iterable[RankedPlacement], *, loops: bool = True) -> list[RankedPlacement]:
    """Judged candidates in the order of `rank_placements`."""
    kept = [p for p in judged if loops or not p.loops]
    return sorted(kept, key=lambda p: (bool(p.cut_off), -round(p.compatibility, 9), p.index))


def judge(inputs: PlanInput, index: int, candidate: Job) -> RankedPlacement:
    """Judge one candidate beside the jobs of `inputs`.

    Raises:
        ValueError: a job that the fabric cannot have; the message says why.
    """
    tried = replace(inputs, jobs=(*inputs.jobs, candidate))
    check(tried)
    place = job_place(inputs.topology, candidate.hosts, candidate.gpus)
    found = compatibility(tried)
    own = {f.name for f in candidate.flows}
    cut_off = tuple(name for name in found.cut_off if name in own)
    return RankedPlacement(
        index,
        candidate,
        found.score,
        found.lost,
        bool(found.loops),
        found.links,
        cut_off,
        found.too_fine or _why(candidate, found, cut_off),
        place,
    )


def compatibility(inputs: PlanInput) -> Compatibility:
    """How well the jobs of `inputs` can share links in time, on the paths that its policy chooses, or those
    that ECMP would take (thesis, Algorithm 2, lines 3 to 23)."""
    policy = inputs.policy
    if isinstance(policy.routing, Ecmp) and not policy.depends_on_jobs:
        # A plan of this policy needs no paths, so the stage would not draw them.
        inputs = replace(inputs, policy=replace(policy, timing=Cassini()))
    demands = Demands(inputs)
    stage = route_flows(demands)
    cut_off = tuple(name for name, a in stage.assignments.items() if a.path is None)
    shared = [k for k in stage.shared if contended(k, SLACK)]
    sharing = dict.fromkeys(job for k in shared for job in k.demands)
    periods = {name: demands.profiles[name].period_ns for name in sharing}
    try:
        found = interleave(shared, periods, seed=inputs.seed)
    except TooFineError as error:
        return Compatibility(0.0, 0.0, 0, (), cut_off, str(error))
    links = tuple(LinkScore(c.link.name, tuple(c.link.demands), c.score, c.best_score) for c in found.circles)
    if not links:
        return Compatibility(1.0, 0.0, len(found.loops), (), cut_off)
    lost = fmean(c.loss for c in found.circles)
    return Compatibility(fmean(k.score for k in links), lost, len(found.loops), links, cut_off)


def most_compatible(judged: Sequence[Compatibility]) -> int:
    """The index of the candidate that Algorithm 2 takes: without a loop, with the fewest flows cut off, then
    with the highest score, then the first. If every candidate has a loop it is the first."""
    usable = [i for i, found in enumerate(judged) if not found.loops]
    return min(usable, key=lambda i: (len(judged[i].cut_off), -round(judged[i].score, 9), i), default=0)


def _judged(inputs: PlanInput, numbered: tuple[int, Job]) -> RankedPlacement:
    return judge(inputs, *numbered)


def _why(candidate: Job, found: Compatibility, cut_off: Sequence[str]) -> str:
    words, links = [], found.links
    if cut_off:
        words.append(f"{len(cut_off)} of its {len(candidate.flows)} flows have no path, {cut_off[0]} first")
    if not links:
        words.append("no link would carry more than its rate")
    else:
        worst = min(links, key=lambda k: (round(k.score, 9), k.link))
        others = ", ".join(worst.jobs)
        if worst.score >= 1 - 1e-9:
            words.append(f"on all of {len(links)} full links the jobs take turns without excess")
        else:
            lost = 100 * (1 - worst.score)
            words.append(
                f"of {len(links)} full links {'-'.join(worst.link)} is the worst: {others} together exceed "
                f"it by {lost:.1f} % of its rate on average"
            )
    if found.loops:
        count = found.loops
        loops = (
            "a loop in the affinity graph makes"
            if count == 1
            else f"{count} loops in the affinity graph make"
        )
        words.append(f"{loops} their shifts a compromise")
    return "; ".join(words)
