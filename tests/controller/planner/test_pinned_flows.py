# SPDX-License-Identifier: Apache-2.0
"""Flows that their source port or DSCP does not lead where the plan wants them: entries of their own."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from plan_rig import G, job, walk

from controller.model import Job, Plan, QueuePair
from controller.planner import POLICIES, PlanInput, Policy, diff, explain, plan
from controller.priority.priorities import Crux
from topo.generate import leaf_spine, three_tier
from topo.graph import UNKNOWN_HASH, HashSpec, Topology

FABRIC = leaf_spine(4, 4, 4, host_bps=G, fabric_bps=G)
UNKNOWN = replace(FABRIC, hash=HashSpec(UNKNOWN_HASH))
ROUTING = POLICIES["routing"]


def jobs(count: int = 8) -> tuple[Job, ...]:
    """Jobs of two hosts at other ends of the fabric."""
    return tuple(job(f"j{i}", [f"h{i + 1}", f"h{i + 9}"], 200, 90) for i in range(count))


def through(made: Plan, topology: Topology, flow: str) -> list[str]:
    """Where a flow's packets go: by its entries where it has some, by zlib's hash where not."""
    planned = made.flows[flow]
    assert planned.path is not None
    assert planned.source_port is not None
    way = walk(topology, frozenset(), planned.path[0], planned.path[-1], planned.source_port)
    pinned = {p.switch: p.toward for p in made.pins if p.flow == flow}
    if not pinned:
        return way
    # Past the last entry of its own there is no choice left.
    here = [planned.path[0], topology.host[planned.path[0]].leaf]
    while here[-1] in pinned:
        here.append(pinned[here[-1]])
    return [*here, *planned.path[len(here) :]]


def test_where_ports_lead_there_no_switch_holds_a_flow() -> None:
    made = plan(PlanInput(FABRIC, jobs(), ROUTING, 0))
    assert made.pins == made.remarks == ()


def test_an_unknown_hash_pins_every_flow_that_a_switch_would_choose_for() -> None:
    local = job("local", ["h4", "h3"], 200, 90)
    made = plan(PlanInput(UNKNOWN, (*jobs(2), local), ROUTING, 0))
    pinned = {p.flow for p in made.pins}
    assert pinned == {f for f in made.flows if not f.startswith("local/")}
    ports: dict[tuple[str, str], set[int]] = {}
    for pin in made.pins:
        path = made.flows[pin.flow].path
        assert path is not None
        assert (pin.switch, pin.toward) in set(pairwise(path))
        assert (pin.src, pin.dst, pin.source_port) == (path[0], path[-1], made.flows[pin.flow].source_port)
        assert pin.source_port not in ports.setdefault((pin.src, pin.dst), set())
        ports[pin.src, pin.dst].add(pin.source_port)
    assert "pinned in leaf1: the switches' hash is not known" in explain(made)
    # The next plan keeps what stands.
    again = plan(PlanInput(UNKNOWN, (*jobs(2), local), ROUTING, 9, previous=made))
    assert set(again.pins) == set(made.pins)
    assert diff(made, again) == ()
    # A flow that goes takes its entry with it.
    fewer = plan(PlanInput(UNKNOWN, jobs(1), ROUTING, 9, previous=made))
    assert {p.flow for p in fewer.pins} == {"j0/h1>h9", "j0/h9>h1"}


def test_under_an_unknown_hash_ecmp_plans_no_path() -> None:
    made = plan(PlanInput(UNKNOWN, jobs(2), Policy("mine", priority=Crux()), 0))
    assert {f.path for f in made.flows.values()} == {None}
    assert made.pins == ()


def test_all_tiers_that_choose_are_pinned() -> None:
    fabric = three_tier(2, 2, 2, 2, 2, host_bps=G, fabric_bps=G)
    far = replace(fabric, hash=HashSpec(UNKNOWN_HASH))
    ends = [far.hosts[0].name, far.hosts[-1].name]
    made = plan(PlanInput(far, (job("a", ends, 200, 90),), ROUTING, 0))
    path = made.flows[f"a/{ends[0]}>{ends[1]}"].path
    assert path is not None
    assert [(p.switch, p.toward) for p in made.pins if p.src == ends[0]] == list(pairwise(path))[1:3]


def test_polarised_tiers_are_pinned_where_no_port_leads() -> None:
    # Leaf and spine read the same bits, and have two ways each: half the paths are out of reach.
    fabric = replace(three_tier(2, 2, 2, 2, 2, host_bps=G, fabric_bps=G), hash=HashSpec("crc32", (0, 0, 0)))
    names = [h.name for h in fabric.hosts]
    half = len(names) // 2
    work = tuple(job(f"j{i}", [names[i], names[half + i]], 200, 90) for i in range(half))
    made = plan(PlanInput(fabric, work, ROUTING, 0))
    assert {f for f in made.flows if made.flows[f].path is None} == set()
    assert made.pins
    assert "no free source port leads there" in explain(made)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_kept_ports_are_honoured_and_every_flow_takes_its_path(seed: int) -> None:
    rng = random.Random(seed)
    work = jobs(rng.randint(1, 8))
    names = [f.name for j in work for f in j.flows]
    kept = {n: QueuePair(rng.randrange(0xC000, 0x10000), True) for n in names if rng.random() < 0.5}
    silent = {n: QueuePair(0, True) for n in names if n not in kept and rng.random() < 0.2}
    made = plan(PlanInput(FABRIC, work, ROUTING, 0, queue_pairs={**kept, **silent}))
    for name, planned in made.flows.items():
        if name in silent:
            assert planned.path is None
            assert "has not reported it" in planned.why
            continue
        assert through(made, FABRIC, name) == list(planned.path or ())
        if name in kept:
            assert planned.source_port == kept[name].source_port
        else:
            assert name not in {p.flow for p in made.pins}


def test_the_same_five_tuple_cannot_be_pinned_twice() -> None:
    twin = replace(jobs(1)[0], name="twin")
    twin = replace(
        twin, flows=tuple(replace(f, name=f"twin/{f.src}>{f.dst}", job="twin") for f in twin.flows)
    )
    kept = {"j0/h1>h9": QueuePair(50000, True), "twin/h1>h9": QueuePair(50000, True)}
    made = plan(PlanInput(FABRIC, (*jobs(1), twin), ROUTING, 0, queue_pairs=kept))
    lost = [f for f in kept if made.flows[f].path is None]
    assert len(lost) == 1
    assert "has the same 5-tuple as" in made.flows[lost[0]].why


def test_a_full_table_leaves_the_rest_to_ecmp_and_says_so() -> None:
    made = plan(PlanInput(UNKNOWN, jobs(8), ROUTING, 0, pin_capacity=3))
    by_leaf: dict[str, int] = {}
    for pin in made.pins:
        by_leaf[pin.switch] = by_leaf.get(pin.switch, 0) + 1
    assert by_leaf == dict.fromkeys(("leaf1", "leaf2", "leaf3", "leaf4"), 3)
    left = [f for f in made.flows.values() if f.path is None]
    assert len(left) == 4
    assert all("has no room for more than 3 flows" in f.why for f in left)


def test_a_flow_that_went_elsewhere_is_pinned_from_then_on() -> None:
    flow = "j0/h1>h9"
    first = plan(PlanInput(FABRIC, jobs(2), ROUTING, 0))
    made = plan(PlanInput(FABRIC, jobs(2), ROUTING, 0, previous=first, mistrusted=frozenset({flow})))
    assert {p.flow for p in made.pins} == {flow}
    assert made.flows[flow].path == first.flows[flow].path
    assert "its probes took another path" in made.flows[flow].why
    assert diff(first, made) == (f"flow {flow}: pinned in leaf1",)


def test_a_queue_pair_that_keeps_its_dscp_is_remarked_by_its_leaf() -> None:
    first = plan(PlanInput(FABRIC, jobs(2), ROUTING, 0))
    flow = "j0/h9>h1"
    planned = first.flows[flow]
    for opened in (
        QueuePair(planned.source_port or 0, False, planned.dscp),
        QueuePair(50000, False, 18),
    ):
        made = plan(PlanInput(FABRIC, jobs(2), ROUTING, 0, previous=first, queue_pairs={flow: opened}))
        if opened.dscp == planned.dscp:
            assert made.remarks == ()
            continue
        (remark,) = made.remarks
        assert (remark.switch, remark.src, remark.dst) == ("leaf3", "h9", "h1")
        # The port is the plan's, for this NIC takes another one.
        assert remark.source_port == planned.source_port
        assert (remark.sent_dscp, remark.dscp) == (18, planned.dscp)
        assert "its QP sends dscp 18: leaf3 rewrites it to 26" in explain(made)
