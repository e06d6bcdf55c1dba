# SPDX-License-Identifier: Apache-2.0
"""Alignments that are kept: equal to those that are computed, whatever was asked for before."""

from hypothesis import given
from hypothesis import strategies as st

from controller.interleave.affinity import align
from controller.interleave.circle import SharedLink, random_score, score
from controller.interleave.known_alignments import (
    SearchOptions,
    known_align,
    known_fitting_shifts,
    known_random_score,
)
from controller.interleave.link_sharing import SLOT_SCORE
from controller.model import Phase

GBPS = 10**9
MS = 1_000_000


@st.composite
def parts(draw: st.DrawFn) -> tuple[list[SharedLink], dict[str, int]]:
    """Links of few shapes, so that many are asked for again, with a difference in one place."""
    jobs = draw(st.lists(st.sampled_from("abc"), min_size=2, max_size=3, unique=True))
    periods = {job: draw(st.sampled_from([100, 200])) * MS for job in jobs}
    links = []
    for n in range(draw(st.integers(1, 2))):
        demands = {}
        for job in draw(st.permutations(jobs)):
            up = draw(st.sampled_from([30, 60])) * MS
            demands[job] = (Phase(0, up, draw(st.sampled_from([25, 50])) * GBPS),)
        links.append(SharedLink((f"leaf{n}", "spine1"), draw(st.sampled_from([50, 100])) * GBPS, demands))
    return links, periods


@given(parts(), st.sampled_from([0.0, 0.05]), st.integers(0, 1), st.sampled_from([0, 60]))
def test_a_kept_alignment_is_the_computed_one(
    part: tuple[list[SharedLink], dict[str, int]], slack: float, seed: int, nodes: int
) -> None:
    links, periods = part
    computed = align(links, periods, slack=slack, seed=seed, nodes=nodes)
    for _ in range(2):
        assert known_align(links, periods, SearchOptions(slack, seed, nodes, fast=False)) == computed
    for link in links:
        score = random_score(link, periods, slack=slack)
        assert known_random_score(link, periods, slack=slack) == score
        # Periods of jobs on other links make no difference.
        assert known_random_score(link, {**periods, "d": 7}, slack=slack) == score


@given(parts(), st.integers(0, 1))
def test_kept_shifts_fit_whatever_the_links_are_called(
    part: tuple[list[SharedLink], dict[str, int]], seed: int
) -> None:
    links, periods = part
    other = [SharedLink(("x", str(n)), k.rate_bps, k.demands) for n, k in enumerate(links)]
    found = [
        known_fitting_shifts(named, periods, SearchOptions(0.05, seed, 60, fast=False))
        for named in (links, other)
    ]
    assert found[0] == found[1]
    for shifts in (shifts for shifts in found if shifts is not None):
        lost = sum(1 - score(link, periods, shifts, slack=0.05) for link in links)
        assert lost <= (1 - SLOT_SCORE) * len(links) + 1e-9
