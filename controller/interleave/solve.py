# SPDX-License-Identifier: Apache-2.0
"""From links and jobs to shifts: quantised periods, circles, affinity graph, in one pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from controller.interleave.affinity import Alignment, LinkFit, Loop, align, components
from controller.interleave.angles import demand_by_angle, rotation_deg
from controller.interleave.circle import Floats, SharedLink, perimeter, score
from controller.interleave.period import LONGEST, Quantised, choices, repeat_soon
from controller.interleave.rotate import FAST_NODES, rotate
from controller.interleave.search import EXACT_JOBS, places

MOST_EDGES = 400_000
_PLAIN_NODES = 400
_PLAIN_SECONDS = 8.0
_FEW_LINKS = 8
_BRANCHED_EDGES = 50_000_000
_TRIED_EDGES = 200_000
_FULL = 1 - 1e-9


class TooFineError(ValueError):
    """A circle would have more than MOST_EDGES edges; says which link and why."""


@dataclass(frozen=True, slots=True)
class Circle:
    """A link under the final shifts.

    `score` = 1 - mean excess / capacity, integrated exactly; `best_score` is what the link could have
    alone, `exact` if proven; `rotation_deg` by job on the circle of `perimeter_ns`; `demand_bps` at each
    angle step; `excess_bps` the mean demand above capacity.
    """

    link: SharedLink
    score: float
    best_score: float
    exact: bool
    perimeter_ns: int
    rotation_deg: Mapping[str, float]
    demand_bps: Floats

    @property
    def loss(self) -> float:
        """What the link gives up for the others' sake."""
        return max(0.0, self.best_score - self.score)

    @property
    def excess_bps(self) -> float:
        """The mean demand above capacity."""
        return (1 - self.score) * self.link.rate_bps


@dataclass(frozen=True, slots=True)
class Interleaving:
    """`periods` and `shifts` in ns by job; `errors` how much longer than its own each period is."""

    circles: tuple[Circle, ...]
    periods: Mapping[str, int]
    shifts: Mapping[str, int]
    errors: Mapping[str, float]
    loops: tuple[Loop, ...]


def interleave(
    links: Sequence[SharedLink],
    periods: Mapping[str, int],
    *,
    step_deg: float = 5.0,
    seed: int = 0,
    fast: bool | None = None,
) -> Interleaving:
    """Shifts for all jobs of `periods` (ns), so that those that share `links` take turns.

    Periods that repeat together within 20 of the longest stay; others are quantised, at most a little
    longer, as suits the scores best. The first job of each connected part, in the order of `periods`,
    has shift 0; jobs that share no link, too. `fast` takes or leaves the kernels; by default they are taken
    where there is much to do, or where the plain search cannot prove what it found. Raises TooFineError.
    """
    shared = [link for link in links if len(link.demands) > 1]
    patient = fast is None
    fast = _plain_seconds(shared, periods) > _PLAIN_SECONDS if fast is None else fast
    final = dict(periods)
    shifts = dict.fromkeys(periods, 0)
    errors = dict.fromkeys(periods, 0.0)
    fits: dict[tuple[str, str], LinkFit] = {}
    loops: list[Loop] = []
    for part in components(shared):
        jobs = [j for j in periods if any(j in link.demands for link in part)]
        quantised, found = _part(part, {j: periods[j] for j in jobs}, seed, fast, patient)
        origin = found.shifts[jobs[0]]
        for job, period, error in zip(
            jobs, quantised.periods, quantised.errors([periods[j] for j in jobs]), strict=True
        ):
            final[job], errors[job] = period, error
            shifts[job] = (found.shifts[job] - origin) % period
        fits |= {fit.link: fit for fit in found.links}
        loops += found.loops
    circles = []
    for link in links:
        around = perimeter([final[j] for j in link.demands]) if link.demands else 0
        _bound(link, final)
        got = score(link, final, shifts)
        fit = fits.get(link.name, LinkFit(link.name, tuple(link.demands), got, got, True))
        turns = {j: rotation_deg(shifts[j], final[j], around) for j in link.demands}
        by_angle = demand_by_angle(link, final, shifts, step_deg)
        circles.append(Circle(link, got, max(got, fit.best_score), fit.exact, around, turns, by_angle))
    return Interleaving(tuple(circles), final, shifts, errors, tuple(loops))


