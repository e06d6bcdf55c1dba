# SPDX-License-Identifier: Apache-2.0
"""Plans as columns are the plans that the same decisions give by name, and cost what has changed."""

import pickle
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.interleave.circle import random_score
from controller.interleave.link_sharing import SLACK, contended
from controller.model import Flow, Job, Phase, Plan, Profile
from controller.model.flow_plans import FlowPlans, with_flows
from controller.planner import POLICIES, PlanInput, first_plan, plan
from controller.planner.candidate import build
from controller.planner.demand import Demands
from controller.planner.routing_stage import route_flows
from controller.store import stored_plans
from controller.store.records import encode
from controller.store.stored_plans import PlanEncoder, plan_of
from topo.generate import leaf_spine, three_tier
from topo.graph import Topology

RATE = 100_000_000_000
FABRICS = (
    leaf_spine(4, 3, 3, host_bps=RATE, fabric_bps=RATE),
    leaf_spine(3, 2, 2, host_bps=RATE, fabric_bps=RATE // 2),
    three_tier(2, 2, 2, 2, 2, host_bps=RATE, fabric_bps=RATE),
)


def random_job(name: str, topology: Topology, rng: Random) -> Job:
    """A job with flows of all kinds: mice, several of one pair of hosts, inside a host and inside a leaf."""
    hosts = rng.sample([h.name for h in topology.hosts], rng.randint(2, 5))
    flows = tuple(
        Flow(f"{name}/{n}", name, rng.choice(hosts), rng.choice(hosts), rng.choice((100, 10**9, 2 * 10**9)))
        for n in range(rng.randint(1, 9))
    )
    period = rng.randint(50, 200) * 1_000_000
    phases = (Phase(0, period // 2, RATE // rng.randint(1, 3)),) if rng.random() < 0.8 else ()
    pcie = ("pcie0", RATE // 2) if rng.random() < 0.2 else ("", 0)
    return Job(
        name,
        "test",
        8,
        tuple(hosts),
        Profile(period, phases),
        1e15,
        flows,
        pcie_link=pcie[0],
        pcie_bps=pcie[1],
    )


def random_inputs(seed: int) -> PlanInput:
    rng = Random(seed)
    topology = rng.choice(FABRICS)
    jobs = tuple(random_job(f"j{n}", topology, rng) for n in range(rng.randint(0, 5)))
    cables = sorted((min(k.a, k.b), max(k.a, k.b)) for k in topology.links)
    down = frozenset(rng.sample(cables, rng.randint(0, 2)))
    return PlanInput(topology, jobs, POLICIES["polyrhythm"], 0, down_links=down, seed=seed)


def changed(x: PlanInput, before: Plan, rng: Random) -> PlanInput:
    """One job leaves, another one comes, perhaps a cable fails."""
    jobs = (*x.jobs[1:], random_job("new", x.topology, rng))
    cables = sorted((min(k.a, k.b), max(k.a, k.b)) for k in x.topology.links)
    return replace(x, jobs=jobs, previous=before, down_links=frozenset(rng.sample(cables, rng.randint(0, 1))))


def by_name(x: PlanInput) -> Plan:
    """The first plan, with every flow assigned by name."""
    with patch("controller.planner.routing_stage.assigned", lambda *_: None):
        made = first_plan(x)
    assert not isinstance(made.flows, FlowPlans)
    return made


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_columns_say_what_names_say(seed: int) -> None:
    x = random_inputs(seed)
    made = first_plan(x)
    assert isinstance(made.flows, FlowPlans)
    assert made == by_name(x)
    later = changed(x, made, Random(seed + 1))
    after = first_plan(later)
    assert isinstance(after.flows, FlowPlans)
    assert after == by_name(later)
    assert after == first_plan(replace(later, previous=replace(made, flows=dict(made.flows))))
    assert list(after.flows) == [f.name for job in later.jobs for f in job.flows]


@pytest.mark.parametrize("policy", ["polyrhythm", "crux", "cassini", "routing"])
def test_final_plans_say_the_same(policy: str) -> None:
    x = replace(random_inputs(7), policy=POLICIES[policy])
    made = plan(x)
    with patch("controller.planner.routing_stage.assigned", lambda *_: None):
        assert plan(x) == made


def test_a_job_that_stays_as_it_was_keeps_its_object() -> None:
    rng = Random(3)
    jobs = tuple(random_job(f"j{n}", FABRICS[0], rng) for n in range(3))
    x = PlanInput(FABRICS[0], jobs, POLICIES["polyrhythm"], 0)
    before = first_plan(x)
    after = first_plan(replace(x, jobs=jobs[1:], previous=before))
    assert isinstance(before.flows, FlowPlans)
    assert isinstance(after.flows, FlowPlans)
    stays = [name for name, job in after.flows.jobs.items() if before.flows.jobs[name] is job]
    assert stays
    moved = set(after.flows.changed_since(before.flows))
    for name, flow in after.flows.items():
        was = before.flows[name]
        if name not in moved:
            assert (flow.path, flow.source_port, flow.dscp) == (was.path, was.source_port, was.dscp)


def test_flows_that_moved_since_replace_the_columns() -> None:
    x = random_inputs(5)
    made = first_plan(x)
    name = next(n for n, f in made.flows.items() if f.path)
    moved = replace(made.flows[name], source_port=0xFFFF, why="moved")
    flows = with_flows(made.flows, {name: moved})
    assert flows[name] == moved
    none = with_flows(flows, {name: replace(moved, path=None, source_port=None)})
    assert isinstance(none, FlowPlans)
    assert none.routed == sum(f.path is not None for f in none.values())
    assert flows == {**made.flows, name: moved}
    assert isinstance(flows, FlowPlans)
    assert set(flows.changed_since(made.flows)) == {name}
    assert flows.routed == none.routed + 1 == sum(f.path is not None for f in flows.values())
    assert list(flows.of(moved.flow.partition("/")[0])) == [
        f for f in flows.values() if f.flow.startswith(f"{moved.flow.partition('/')[0]}/")
    ]
    later = first_plan(replace(x, previous=replace(made, flows=flows)))
    assert later == first_plan(replace(x, previous=replace(made, flows=dict(flows))))


def test_columns_survive_the_way_between_processes() -> None:
    made = first_plan(random_inputs(11))
    again = pickle.loads(pickle.dumps(made))
    assert again == made


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_use_of_links_is_that_of_the_paths(seed: int) -> None:
    x = random_inputs(seed)
    demands = Demands(x)
    stage = route_flows(demands, time_sharing=False)
    sent: dict[str, dict[tuple[str, str], float]] = {job.name: {} for job in x.jobs}
    used: dict[tuple[str, str], set[str]] = {}
    host = x.topology.host
    for job in x.jobs:
        for f in job.flows:
            links: list[tuple[str, str]] = [(f"{f.src}:{job.pcie_link}", f.src)] if job.pcie_link else []
            a = stage.assignments.get(f.name)
            if a is None:
                links += [(f.src, host[f.src].leaf), (host[f.dst].leaf, f.dst)]
            else:
                links = links + list(zip(a.path, a.path[1:], strict=False)) if a.path else []
            for link in links:
                sent[job.name][link] = sent[job.name].get(link, 0) + f.bytes_per_iteration
                if a is not None:
                    used.setdefault(link, set()).add(job.name)
    jobs = stage.link_use.link_jobs(x.jobs, demands.profiles)
    for job in jobs:
        assert list(job.bytes_on.items()) == list(sent[job.name].items())
        assert list(job.bytes_on.values()) == list(sent[job.name].values())
        slowest = max((8 * b / demands.rates[k] for k, b in sent[job.name].items()), default=0.0)
        assert job.traffic_s == slowest
    shared = {link: names for link, names in used.items() if len(names) > 1}
    assert [k.name for k in stage.shared] == sorted(shared)
    assert all(set(k.demands) == shared[k.name] for k in stage.shared)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_intensities_are_those_of_the_hosts_links(seed: int) -> None:
    x = random_inputs(seed)
    host, rates = x.topology.host, Demands(x).rates
    for job in x.jobs:
        on: dict[tuple[str, str], float] = {}
        for f in job.flows:
            links = [(f.src, host[f.src].leaf), (host[f.dst].leaf, f.dst)]
            links += [(f"{f.src}:{job.pcie_link}", f.src)] if job.pcie_link else []
            for link in links:
                on[link] = on.get(link, 0) + f.bytes_per_iteration
        slowest = max(8 * b / rates[k] for k, b in on.items())
        assert Demands(x).intensities()[job.name] == pytest.approx(job.flops_per_iteration / slowest)


def test_a_plan_of_columns_can_be_stored() -> None:
    made = first_plan(random_inputs(11))
    assert isinstance(made.flows, FlowPlans)
    whole = PlanEncoder().stored(0, made)
    for piece in (1, 7, 10_000):
        with patch.object(stored_plans, "PIECE", piece):
            assert PlanEncoder().stored(0, made) == whole
    assert plan_of(whole) == made
    # As plans were stored before there were columns.
    assert plan_of(replace(whole, body=encode(made))) == made


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_what_is_kept_of_the_last_plan_is_stored_as_if_anew(seed: int) -> None:
    inputs, encoder = random_inputs(seed), PlanEncoder()
    first = first_plan(inputs)
    later = first_plan(replace(inputs, jobs=inputs.jobs[1:], previous=first))
    moved = {
        n: replace(f, path=None, source_port=None, why="moved") for n, f in list(first.flows.items())[:2]
    }
    patched = replace(first, flows=with_flows(first.flows, moved))
    for made in (first, later, first, patched, later):
        stored = encoder.stored(5, made)
        assert stored == PlanEncoder().stored(5, made)
        assert plan_of(stored) == made


def test_a_link_has_the_score_of_its_demands() -> None:
    """The score is kept by what it depends on: neither by names nor by the order of plans."""
    jobs = tuple(
        Job(
            f"j{n}",
            "test",
            8,
            (f"h{n + 1}", f"h{n + 4}"),
            Profile(period * 1_000_000, (Phase(0, period * 400_000, RATE),)),
            1e15,
            (Flow(f"j{n}/0", f"j{n}", f"h{n + 1}", f"h{n + 4}", 10**9),),
        )
        for n, period in enumerate((100, 150, 220))
    )
    fabric = leaf_spine(2, 1, 3, host_bps=RATE, fabric_bps=RATE)
    for policy, some in (
        ("polyrhythm", jobs),
        ("cassini", jobs),
        ("cassini", jobs[1:]),
        ("polyrhythm", jobs),
    ):
        x = PlanInput(fabric, some, POLICIES[policy], 0)
        shifts = build(Demands(x)).shifts
        assert shifts.shared
        for link in shifts.shared:
            want = random_score(link, shifts.periods, shifts.groups(link), slack=SLACK)
            assert shifts.score(link) == (want if contended(link, SLACK) else 1.0)
