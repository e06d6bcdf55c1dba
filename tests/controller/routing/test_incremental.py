# SPDX-License-Identifier: Apache-2.0
"""Arrivals, departures, failures and forecasts: few flows move, and the plan is there before it is needed."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_rig import clos, host_pairs, worst

from controller.model.job import Phase, Profile
from controller.routing.algorithms import auto, congestion, solve
from controller.routing.algorithms.base import Algorithm
from controller.routing.algorithms.greedy import greedy
from controller.routing.algorithms.optimal import optimal
from controller.routing.failover import CurrentAssignment, Failover, events, reroute
from controller.routing.forwarding import forwarding
from controller.routing.from_topology import Failures, demand_of, fabric_of
from controller.routing.incremental import IncrementalColouring
from controller.routing.lookahead import ActiveFlow, PeriodicFlows, next_change
from controller.routing.paths import path_of
from controller.routing.ports import addresses, ports_for, repeats, stages
from topo.generate import three_tier
from topo.graph import Topology


def shares(alive: dict[int, tuple[int, int]], leaves: int, spines: int) -> list[list[int]]:
    degree = [[0] * leaves, [0] * leaves]
    for u, v in alive.values():
        degree[0][u] += 1
        degree[1][v] += 1
    return [[-(-d // spines) for d in side] for side in degree]


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(1, 9), st.integers(0, 10**6), st.booleans())
def test_live_spines_stay_balanced(leaves: int, spines: int, seed: int, plain: bool) -> None:
    rng = random.Random(seed)
    live = IncrementalColouring(leaves, spines, cap=10**6, plain=plain)
    alive: dict[int, tuple[int, int]] = {}
    for _ in range(120):
        if alive and rng.random() < 0.45:
            flow = rng.choice(list(alive))
            live.leave(flow)
            del alive[flow]
            assert live.spine(flow) == -1
        else:
            u, v = rng.sample(range(leaves), 2)
            flow = live.arrive(u, v)
            assert flow not in alive
            alive[flow] = u, v
        loads = np.zeros((2, leaves, spines), dtype=int)
        for flow, (u, v) in alive.items():
            loads[0, u, live.spine(flow)] += 1
            loads[1, v, live.spine(flow)] += 1
        assert (loads == live.loads()).all()
        assert (loads.max(axis=2) <= np.array(shares(alive, leaves, spines))).all()


@pytest.mark.parametrize("plain", [False, True])
def test_no_event_moves_more_than_the_cap(plain: bool) -> None:
    rng = random.Random(3)
    live = IncrementalColouring(6, 4, cap=2, plain=plain)
    alive: list[int] = []
    worst_excess = 0
    for _ in range(600):
        live.changes()
        if len(alive) > 20 and rng.random() < 0.5:
            flow = alive.pop(rng.randrange(len(alive)))
            live.leave(flow)
        else:
            flow = live.arrive(*rng.sample(range(6), 2))
            alive.append(flow)
        others = [f for f in live.changes().tolist() if f != flow]
        assert len(others) <= 2
        worst_excess = max(worst_excess, int(live.loads().max()))
    assert worst_excess <= 2 * -(-len(alive) // 4)
    with pytest.raises(KeyError):
        live.leave(10**6)


def assigned(
    topology: Topology, count: int, seed: int, algorithm: Algorithm = auto
) -> tuple[object, CurrentAssignment, list]:
    pairs = host_pairs(topology, count, random.Random(seed))
    fabric = fabric_of(topology)
    flows = demand_of(fabric, pairs)
    choice = solve(algorithm, fabric, flows)
    src, dst = addresses(a.ip for a, _ in pairs), addresses(b.ip for _, b in pairs)
    ports = ports_for(src, dst, stages(topology, fabric, flows, choice), skip=repeats(src, dst, choice))
    return fabric, CurrentAssignment(src, dst, flows, choice, ports), pairs


def check(topology: Topology, now: CurrentAssignment, pairs: list, event, plan) -> None:
    """After the failure every flow that can goes where the plan says, by the switches' own tables."""
    down = Failures(
        frozenset({event} if isinstance(event, tuple) else ()),
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
    [clos(4, 3, 4), three_tier(2, 2, 2, 2, 3, host_bps=10, fabric_bps=10), clos(1, 0, 5)],
    ids=["two", "three", "one leaf"],
)
def test_there_is_a_plan_for_every_single_failure(topology: Topology) -> None:
    fabric, now, pairs = assigned(topology, 40, 1)
    failover = Failover(topology, fabric, now)
    while failover.step():
        pass
    everything = list(events(topology))
    assert failover.missing == 0
    assert len(everything) == len(topology.switches) + len(topology.links)
    for event in everything:
        check(topology, now, pairs, event, failover.plan(event))
    with pytest.raises(KeyError):
        failover.plan("spine99")


def test_any_fabric_fails_over_too() -> None:
    whole = three_tier(2, 2, 2, 2, 3, host_bps=10, fabric_bps=10)
    topology = Topology(whole.name, whole.hosts, whole.switches, whole.links[:-1], whole.prefixes)
    fabric, now, pairs = assigned(topology, 30, 5, greedy)
    for event in events(topology):
        check(topology, now, pairs, event, reroute(topology, fabric, now, event))


def test_a_spine_lost_leaves_the_optimum_of_the_rest() -> None:
    topology = clos(6, 4, 4)
    fabric, now, _ = assigned(topology, 60, 2)
    plan = reroute(topology, fabric, now, "spine2")
    rest = fabric_of(topology, Failures(switches=frozenset({"spine2"})))
    assert plan.max_load == pytest.approx(congestion(rest, now.demand, solve(optimal, rest, now.demand)))
    assert worst(rest, now.demand, solve(optimal, rest, now.demand)) == rest.bound(now.demand)


def test_plans_are_kept_fresh_in_the_background() -> None:
    topology = clos(3, 2, 3)
    fabric, now, _ = assigned(topology, 10, 1)
    failover = Failover(topology, fabric, now)
    failover.start()
    try:
        _until(lambda: failover.missing == 0)
        old = failover.plan("spine1")
        assert failover.plan("spine1") is old
        _, later, pairs = assigned(topology, 12, 7)
        failover.refresh(fabric, later)
        _until(lambda: failover.missing == 0)
        new = failover.plan("spine1")
        assert new is not old
        check(topology, later, pairs, "spine1", new)
    finally:
        failover.stop()


def _until(done) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_ends_and_starts_are_foreseen() -> None:
    profile = Profile(100, (Phase(0, 30, 1), Phase(60, 70, 1)))
    periodic = PeriodicFlows(frozenset({"b", "c"}), profile, began_ns=1000)
    assert [periodic.next_start_ns(t) for t in (1000, 1059, 1060, 1099)] == [1060, 1060, 1100, 1100]
    sending = [ActiveFlow("a", 1000, 8e9), ActiveFlow("z", 5, 0.0)]
    change = next_change(1030, sending, [periodic])
    assert change is not None
    assert (change.time_ns, change.starts, change.active) == (1060, frozenset("bc"), frozenset("abcz"))
    soon = next_change(1030, [ActiveFlow("a", 20, 8e9)], [periodic])
    assert soon is not None
    assert (soon.time_ns, soon.ends, soon.active) == (1050, frozenset("a"), frozenset())
    assert next_change(0, [], []) is None
