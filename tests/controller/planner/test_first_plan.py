# SPDX-License-Identifier: Apache-2.0
"""The first plan after a change: valid at once, nobody starves, and what is in force stays."""

from dataclasses import replace
from random import Random

from controller.model import Flow, Job, Phase, Profile
from controller.planner import POLICIES, PlanInput, first_plan, plan
from controller.planner.first_plan import safe_levels
from topo.generate import leaf_spine
from topo.graph import Topology

RATE = 100_000_000_000
FABRIC = leaf_spine(2, 1, 4, host_bps=RATE, fabric_bps=RATE)
WIDE = leaf_spine(4, 2, 2, host_bps=RATE, fabric_bps=RATE)


def job(name: str, src: str, dst: str, up: float = 0.4, period_ms: int = 100) -> Job:
    period = period_ms * 1_000_000
    end = round(up * period)
    flow = Flow(f"{name}/0", name, src, dst, RATE * end // 8_000_000_000)
    return Job(name, "test", 8, (src, dst), Profile(period, (Phase(0, end, RATE),)), 1e15, (flow,))


def test_new_jobs_share_one_level() -> None:
    x = PlanInput(FABRIC, (job("a", "h1", "h5"), job("b", "h2", "h6")), POLICIES["polyrhythm"], 0)
    made = first_plan(x)
    assert {j.level for j in made.jobs.values()} == {0}
    assert all(j.period_ns is None for j in made.jobs.values())
    assert all(f.path and f.source_port for f in made.flows.values())
    assert made.version == 1


def test_what_is_in_force_stays_when_a_job_leaves() -> None:
    jobs = tuple(job(f"j{n}", f"h{n + 1}", f"h{n + 5}", 0.8) for n in range(3))
    x = PlanInput(FABRIC, jobs, POLICIES["polyrhythm"], 0)
    before = plan(x)
    after = first_plan(replace(x, jobs=jobs[1:], previous=before, epoch_ns=7_000_000))
    for name in ("j1", "j2"):
        was, now = before.jobs[name], after.jobs[name]
        assert (now.level, now.period_ns, now.sender) == (was.level, was.period_ns, was.sender)
        if was.period_ns:
            assert (now.shift_ns + 7_000_000 - was.shift_ns) % was.period_ns == 0
    kept = {n: (f.path, f.source_port) for n, f in after.flows.items()}
    assert kept == {n: (f.path, f.source_port) for n, f in before.flows.items() if n in kept}


def test_a_new_job_and_those_connected_to_it_have_one_level() -> None:
    connected = {"a": (0, ("a", "b", "new")), "b": (0, ("a", "b", "new")), "new": (0, ("a", "b", "new"))}
    connected |= {"c": (1, ("c", "d")), "d": (1, ("c", "d"))}
    in_force = {"a": 3, "b": 1, "c": 2, "d": 0, "alone": 5}
    levels = safe_levels(("a", "b", "c", "d", "alone", "new"), in_force, connected)
    assert levels == {"a": 0, "b": 0, "c": 2, "d": 0, "alone": 5, "new": 0}


def test_a_new_job_joins_jobs_with_slots_of_periods_that_never_meet() -> None:
    """Their common multiple is millions of laps long, so they have no circle. They keep their slots."""
    jobs = tuple(job(f"j{n}", f"h{n + 1}", f"h{n + 5}", 0.3) for n in range(4))
    x = PlanInput(FABRIC, jobs[:3], POLICIES["polyrhythm"], 0)
    before = plan(x)
    periods = {"j0": 161_349_414, "j1": 161_349_414, "j2": 164_247_747}
    slots = {name: replace(before.jobs[name], period_ns=t, shift_ns=1_000) for name, t in periods.items()}
    after = first_plan(replace(x, jobs=jobs, previous=replace(before, jobs=slots)))
    assert {name: j.period_ns for name, j in after.jobs.items()} == periods | {"j3": None}
    assert {j.level for j in after.jobs.values()} == {0}
    final = plan(replace(x, jobs=jobs, previous=after))
    assert all(j.expected_ns for j in final.jobs.values())


def test_a_policy_without_a_search_has_its_final_plan_at_once() -> None:
    x = PlanInput(FABRIC, (job("a", "h1", "h5"), job("b", "h2", "h6")), POLICIES["crux"], 0)
    assert first_plan(x) == plan(x)


def test_a_dead_spine_is_avoided() -> None:
    x = PlanInput(WIDE, (job("a", "h1", "h3"), job("b", "h2", "h5")), POLICIES["polyrhythm"], 0)
    before = first_plan(x)
    after = first_plan(replace(x, previous=before, down_switches=frozenset({"spine1"})))
    assert all(f.path is not None and "spine1" not in f.path for f in after.flows.values())


def test_the_only_spine_is_dead() -> None:
    x = PlanInput(FABRIC, (job("a", "h1", "h5"),), POLICIES["polyrhythm"], 0)
    assert first_plan(replace(x, down_switches=frozenset({"spine1"}))).flows["a/0"].path is None


def _many(topology: Topology, count: int) -> tuple[Job, ...]:
    """Jobs of one flow each, between random hosts."""
    rng = Random(1)
    names = [h.name for h in topology.hosts]
    made = []
    for i in range(count):
        a, b = rng.sample(names, 2)
        profile = Profile(10**8, (Phase(0, 5 * 10**7, 10**10),))
        made.append(Job(f"j{i}", "m", 2, (a, b), profile, 1e12, (Flow(f"j{i}/f", f"j{i}", a, b, 10**9),)))
    return tuple(made)


def test_thousands_of_jobs_that_meet_get_a_plan() -> None:
    """Reasons name the jobs that overlap. They are found once, not by each job among all pairs."""
    topology = leaf_spine(4, 2, 8, host_bps=10**10, fabric_bps=10**10)
    made = first_plan(PlanInput(topology, _many(topology, 1_000), POLICIES["polyrhythm"], 0))
    assert len(made.jobs) == 1_000
    assert all(flow.path is not None for flow in made.flows.values())


def test_without_any_cable_between_switches_only_flows_inside_a_leaf_have_paths() -> None:
    topology = leaf_spine(4, 2, 8, host_bps=10**10, fabric_bps=10**10)
    down = frozenset(topology.cable_at[k.a, k.a_port] for k in topology.links)
    jobs = _many(topology, 40)
    for plan_of in (first_plan, plan):
        made = plan_of(PlanInput(topology, jobs, POLICIES["polyrhythm"], 0, down_links=down))
        for job in jobs:
            (flow,) = job.flows
            inside = topology.host[flow.src].leaf == topology.host[flow.dst].leaf
            assert (made.flows[flow.name].path is not None) == inside
