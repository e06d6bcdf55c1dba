# SPDX-License-Identifier: Apache-2.0
"""Answers to single failures: valid by the switches' own tables, and as good as routing anew where they can be."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from routing_rig import clos, host_pairs, worst

from controller.routing.algorithms import auto, congestion, solve
from controller.routing.algorithms.base import Algorithm
from controller.routing.algorithms.greedy import greedy
from controller.routing.algorithms.optimal import optimal
from controller.routing.failover import CurrentAssignment, Failover, events
from controller.routing.forwarding import forwarding, pair
from controller.routing.from_topology import Failures, demand_of, fabric_of
from controller.routing.paths import path_of, paths
from controller.routing.ports import destinations, ports_for, repeats, sources, stages
from topo.generate import three_tier
from topo.graph import OUR_HASH, Topology


def assigned(
    topology: Topology,
    count: int,
    seed: int,
    algorithm: Algorithm = auto,
    before: frozenset = frozenset(),
    weighted: bool = False,
    permuted: bool = False,
) -> tuple[object, CurrentAssignment, list]:
    rng = random.Random(seed)
    hosts = topology.hosts
    others = zip(hosts, rng.sample(hosts, len(hosts)), strict=True) if permuted else ()
    pairs = [(a, b) for a, b in others if a != b] or host_pairs(topology, count, rng)
    fabric = fabric_of(topology, Failures(before))
    weights = np.random.default_rng(seed).integers(1, 9, len(pairs)).astype(np.float64)
    flows = demand_of(fabric, pairs, weights if weighted else None)
    choice = solve(algorithm, fabric, flows)
    src, dst = sources((a.ip for a, _ in pairs), OUR_HASH), destinations((b.ip for _, b in pairs), OUR_HASH)
    ports = ports_for(src, dst, stages(topology, fabric, flows, choice), skip=repeats(src, dst, choice))
    ports = np.where(choice >= 0, ports, -1).astype(np.int32)
    return fabric, CurrentAssignment(src, dst, flows, choice, ports), pairs


def check(
    topology: Topology, now: CurrentAssignment, pairs: list, event, plan, before: frozenset = frozenset()
) -> None:
    """After the failure every flow that can goes where the plan says, by the switches' own tables."""
    down = Failures(
        before | ({event} if isinstance(event, tuple) else set()),
        frozenset({event} if isinstance(event, str) else ()),
    )
    table = forwarding(topology, down.links, down.switches)
    ports = now.ports.copy()
    ports[plan.flows] = plan.ports
    changed = dict(zip(plan.flows.tolist(), plan.choice.tolist(), strict=True))
    seen = set()
    for f, (a, b) in enumerate(pairs):
        if down.cuts_off(a) or down.cuts_off(b):
            assert ports[f] == -1
            continue
        if ports[f] == -1:
            assert not paths(topology, table, a.name, b.name)
            continue
        path = path_of(topology, table, a.name, b.name, int(ports[f]))
        assert path[-1] == b.name
        assert event not in path
        assert not isinstance(event, tuple) or not set(event) <= set(path)
        if f in changed:
            nodes = plan.fabric.nodes(int(now.demand.src[f]), int(now.demand.dst[f]), changed[f])
            assert path == (a.name, *nodes, b.name)
        assert (a.name, b.name, ports[f]) not in seen
        seen.add((a.name, b.name, ports[f]))


@pytest.mark.parametrize(
    "topology",
    [
        clos(4, 3, 4),
        three_tier(2, 2, 2, 2, 3, host_bps=10, fabric_bps=10),
        three_tier(3, 2, 2, 2, 2, host_bps=10, fabric_bps=10),
        clos(1, 0, 5),
    ],
    ids=["two", "three", "three pods", "one leaf"],
)
def test_there_is_a_plan_for_every_single_failure(topology: Topology) -> None:
    fabric, now, pairs = assigned(topology, 40, 1)
    failover = Failover(topology, fabric, now)
    everything = list(events(topology))
    assert len(everything) == len(topology.switches) + len(topology.links)
    for event in everything:
        found = failover.answer(event)
        check(topology, now, pairs, event, found)
        choice = now.choice.copy()
        choice[found.flows] = found.choice
        assert found.max_load == pytest.approx(congestion(found.fabric, now.demand, choice))
    with pytest.raises(KeyError):
        failover.answer("spine99")


