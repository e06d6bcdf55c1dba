# SPDX-License-Identifier: Apache-2.0
"""Loads by direction of each cable: parallel ones each their own, hosts' from reports, the rest unknown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fake_source import view

from controller.live.host_uplinks import HostUplinks
from controller.live.link_loads import LinkLoads
from controller.live.messages import IterationReport
from controller.live.notices import IterationDone, JobLeft
from controller.model.job import Job, Profile
from controller.model.view import ColumnarLinks
from controller.northbound.stream_state import StreamFabric
from topo.generate import leaf_spine
from topo.graph import Link

MS = 1_000_000
SMALL = leaf_spine(2, 1, 1, host_bps=1_000_000_000, fabric_bps=1_000_000_000)
# A second cable beside leaf1-spine1.
TWICE = replace(SMALL, links=(*SMALL.links, Link("leaf1", 9, "spine1", 9, 1_000_000_000)))


def report(host: str, sent: int, communicated: int = 50 * MS, job: str = "a") -> IterationReport:
    return IterationReport(host, job, 0, 1, 0, 100 * MS, communicated, sent, 0, 0, 0)


def test_parallel_cables_have_loads_of_their_own_and_what_was_not_read_has_none() -> None:
    first = next(k for k in SMALL.links if (k.a, k.b) == ("leaf1", "spine1"))
    measured = {("leaf1", first.a_port): (0.25, 3), ("leaf1", 9): (0.0, 0)}
    loads = {(k.src, k.src_port): k for k in LinkLoads(TWICE, measured, down=frozenset({("spine1", 9)}))}
    assert loads["leaf1", first.a_port].load == 0.25
    assert loads["leaf1", first.a_port].rate_bps == 250_000_000
    assert (loads["leaf1", 9].load, loads["leaf1", 9].up) == (0.0, False), "one end is down"
    assert loads["spine1", 9].load is None
    assert loads["spine1", 9].marks is None
    assert loads["spine1", 9].rate_bps is None
    assert len(loads) == len(LinkLoads(TWICE)) == 2 * len(TWICE.links) + 2 * len(TWICE.hosts)


def test_what_a_host_sends_is_known_from_its_workers_until_they_are_silent() -> None:
    uplinks = HostUplinks()
    uplinks.noticed(IterationDone(0, report("h1", 1_000_000)))
    uplinks.noticed(IterationDone(0, report("h2", 0)))
    assert uplinks.rates(100 * MS) == {"h1": 80_000_000.0}, "h2 communicates, and does not count bytes"
    uplinks.noticed(IterationDone(0, report("h2", 0, communicated=0)))
    assert uplinks.rates(100 * MS) == {"h1": 80_000_000.0, "h2": 0.0}
    uplinks.noticed(IterationDone(0, report("h1", 1_000_000, job="b")))
    assert uplinks.rates(100 * MS)["h1"] == 160_000_000.0
    loads = {(k.src, k.dst): k for k in LinkLoads(SMALL, uplinks=uplinks.rates(100 * MS))}
    assert (loads["h1", "leaf1"].load, loads["h1", "leaf1"].marks) == (0.16, None)
    left = Job("b", "m", 1, ("h1",), Profile(1, ()), 0.0, ())
    uplinks.noticed(JobLeft(0, left))
    assert uplinks.rates(100 * MS)["h1"] == 80_000_000.0
    assert uplinks.rates(10_000 * MS) == {}


@pytest.mark.parametrize("seed", range(8))
def test_columns_say_the_same_as_the_links_one_by_one(seed: int) -> None:
    """Also as the event stream shows them, which takes either."""
    draw = np.random.default_rng(seed)
    ends = [(name, port) for name, ports in TWICE.ports.items() for port in ports]
    hosts = [host.name for host in TWICE.hosts]
    figures = np.full((2, len(ends)), np.nan)
    measured = {end: (float(draw.random()), int(draw.integers(0, 9))) for end in ends if draw.random() < 0.6}
    for end, found in measured.items():
        figures[:, ends.index(end)] = found
    loads = LinkLoads(
        TWICE,
        measured,
        frozenset(end for end in ends if draw.random() < 0.2),
        {host: float(draw.random() * 2e9) for host in hosts if draw.random() < 0.6},
        {end: int(draw.integers(0, 99)) for end in ends if draw.random() < 0.4},
    )
    for columnar in (loads, replace(loads, figures=figures)):
        columns = columnar.columns()
        assert isinstance(columnar, ColumnarLinks)
        for number, link in enumerate(columnar):
            assert columns.load[number] == pytest.approx(
                link.load if link.load is not None else np.nan, nan_ok=True
            )
            assert columns.marks[number] == pytest.approx(
                link.marks if link.marks is not None else np.nan, nan_ok=True
            )
            assert columns.queue_packets[number] == (-1 if link.queue_packets is None else link.queue_packets)
            assert columns.up[number] == link.up
            assert columnar.at((link.src, link.src_port)) == link
        stream = StreamFabric(TWICE)
        shown = replace(view(0), topology=TWICE, links=columnar, jobs=(), plan=None)
        one_by_one = replace(shown, links=tuple(columnar))
        assert (stream.state(shown).links == stream.state(one_by_one).links).all()
        assert stream.state(shown).tables == stream.state(one_by_one).tables
