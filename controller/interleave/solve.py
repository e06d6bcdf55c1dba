# SPDX-License-Identifier: Apache-2.0
"""From links and jobs to shifts: quantised periods, circles and affinity graph, in one pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from controller.interleave.affinity import Alignment, LinkFit, Loop, align, components
from controller.interleave.angles import angle_count, demand_by_angle, rotation_deg
from controller.interleave.circle import Floats, SharedLink, perimeter, score
from controller.interleave.period import LONGEST, Quantised, choices, repeat_soon
from controller.interleave.rotate import FAST_NODES, rotate
from controller.interleave.search import EXACT_JOBS, places

MOST_EDGES = 400_000
"""The most edges of a circle. Chosen: bounds time and memory of one link."""
_PLAIN_NODES = 400
"""The sweeps of the plain exact search. Chosen: some seconds."""
_PLAIN_SECONDS = 8.0
"""If the plain search would take longer, the kernels are used. Chosen: compiling them takes as long."""
_FEW_LINKS = 8
"""Up to this many links the kernels try to prove what the plain search did not. Chosen: bounds the work."""
_BRANCHED_EDGES = 50_000_000
"""The edges that all exact searches of a part may sort. Chosen: some seconds."""
_TRIED_EDGES = 200_000
"""The edges that may be sorted while quantisations are tried. Chosen: about a second."""
_STARTS = 60
"""Further starts of the search on a part with loops. Chosen: with 40, one of 40 random graphs was worse
than coordinate ascent from ten starts."""
_FULL = 1 - 1e-9
"""A score that counts as 1, within rounding."""


class TooFineError(ValueError):
    """A circle would have more than MOST_EDGES edges; the text says which link and why."""


@dataclass(frozen=True, slots=True)
class Circle:
    """A link under the final shifts.

    `score` = 1 - mean excess / capacity, integrated exactly. `best_score` is the best of the link alone,
    `exact` if proven. `rotation_deg` is by job, on the circle of `perimeter_ns`. `demand_bps` is the demand
    at each angle step. Jobs that cannot fill the link together may have no common circle of a reasonable
    length: then `perimeter_ns` is 0, `rotation_deg` is empty and `demand_bps` is 0.
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
        """What the link loses because its jobs share other links too."""
        return max(0.0, self.best_score - self.score)

    @property
    def excess_bps(self) -> float:
        """The mean demand above the capacity."""
        return (1 - self.score) * self.link.rate_bps


@dataclass(frozen=True, slots=True)
class Interleaving:
    """`periods` and `shifts` in ns by job; `errors` is how much longer than its own each period is."""

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
    """Time-shifts for all jobs of `periods` (ns), so that the jobs share `links` in time.

    Periods that repeat together within 20 times the longest stay. Others are quantised, slightly longer, such
    that the scores are best; but not for a link that its jobs cannot fill together, whatever the shifts. The
    first job of each connected part, in the order of `periods`, has shift 0, and so do jobs that share no
    link. `fast` turns the kernels on or off. By default they are used where there is much to do, or where the
    plain search cannot prove its result. Raises TooFineError.
    """
    shared = [link for link in links if len(link.demands) > 1]
    patient = fast is None
    fast = _plain_seconds(shared, periods) > _PLAIN_SECONDS if fast is None else fast
    final = dict(periods)
    shifts = dict.fromkeys(periods, 0)
    errors = dict.fromkeys(periods, 0.0)
    fits: dict[tuple[str, str], LinkFit] = {}
    loops: list[Loop] = []
    for part in _parts(shared, periods):
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
        if not _can_fill(link) and link.demands and _edges(link, final) > MOST_EDGES:
            nothing = np.zeros(angle_count(step_deg))
            circles.append(Circle(link, 1.0, 1.0, True, 0, {}, nothing))
            continue
        around = perimeter([final[j] for j in link.demands]) if link.demands else 0
        _bound(link, final)
        got = score(link, final, shifts)
        fit = fits.get(link.name, LinkFit(link.name, tuple(link.demands), got, got, True))
        rotations = {j: rotation_deg(shifts[j], final[j], around) for j in link.demands}
        by_angle = demand_by_angle(link, final, shifts, step_deg)
        circles.append(Circle(link, got, max(got, fit.best_score), fit.exact, around, rotations, by_angle))
    return Interleaving(tuple(circles), final, shifts, errors, tuple(loops))


def _parts(links: Sequence[SharedLink], periods: Mapping[str, int]) -> list[list[SharedLink]]:
    """The connected parts of the affinity graph. A part whose periods must be quantised is without the links
    that never fill: no job gets a longer period for their sake."""
    found: list[list[SharedLink]] = []
    for part in components(links):
        soon = repeat_soon([[periods[j] for j in link.demands] for link in part])
        found += [part] if soon else components([link for link in part if _can_fill(link)])
    return found


def _can_fill(link: SharedLink) -> bool:
    """Whether several jobs of the link together may demand more than it carries."""
    peaks = [max((p.rate_bps for p in phases), default=0) for phases in link.demands.values()]
    return len(peaks) > 1 and sum(peaks) > link.rate_bps


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
    """An estimate of the time of the plain search: forty sweeps of each job on each link.

    Compiling the kernels takes about _PLAIN_SECONDS, once in the life of an installation. `exact`: `periods`
    are the final ones, and not those that may still be quantised.
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

    If `patient`, the kernels get what the plain search leaves unproven for few jobs.
    """
    own = list(periods.values())
    if repeat_soon([[periods[j] for j in link.demands] for link in part]):
        chosen = Quantised(tuple(own), perimeter(own))
    else:
        chosen = _choose(part, periods, seed, fast)
    named = dict(zip(periods, chosen.periods, strict=True))
    for link in part:
        _bound(link, named)
    # Quantised short periods may have far longer circles than the original ones.
    if fast or (patient and _plain_seconds(part, named, exact=True) > _PLAIN_SECONDS):
        return chosen, align(part, named, seed=seed, nodes=_nodes(part, named), fast=True, starts=_STARTS)
    found = align(part, named, seed=seed, nodes=_PLAIN_NODES, starts=_STARTS)
    unproven = any(not f.exact and len(f.jobs) <= EXACT_JOBS for f in found.links)
    if patient and unproven and len(part) <= _FEW_LINKS:
        found = align(part, named, seed=seed, nodes=_nodes(part, named), fast=True, starts=_STARTS)
    return chosen, found


def _nodes(part: Sequence[SharedLink], periods: Mapping[str, int]) -> int:
    """The number of sweeps for each exact search, such that all together sort _BRANCHED_EDGES edges."""
    edges = [_edges(link, periods) for link in part]
    return max(_PLAIN_NODES // 2, min(FAST_NODES, _BRANCHED_EDGES // (4 * sum(edges) + 1)))


def _choose(part: Sequence[SharedLink], periods: Mapping[str, int], seed: int, fast: bool) -> Quantised:
    """The quantisation that loses least: the mean loss of the links' scores plus the largest increase of a
    period.

    Both are fractions of time. Scores are of each link alone. As many candidates are tried as the work
    allows.
    """
    best: tuple[float, Quantised] | None = None
    edges_sorted = 0
    for choice in choices(list(periods.values())):
        named = dict(zip(periods, choice.periods, strict=True))
        stretch = max(choice.errors(list(periods.values())))
        if best is not None and (stretch >= best[0] or edges_sorted > _TRIED_EDGES):
            break
        edges = sum(_edges(link, named) * len(link.demands) for link in part)
        edges_sorted += edges
        if best is not None and edges_sorted > _TRIED_EDGES:
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