def _edges(link: SharedLink, periods: Mapping[str, int]) -> int:
    around = perimeter([periods[j] for j in link.demands])
    return sum(2 * len(phases) * (around // periods[j]) for j, phases in link.demands.items())


def _bound(link: SharedLink, periods: Mapping[str, int]) -> None:
    edges = _edges(link, periods)
    if edges > MOST_EDGES:
        short, long = (f(link.demands, key=periods.__getitem__) for f in (min, max))
        raise TooFineError(
            f"link {link.name[0]}: its circle would have {edges:,} edges, and {MOST_EDGES:,} are the most: "
            f"{long} repeats every {periods[long] / 1e6:g} ms, {short} every {periods[short] / 1e6:g} ms"
        )


def _plain_seconds(links: Sequence[SharedLink], periods: Mapping[str, int], exact: bool = False) -> float:
    """About how long the plain search takes: forty sweeps of each job on each link.

    Compiling the kernels, once in the life of an installation, takes as long as _PLAIN_SECONDS.
    `exact`: these are the periods that will be, else those that may yet be quantised.
    """
    total = 0.0
    for link in links:
        own = [periods[j] for j in link.demands]
        around = min(perimeter(own), LONGEST * max(own))
        edges = sum(2 * len(phases) * (around // periods[j]) for j, phases in link.demands.items())
        total += 40 * (len(own) * (3e-4 + 1.5e-6 * edges) + (1e-8 * places(link, periods) if exact else 0))
    return total


def _part(
    part: Sequence[SharedLink], periods: Mapping[str, int], seed: int, fast: bool, patient: bool
) -> tuple[Quantised, Alignment]:
    """Periods and shifts of one connected part of the affinity graph.

    If `patient`, what the plain search leaves unproven for few jobs is given to the kernels.
    """
    own = list(periods.values())
    if repeat_soon([[periods[j] for j in link.demands] for link in part]):
        chosen = Quantised(tuple(own), perimeter(own))
    else:
        chosen = _choose(part, periods, seed, fast)
    named = dict(zip(periods, chosen.periods, strict=True))
    for link in part:
        _bound(link, named)
    # Quantised periods may make far longer circles of short periods than they had by themselves.
    if fast or (patient and _plain_seconds(part, named, exact=True) > _PLAIN_SECONDS):
        return chosen, align(part, named, seed=seed, nodes=_nodes(part, named), fast=True)
    found = align(part, named, seed=seed, nodes=_PLAIN_NODES)
    unproven = any(not f.exact and len(f.jobs) <= EXACT_JOBS for f in found.links)
    if patient and unproven and len(part) <= _FEW_LINKS:
        found = align(part, named, seed=seed, nodes=_nodes(part, named), fast=True)
    return chosen, found


def _nodes(part: Sequence[SharedLink], periods: Mapping[str, int]) -> int:
    """The sweeps that each exact search may take, so that all together sort _BRANCHED_EDGES."""
    edges = [_edges(link, periods) for link in part]
    return max(_PLAIN_NODES // 2, min(FAST_NODES, _BRANCHED_EDGES // (4 * sum(edges) + 1)))


def _choose(part: Sequence[SharedLink], periods: Mapping[str, int], seed: int, fast: bool) -> Quantised:
    """The quantisation that loses least: mean loss of the links' scores plus the longest stretch.

    Both are parts of time lost. Scores are of each link alone; as many choices are tried as the work allows.
    """
    best: tuple[float, Quantised] | None = None
    spent = 0
    for choice in choices(list(periods.values())):
        named = dict(zip(periods, choice.periods, strict=True))
        stretch = max(choice.errors(list(periods.values())))
        if best is not None and (stretch >= best[0] or spent > _TRIED_EDGES):
            break
        edges = sum(_edges(link, named) * len(link.demands) for link in part)
        spent += edges
        if best is not None and spent > _TRIED_EDGES:
            continue
        scores = [
            1 - rotate([link], named, seed=seed, nodes=0, fast=fast, widen=False).loss
            if edges <= _TRIED_EDGES
            else 0.0
            for link in part
        ]
        cost = 1 - fmean(scores) + stretch
        if best is None or cost < best[0] - 1e-12:
            best = cost, choice
        if scores and min(scores) >= _FULL:
            break
    if best is None:
        raise ValueError("no periods to choose from")
    return best[1]
