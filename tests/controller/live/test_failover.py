# SPDX-License-Identifier: Apache-2.0
"""Answers to every single failure: complete, correct by the switches' own tables, sent at once."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from bundles_rig import bundled
from control_rig import RATE_BPS, job

from controller.live.core import Core
from controller.live.failover import FailoverSearch, PreparedFailovers
from controller.live.link_state import GRACE_NS
from controller.live.messages import (
    FlowAsked,
    PortsSeen,
    SendAssignment,
    SwitchLost,
    SwitchReady,
    WorkerJoined,
)
from controller.live.settings import CoreSettings
from controller.model.job import Flow, Job, Phase, Profile
from controller.model.plan import QueuePair
from controller.planner import POLICIES, PlanInput, plan
from controller.planner.emergency import Emergencies, Emergency
from controller.routing.failover import events
from controller.routing.forwarding import forwarding, pair
from controller.routing.paths import path_of
from controller.southbound import table_writes
from controller.southbound.artefacts import artefacts_dir
from controller.southbound.desired import EcnProfile
from controller.southbound.table_writes import DesiredState, FabricCondition
from topo.generate import leaf_spine, three_tier
from topo.graph import UNKNOWN_HASH, HashSpec, Topology

SMALL = leaf_spine(3, 3, 4, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
POD = three_tier(2, 2, 2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


BUNDLE = bundled(leaf_spine(3, 2, 4, host_bps=RATE_BPS, fabric_bps=RATE_BPS), 2)


def jobs_on(topology: Topology, count: int, seed: int) -> tuple[Job, ...]:
    rng = random.Random(seed)
    made = []
    for i in range(count):
        a, b = rng.sample([h.name for h in topology.hosts], 2)
        flows = tuple(Flow(f"j{i}/{x}>{y}", f"j{i}", x, y, 1_000_000) for x, y in ((a, b), (b, a)))
        made.append(Job(f"j{i}", "m", 2, (a, b), Profile(100, (Phase(0, 80, RATE_BPS),)), 1e12, flows))
    return tuple(made)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "before"),
    [
        pytest.param(SMALL, frozenset(), id="leaf-spine"),
        pytest.param(SMALL, frozenset({("leaf1", "spine1")}), id="leaf-spine, one down"),
        pytest.param(POD, frozenset(), id="three tiers"),
        pytest.param(POD, frozenset({("leaf1", "spine1")}), id="three tiers, one down"),
        pytest.param(BUNDLE, frozenset(), id="bundles"),
        pytest.param(BUNDLE, frozenset({("leaf1:5", "spine1:1")}), id="bundles, one cable down"),
        pytest.param(
            BUNDLE,
            frozenset({("leaf1:5", "spine1:1"), ("leaf1:7", "spine1:4")}),
            id="bundles, two cables down",
        ),
    ],
)
def test_every_single_failure_has_its_answer(topology: Topology, before: frozenset) -> None:
    inputs = PlanInput(topology, jobs_on(topology, 8, 4), POLICIES["routing"], 0, before)
    made = plan(inputs)
    failovers = PreparedFailovers.after(inputs, made)
    todo = tuple(failovers.missing)
    assert set(todo) == {e for e in events(topology) if e not in before}
    found = FailoverSearch(inputs, made, failovers.condition).answers(todo)
    by_name = replace(made, flows=dict(made.flows))
    assert found == FailoverSearch(inputs, by_name, failovers.condition).answers(todo)
    failovers.put(found)
    for event in todo:
        answer = failovers.answer(event)
        assert answer is not None
        assert failovers.event_of(answer.condition) == event
        emergency = answer.reroutes.emergency(made)
        after = emergency.applied(made)
        tables = forwarding(topology, answer.condition.down_links)
        for name, flow in after.flows.items():
            src, dst = name.partition("/")[2].split(">")
            cut = {pair(h, topology.host[h].leaf) for h in (src, dst)} & answer.condition.down_links
            if flow.path is None or flow.source_port is None:
                assert cut or not path_of(topology, tables, src, dst, 0xC000)
                continue
            assert not cut
            assert path_of(topology, tables, src, dst, flow.source_port) == flow.path
            assert not {pair(a, b) for a, b in pairwise(flow.path)} & answer.condition.down_links
        assert all(after.flows[n] == made.flows[n] for n in made.flows.keys() - emergency.flows)
        assert all(after.flows[n].path == made.flows[n].path for n in emergency.renumbered)
        assert all(after.flows[n].source_port != made.flows[n].source_port for n in emergency.renumbered)
        assert all(after.flows[n].path not in (None, made.flows[n].path) for n in emergency.moved)
        assert all(after.flows[n].path is None for n in emergency.cut_off)


def test_a_failure_is_told_from_what_the_switches_say_of_it() -> None:
    inputs = PlanInput(SMALL, jobs_on(SMALL, 2, 1), POLICIES["routing"], 0)
    failovers = PreparedFailovers.after(inputs, plan(inputs))
    around = frozenset(pair("spine2", f"leaf{i}") for i in (1, 2, 3))
    assert failovers.event_of(FabricCondition(around)) == "spine2"
    assert failovers.event_of(FabricCondition(around, frozenset({"spine2"}))) == "spine2"
    assert failovers.event_of(FabricCondition(frozenset(), frozenset({"spine2"}))) == "spine2"
    assert failovers.event_of(FabricCondition(frozenset({("leaf1", "spine2")}))) == ("leaf1", "spine2")
    assert failovers.event_of(FabricCondition(frozenset({("h1", "leaf1")}))) is None
    assert failovers.event_of(FabricCondition(frozenset({("leaf1", "spine2"), ("leaf2", "spine1")}))) is None
    assert failovers.event_of(FabricCondition(frozenset(), frozenset({"spine1", "spine2"}))) is None
    assert failovers.event_of(FabricCondition()) is None
    # The log names what has no answer: several failures at once, but no host, and nothing that came back.
    assert failovers.unanswered(FabricCondition(around)) == ()
    assert failovers.unanswered(FabricCondition(frozenset({("h1", "leaf1")}))) == ()
    assert failovers.unanswered(FabricCondition()) == ()
    two = FabricCondition(frozenset({("leaf1", "spine2"), ("h1", "leaf1")}), frozenset({"spine1"}))
    assert failovers.unanswered(two) == ("spine1", "leaf1-spine2")


@pytest.mark.parametrize("pinned", [False, True])
def test_prepared_writes_are_those_that_would_be_worked_out(pinned: bool) -> None:
    table_writes.set_fabric(SMALL, EcnProfile(20, 60, 0.2), artefacts_dir())
    fabric = replace(SMALL, hash=HashSpec(UNKNOWN_HASH)) if pinned else SMALL
    inputs = PlanInput(fabric, jobs_on(SMALL, 2, 1), POLICIES["routing"], 0)
    made = plan(inputs)
    assert bool(made.pins) is pinned
    failovers = PreparedFailovers.after(inputs, made)
    search = FailoverSearch(inputs, made, failovers.condition)
    for event in (("leaf1", "spine2"), "spine1"):
        assert failovers.put_writes(event, search.writes(event))
    wanted = FabricCondition(frozenset({("leaf1", "spine2")}))
    ready = failovers.writes(wanted)
    before = DesiredState.of(FabricCondition(), made)
    assert failovers.desired == before
    anew = table_writes.writes_to({s.name: before for s in SMALL.switches}, replace(before, condition=wanted))
    assert ready == anew
    assert ready
    assert failovers.writes(FabricCondition(frozenset({("leaf2", "spine3")}))) is None


def test_flows_that_switches_pin_or_nics_place_are_left_to_the_backups() -> None:
    inputs = PlanInput(SMALL, jobs_on(SMALL, 2, 1), POLICIES["routing"], 0)
    first = plan(inputs)
    names = sorted(first.flows)
    kept = {names[0]: QueuePair(first.flows[names[0]].source_port or 0, True)}
    inputs = replace(inputs, queue_pairs=kept, mistrusted=frozenset({names[1]}), previous=first)
    made = plan(inputs)
    assert {p.flow for p in made.pins} == {names[1]}
    answers = Emergencies(inputs, made)
    for emergency in (answers.answer(event).emergency(made) for event in ("spine1", "spine2")):
        assert not {names[0], names[1]} & emergency.flows.keys()
        assert emergency.applied(made).pins == made.pins


def test_a_remark_follows_its_flow_to_another_port() -> None:
    inputs = PlanInput(SMALL, jobs_on(SMALL, 2, 1), POLICIES["routing"], 0)
    first = plan(inputs)
    name = sorted(first.flows)[0]
    old = first.flows[name]
    inputs = replace(inputs, queue_pairs={name: QueuePair(old.source_port or 0, False, 10)}, previous=first)
    made = plan(inputs)
    assert [r.source_port for r in made.remarks] == [old.source_port]
    assert old.path is not None
    emergency = Emergencies(inputs, made).answer(old.path[2]).emergency(made)
    after = emergency.applied(made)
    assert after.flows[name].source_port != old.source_port
    assert [r.source_port for r in after.remarks] == [after.flows[name].source_port]


def test_agents_hear_of_the_way_around_before_the_full_plan() -> None:
    core = Core(CoreSettings(SMALL, POLICIES["routing"], 1, False, 1))
    for name in SMALL.switch:
        core.handle(SwitchReady(name, dict.fromkeys(SMALL.ports[name], True)))
    members = [job("a", "h1", "h5"), job("b", "h2", "h6"), job("c", "h9", "h7")]
    for member in members:
        for rank, host in enumerate(member.hosts):
            core.handle(WorkerJoined(host, rank, member))
        for flow in member.flows:
            core.handle(FlowAsked(flow.src, flow.name))
    core.adopt(plan(core.plan_input()))
    core.take_effects()
    before = core.plan
    spine = before.flows["a/h1>h5"].path[2]
    hit = {n for n, f in before.flows.items() if spine in f.path}
    assert "a/h1>h5" in hit
    assert hit != set(before.flows)
    for leaf in ("leaf1", "leaf2", "leaf3"):
        port = next(p for p, peer in SMALL.ports[leaf].items() if peer.node == spine)
        core.handle(PortsSeen(leaf, {port: False}))
    failovers = core.failovers
    event = failovers.event_of(core.take_condition())
    assert event == spine
    (answer,) = FailoverSearch(failovers.inputs, failovers.plan, failovers.condition).answers((event,))
    core.fail_over(answer.reroutes.emergency(failovers.plan))
    told = {e.flow: e.source_port for e in core.take_effects() if isinstance(e, SendAssignment)}
    # Those off the failed spine keep their path, and may need another port for it; one on it
    # may find that its port leads the new way too.
    assert {n for n in hit if before.flows[n].source_port != core.plan.flows[n].source_port} <= set(told)
    assert told
    tables = forwarding(SMALL, core.condition.down_links)
    for name, flow in core.plan.flows.items():
        assert path_of(SMALL, tables, flow.path[0], flow.path[-1], flow.source_port) == flow.path
        assert (flow.path == before.flows[name].path) == (name not in hit)
    # The full plan starts from there.
    core.adopt(plan(core.plan_input()))
    assert all(spine not in f.path for f in core.plan.flows.values())
    core.handle(SwitchLost(spine, "gone"))
    core.now_ns += GRACE_NS
    core.run_timers()
    assert core.failovers.event_of(core.take_condition()) == spine


def test_the_words_say_what_happens_to_the_flows() -> None:
    one_spine = leaf_spine(2, 1, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
    inputs = PlanInput(one_spine, (job("a", "h1", "h3"),), POLICIES["routing"], 0)
    made = plan(inputs)
    gone = Emergencies(inputs, made).answer("spine1").emergency(made)
    assert gone.words() == "2 flows have no path left"
    assert {f.why for f in gone.flows.values()} == {"no path without spine1"}
    assert Emergency("spine9", {}, {}, {}).words() == "it touches no planned flow"
    flow = made.flows["a/h1>h3"]
    some = Emergency("spine1", {"a": flow}, {"b": flow, "c": flow}, {"d": flow})
    assert some.words() == (
        "1 flow moves to another path at once, 2 flows keep their paths under other source ports, "
        "1 flow has no path left"
    )