def test_any_fabric_fails_over_too() -> None:
    whole = three_tier(2, 2, 2, 2, 3, host_bps=10, fabric_bps=10)
    topology = Topology(whole.name, whole.hosts, whole.switches, whole.links[:-1], whole.prefixes)
    fabric, now, pairs = assigned(topology, 30, 5, greedy)
    for event in events(topology):
        check(topology, now, pairs, event, Failover(topology, fabric, now).answer(event))


def test_a_spine_lost_leaves_the_optimum_of_the_rest() -> None:
    topology = clos(6, 4, 4)
    fabric, now, _ = assigned(topology, 60, 2)
    plan = Failover(topology, fabric, now).answer("spine2")
    rest = fabric_of(topology, Failures(switches=frozenset({"spine2"})))
    assert plan.max_load == pytest.approx(congestion(rest, now.demand, solve(optimal, rest, now.demand)))
    assert worst(rest, now.demand, solve(optimal, rest, now.demand)) == rest.bound(now.demand)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 5),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 10**6),
    st.booleans(),
    st.booleans(),
)
# The loss of a cable moves one of several flows of a pair of hosts.
@example(leaves=3, spines=3, hosts=1, seed=129, weighted=False, degraded=False)
def test_answers_are_valid_on_any_leaf_spine(
    leaves: int, spines: int, hosts: int, seed: int, weighted: bool, degraded: bool
) -> None:
    """Also with flows of different weights, and a cable that is down already."""
    rng = random.Random(seed)
    topology = clos(leaves, spines, hosts)
    before = frozenset({pair("leaf1", f"spine{rng.randint(1, spines)}")} if degraded else ())
    fabric, now, pairs = assigned(topology, rng.randint(1, 30), seed, greedy, before, weighted)
    failover = Failover(topology, fabric, now)
    for event in events(topology):
        found = failover.answer(event)
        check(topology, now, pairs, event, found, before)
        keeps = now.choice[found.flows] == found.choice
        assert (found.stays == (keeps & (found.choice >= 0))).all()
        choice, ports = now.choice.copy(), now.ports.copy()
        choice[found.flows], ports[found.flows] = found.choice, found.ports
        assert ((choice < 0) == (ports < 0)).all()
        assert found.max_load == pytest.approx(congestion(found.fabric, now.demand, choice))


def test_a_failure_of_a_part_that_no_flow_uses_changes_no_path() -> None:
    topology = clos(4, 3, 4)
    fabric, now, _ = assigned(topology, 1, 1)
    used = fabric.nodes(int(now.demand.src[0]), int(now.demand.dst[0]), int(now.choice[0]))
    for event in events(topology):
        if event not in used and not set(event) <= set(used):
            assert Failover(topology, fabric, now).answer(event).stays.all()


@pytest.mark.parametrize("seed", range(3))
def test_a_lost_link_at_full_load_costs_no_more_than_it_has_to(seed: int) -> None:
    """Each host sends one flow and gets one. Where a leaf has room without the link, no link carries two."""
    topology = clos(8, 5, 5)
    fabric, now, pairs = assigned(topology, 0, seed, permuted=True)
    failover = Failover(topology, fabric, now)
    more = 0
    for event in events(topology):
        if isinstance(event, tuple):
            plan = failover.answer(event)
            check(topology, now, pairs, event, plan)
            flows = now.demand.take(now.demand.src != now.demand.dst)
            assert plan.max_load * 100e9 == pytest.approx(plan.fabric.bound(flows))
            old = failover._links
            uses = np.isin(old[plan.flows], np.flatnonzero(plan.fabric.capacity == 0)).any(axis=1)
            more += int((~plan.stays & ~uses).sum())
    assert more
