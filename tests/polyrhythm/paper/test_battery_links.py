# SPDX-License-Identifier: Apache-2.0
"""Contended links and loops of the affinity graph, on graphs that are drawn by hand."""

from __future__ import annotations

from polyrhythm.paper.battery_links import RoutedFlow, contended_links, has_loop

RATES = {("h1", "leaf1"): 50.0, ("h2", "leaf1"): 50.0, ("leaf1", "spine1"): 75.0, ("leaf1", "spine2"): 100.0}


def flow(job: str, host: str, spine: str, gbps: float = 50.0) -> RoutedFlow:
    return RoutedFlow(job, (host, "leaf1", spine), gbps)


def test_a_link_is_contended_if_two_jobs_fill_it() -> None:
    on_one = [flow("a", "h1", "spine1"), flow("b", "h2", "spine1")]
    assert contended_links(on_one, RATES) == {("leaf1", "spine1"): frozenset("ab")}
    # A cable of 100 carries both; 30 and 40 fit into 75.
    assert contended_links([flow("a", "h1", "spine2"), flow("b", "h2", "spine2")], RATES) == {}
    assert contended_links([flow("a", "h1", "spine1", 30), flow("b", "h2", "spine1", 40)], RATES) == {}
    # A job does not contend with itself.
    assert contended_links([flow("a", "h1", "spine1"), flow("a", "h2", "spine1")], RATES) == {}
    # The NIC of a host that two jobs share.
    shared = [flow("a", "h1", "spine1", 40), flow("b", "h1", "spine2", 40)]
    assert contended_links(shared, RATES) == {("h1", "leaf1"): frozenset("ab")}


def test_loops() -> None:
    def loop(*links: str) -> bool:
        return has_loop(map(frozenset, links))

    assert not loop()
    assert not loop("ab", "bc", "cd")
    assert not loop("abc", "cd")
    assert loop("ab", "bc", "ca")
    assert loop("abc", "ab")
    # Links with the same jobs need the same time-shift: no loop.
    assert not loop("ab", "ab", "bc")
