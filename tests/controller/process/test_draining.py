# SPDX-License-Identifier: Apache-2.0
"""Drains: what is refused, what the tables and the plan do meanwhile, and what a restart keeps."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from bundles_rig import bundled
from control_rig import job
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.live.core import Core
from controller.live.drained import Drained
from controller.live.earlier_state import restore
from controller.live.messages import PortsSeen, WorkerJoined
from controller.live.operator_commands import DrainSet
from controller.live.saved_state import SavedState, read_back
from controller.live.settings import CoreSettings
from controller.northbound.problems import OperationError
from controller.planner import POLICIES, plan
from controller.process.draining import RunningDrains, flows_cut_off
from controller.routing.forwarding import forwarding
from controller.routing.paths import members
from controller.southbound.table_writes import FabricCondition
from controller.store.interface import LoadedState
from controller.store.records import encode
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=10**8, fabric_bps=10**8)
A = job("a", "h1", "h3")


class Here:
    """A worker in this process."""

    async def run(self, function, *args):
        return function(*args)


def new_core(topology=TOPOLOGY, jobs=()):
    core = Core(CoreSettings(topology, POLICIES["polyrhythm"], 1, verify=False, elephant_bytes=0))
    for member in jobs:
        for rank, host in enumerate(member.hosts):
            core.handle(WorkerJoined(host, rank, member))
    return core


def drains_of(core):
    return RunningDrains(core, core.handle, Here())


def states(drains):
    return {found.name: found.done for found in drains.drained()}


def test_a_drained_spine_is_avoided_by_tables_and_plan_and_comes_back() -> None:
    core = new_core(jobs=(A,))
    core.adopt(plan(core.plan_input()))
    drains = drains_of(core)
    made = asyncio.run(drains.drain("switch", "spine1", cut_off=False))
    assert (made.name, made.done, states(drains)) == ("spine1", False, {"spine1": False})
    assert core.wants_tables
    condition = core.take_condition()
    assert condition == FabricCondition(
        down_switches=frozenset({"spine1"}), drained_switches=frozenset({"spine1"})
    )
    assert states(drains) == {"spine1": False}, "the plan still leads over it"
    core.adopt(plan(core.plan_input()))
    assert all("spine1" not in flow.path for flow in core.plan.flows.values())
    assert states(drains) == {"spine1": True}
    drains.undrain("switch", "spine1")
    assert core.wants_tables
    assert core.take_condition() == FabricCondition()
    assert states(drains) == {}


def test_what_present_jobs_need_is_not_drained_unless_it_is_meant() -> None:
    core = new_core(jobs=(A, job("b", "h2", "h4")))
    drains = drains_of(core)
    asyncio.run(drains.drain("switch", "spine1", cut_off=False))
    for part, name in (("switch", "spine2"), ("link", "spine2-leaf1"), ("switch", "leaf2")):
        with pytest.raises(OperationError, match="4 flows of present jobs would have no path left, a/h1>h3"):
            asyncio.run(drains.drain(part, name, cut_off=False))
    assert states(drains) == {"spine1": False}
    made = asyncio.run(drains.drain("link", "spine2-leaf1", cut_off=True))
    assert made.name == "leaf1-spine2"
    assert states(drains) == {"spine1": False, "leaf1-spine2": False}


def test_without_jobs_the_tables_alone_decide_when_it_is_done() -> None:
    core = new_core()
    drains = drains_of(core)
    asyncio.run(drains.drain("switch", "leaf1", cut_off=False))
    assert states(drains) == {"leaf1": False}
    core.take_condition()
    assert states(drains) == {"leaf1": True}


def test_flows_that_have_no_path_anyway_do_not_hinder_a_drain() -> None:
    spine1, both = frozenset({"spine1"}), frozenset({"spine1", "spine2"})
    down = frozenset({("leaf1", "spine2")})
    cut = flows_cut_off(TOPOLOGY, (A,), FabricCondition(), FabricCondition(down, spine1))
    assert cut == (2, "a/h1>h3")
    assert flows_cut_off(TOPOLOGY, (A,), FabricCondition(down, spine1), FabricCondition(down, both)) is None
    within = job("w", "h1", "h2")
    leaf = FabricCondition(down_switches=frozenset({"leaf1"}))
    assert flows_cut_off(TOPOLOGY, (within,), FabricCondition(), leaf) == (2, "w/h1>h2")


@pytest.mark.parametrize(
    ("part", "name", "says"),
    [
        ("switch", "spine9", "no switch 'spine9'; legal: a switch, as leaf1"),
        ("switch", "leaf1-spine1", "no switch 'leaf1-spine1'"),
        ("link", "spine1", "no link 'spine1'; legal: the cable of two switches, as leaf1-spine1"),
        ("link", "h1-leaf1", "no link 'h1-leaf1'"),
        ("link", "", "no link ''"),
    ],
)
def test_what_the_fabric_has_not_is_not_found(part, name, says) -> None:
    drains = drains_of(new_core())
    with pytest.raises(OperationError, match=says) as caught:
        asyncio.run(drains.drain(part, name, cut_off=False))
    assert caught.value.code == 404
    with pytest.raises(OperationError):
        drains.undrain(part, name)


def test_what_is_not_drained_is_not_undrained() -> None:
    with pytest.raises(OperationError, match="spine1 is not drained"):
        drains_of(new_core()).undrain("switch", "spine1")


def test_a_bundle_is_drained_by_one_name_or_cable_by_cable() -> None:
    fabric = bundled(TOPOLOGY, 2)
    core = new_core(fabric)
    drains = drains_of(core)
    asyncio.run(drains.drain("link", "leaf1-spine1", cut_off=False))
    assert set(states(drains)) == {"leaf1:3-spine1:1", "leaf1:5-spine1:3"}
    drains.undrain("link", "leaf1:3-spine1:1")
    assert set(states(drains)) == {"leaf1:5-spine1:3"}


def test_a_drained_link_that_fails_counts_as_failed() -> None:
    core = new_core()
    cable = ("leaf1", "spine1")
    core.handle(DrainSet(Drained(links=frozenset({cable}))))
    assert core.links.condition.failed == (frozenset(), frozenset())
    port = next(p for p, peer in TOPOLOGY.ports["leaf1"].items() if peer.node == "spine1")
    core.handle(PortsSeen("leaf1", {port: False}))
    assert core.links.condition == FabricCondition(frozenset({cable}))
    core.handle(PortsSeen("leaf1", {port: True}))
    assert core.links.condition.drained_links == {cable}


def test_drains_outlast_a_restart_and_a_fabric_that_lost_the_part() -> None:
    core = new_core()
    saved = SavedState(core, "boot")
    core.handle(DrainSet(Drained(frozenset({("leaf1", "spine2")}), frozenset({"spine1"}))))
    core.take_condition()
    records = {}
    for (kind, key), value in saved.change(None).records.items():
        records.setdefault(kind, {})[key] = encode(value)
    earlier = read_back(LoadedState(records), None, "boot")
    later = new_core()
    restore(later, earlier)
    assert later.links.drained == core.links.drained
    assert hash(later.links.condition) == hash(core.links.condition)
    assert ("leaf1", 4) not in later.links.down_ports, "it is drained, and not down"
    assert not later.wants_tables
    later.handle(DrainSet(Drained()))
    assert later.links.condition == FabricCondition()
    smaller = new_core(leaf_spine(2, 1, 2, host_bps=10**8, fabric_bps=10**8))
    restore(smaller, replace(earlier, condition=FabricCondition()))
    assert smaller.links.drained == Drained(switches=frozenset({"spine1"}))


PARTS = (*TOPOLOGY.switch, *(tuple(sorted((link.a, link.b))) for link in TOPOLOGY.links))


@settings(max_examples=60, deadline=None)
@given(st.sets(st.sampled_from(PARTS)), st.sets(st.sampled_from(PARTS)))
def test_a_drain_loses_nothing_and_makes_no_loop(drained, failed) -> None:
    """From every leaf every other leaf is reached over what works, whatever is drained."""

    def split(parts):
        return frozenset(p for p in parts if isinstance(p, tuple)), frozenset(
            p for p in parts if isinstance(p, str)
        )

    condition = Drained(*split(drained)).beside(*split(failed))
    now = forwarding(
        TOPOLOGY,
        condition.down_links,
        condition.down_switches,
        condition.drained_links,
        condition.drained_switches,
    )
    without_drains = forwarding(TOPOLOGY, *condition.failed)
    for src in TOPOLOGY.prefixes:
        for dst in TOPOLOGY.prefixes:
            if src == dst:
                continue
            prefix = TOPOLOGY.prefixes[dst]
            assert (prefix in now[src].routes) == (prefix in without_drains[src].routes)
            at = {src}
            for _ in range(6):
                routes = [(s, now[s].routes[prefix]) for s in at if s != dst and prefix in now[s].routes]
                at = {TOPOLOGY.ports[s][p].node for s, r in routes for p in members(now, s, r)}
            assert not at - {dst}, "packets still move after six hops"
