# SPDX-License-Identifier: Apache-2.0
"""Alignments and scores of links that were computed for earlier plans.

A change of one job changes the links of that job. The jobs on the others are as they were, so a plan asks
again for most of what the plan before has asked for. Each result follows from its arguments alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial

from controller.interleave.affinity import Alignment, LinkName, align
from controller.interleave.circle import SharedLink, random_score
from controller.interleave.link_sharing import SLOT_SCORE
from controller.interleave.rotate import rotate
from controller.model import Phase

_MOST = 4_096
"""How many results of each kind are kept, those used last. Chosen: the plans of a cluster of 2,000 GPUs need
a few hundred, and one takes some kilobytes."""

_Link = tuple[LinkName, int, tuple[tuple[str, tuple[Phase, ...]], ...]]
_Periods = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How shifts are searched, as in `rotate`."""

    slack: float
    seed: int
    nodes: int
    fast: bool


def known_align(links: Sequence[SharedLink], periods: Mapping[str, int], options: SearchOptions) -> Alignment:
    """`align` of the links, computed once. Callers must not change the result."""
    return _aligned(tuple(map(_parts, links)), tuple(periods.items()), options)


def known_fitting_shifts(
    links: Sequence[SharedLink], periods: Mapping[str, int], options: SearchOptions
) -> Mapping[str, int] | None:
    """Shifts (ns) at which all jobs fit on `links`, computed once whatever the names of the links are. None
    if no such shifts are found. Callers must not change the result."""
    parts = tuple(((str(n), ""), *_parts(link)[1:]) for n, link in enumerate(links))
    return _fitting(parts, tuple(periods.items()), options)


def known_random_score(link: SharedLink, periods: Mapping[str, int], *, slack: float) -> float:
    """`random_score` of the link without groups in step, computed once whatever its name is."""
    return _scored((("", ""), *_parts(link)[1:]), tuple((job, periods[job]) for job in link.demands), slack)


def _parts(link: SharedLink) -> _Link:
    return link.name, link.rate_bps, tuple(link.demands.items())


def _link(parts: _Link) -> SharedLink:
    name, rate_bps, demands = parts
    return SharedLink(name, rate_bps, dict(demands))


@lru_cache(_MOST)
def _aligned(links: tuple[_Link, ...], periods: _Periods, options: SearchOptions) -> Alignment:
    return align([_link(parts) for parts in links], dict(periods), **asdict(options))


@lru_cache(_MOST)
def _fitting(links: tuple[_Link, ...], periods: _Periods, options: SearchOptions) -> Mapping[str, int] | None:
    search = partial(rotate, [_link(parts) for parts in links], dict(periods), **asdict(options))
    most = (1 - SLOT_SCORE) * len(links)
    # Making gaps even takes longer than the search, so it is done only where all jobs fit.
    tried = search(widen=False)
    if tried.loss <= most:
        tried = search(start=tried.shifts)
    return tried.shifts if tried.loss <= most else None


@lru_cache(_MOST)
def _scored(link: _Link, periods: _Periods, slack: float) -> float:
    return random_score(_link(link), dict(periods), slack=slack)
