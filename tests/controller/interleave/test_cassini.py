# SPDX-License-Identifier: Apache-2.0
"""Policy `cassini`, the published one: all are shifted once, whatever the score, or a loop forbids it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.interleave.cassini import has_loop, shift_once
from controller.interleave.circle import SharedLink, score
from controller.interleave.link_sharing import contended
from controller.model import Flow, Job, Phase, Profile
from controller.planner import POLICIES, PlanInput, diff, explain, plan
from sim.cluster import JobRequest, machines
from sim.network import Network
from sim.output import summary
from sim.scheduler import scheduler_named
from sim.shape import PhaseShape, Shape
from sim.simulation import Simulation, SimulationSettings
from topo.generate import leaf_spine

MS, RATE = 1_000_000, 25_000_000
CASSINI, CIRCLES = POLICIES["cassini"], POLICIES["circles"]
ONE_LINK = leaf_spine(2, 1, 4, host_bps=RATE, fabric_bps=RATE)


def job(name: str, hosts: list[str], period: float, up: float) -> Job:
    flows = tuple(
        Flow(f"{name}/{a}>{b}", name, a, b, round(RATE * up / 8000))
        for a, b in zip(hosts, hosts[1:] + hosts[:1], strict=True)
    )
    profile = Profile(round(period * MS), (Phase(0, round(up * MS), RATE),))
    return Job(name, "model", len(hosts), tuple(hosts), profile, 1e12, flows)


def pair(period: float, a: float, b: float) -> tuple[Job, ...]:
    return job("a", ["h1", "h5"], period, a), job("b", ["h2", "h6"], period, b)


@pytest.mark.parametrize(("period", "ups", "realign"), [(255, (114, 114), None), (287, (164, 180), 1.0)])
def test_jobs_are_shifted_once_whatever_the_score(
    period: float, ups: tuple[float, float], realign: float | None
) -> None:
    made = plan(PlanInput(ONE_LINK, pair(period, *ups), CASSINI, 0))
    a, b = made.jobs["a"], made.jobs["b"]
    assert (a.once, b.once) == (True, True)
    assert (a.realign, b.realign) == (realign, realign)
    assert a.period_ns == b.period_ns == period * MS
    apart = abs(a.shift_ns - b.shift_ns) / MS
    assert 114 <= apart <= 141 if realign is None else 100 <= apart <= 187
    expected = 1.0 if realign is None else 1 - (164 + 180 - 287) / 287
    assert {round(link.score, 3) for link in made.links} == {round(expected, 3)}
    assert "at its own pace" in a.why
    assert "starts once at" in "\n".join(diff(None, made))
    held = plan(PlanInput(ONE_LINK, pair(period, *ups), CIRCLES, 0))
    assert all((j.period_ns is not None) == (realign is None) and not j.once for j in held.jobs.values())


def test_a_loop_forbids_all_shifts_and_the_plan_says_why() -> None:
    """Three jobs on three hosts' cables, each pair on another: a ring in the affinity graph."""
    jobs = (
        job("a", ["h1", "h2"], 200, 90),
        job("b", ["h2", "h3"], 210, 90),
        job("c", ["h3", "h1"], 220, 90),
    )
    made = plan(PlanInput(leaf_spine(1, 1, 4, host_bps=RATE, fabric_bps=RATE), jobs, CASSINI, 0))
    ecmp = plan(PlanInput(leaf_spine(1, 1, 4, host_bps=RATE, fabric_bps=RATE), jobs, POLICIES["ecmp"], 0))
    assert all(j.period_ns is None and not j.once for j in made.jobs.values())
    assert "its affinity graph has a loop" in explain(made)
    assert {f.dscp for f in made.flows.values()} == {f.dscp for f in ecmp.flows.values()}


def test_planning_again_shifts_nobody_again() -> None:
    first = plan(PlanInput(ONE_LINK, pair(287, 164, 180), CASSINI, 0))
    again = plan(PlanInput(ONE_LINK, pair(286.9, 163.9, 180), CASSINI, 987_654_321, previous=first))
    assert diff(first, again) == ()
    more = (*pair(287, 164, 180), job("c", ["h3", "h4"], 100, 20))
    assert diff(first, plan(PlanInput(ONE_LINK, more, CASSINI, 5 * MS, previous=first)))[0].startswith(
        "job c"
    )


def test_a_policy_of_another_mechanism_takes_over() -> None:
    first = plan(PlanInput(ONE_LINK, pair(255, 114, 114), CIRCLES, 0))
    again = plan(PlanInput(ONE_LINK, pair(255, 114, 114), CASSINI, 7 * MS, previous=first))
    assert any("starts once at" in line for line in diff(first, again))


phases = st.tuples(st.integers(20, 300), st.floats(0.05, 0.9))


@settings(max_examples=40, deadline=None)
@given(st.lists(phases, min_size=2, max_size=6), st.data())
def test_on_random_links_it_is_all_or_nobody_at_algorithm_1s_shifts(
    jobs: list[tuple[int, float]], data: st.DataObject
) -> None:
    periods = {f"j{i}": t * MS for i, (t, _) in enumerate(jobs)}
    own = {
        name: (Phase(0, max(1, round(t * MS * part)), RATE),)
        for name, (t, part) in zip(periods, jobs, strict=True)
    }
    names = st.lists(st.sampled_from(list(periods)), min_size=2, max_size=3, unique=True)
    links = [
        SharedLink((f"l{i}", ""), RATE, {j: own[j] for j in sorted(members)})
        for i, members in enumerate(data.draw(st.lists(names, min_size=1, max_size=4)))
    ]
    found = shift_once(links, periods)
    everyone = {j for k in links if contended(k, 0.02) for j in k.demands}
    assert set(found.slots) == (set() if found.reasons else everyone)
    assert set(found.reasons) in (set(), everyone)
    if has_loop(links):
        assert not found.slots
    for job_name, held in found.slots.items():
        assert held.once
        assert 0 <= held.shift_ns < held.period_ns
        assert periods[job_name] <= held.period_ns <= 1.14 * periods[job_name]
    for fit in found.fits:
        link = next(k for k in links if k.name == fit.link)
        got = score(
            link,
            {j: found.slots[j].period_ns for j in fit.jobs},
            {j: found.slots[j].shift_ns for j in fit.jobs},
            slack=0.02,
        )
        assert got == pytest.approx(fit.score)


def test_in_the_simulator_a_partly_compatible_pair_gains_by_one_shift() -> None:
    """Snapshot 4 of Table 4.3: score 0.8, and less communication under CASSINI."""
    fast = 25_000_000_000
    fabric = leaf_spine(2, 1, 4, host_bps=fast, fabric_bps=fast)
    slower = {}
    for policy in ("ecmp", "cassini"):
        jobs = [
            JobRequest(
                name, "RoBERTa", 0, 2, 60,
                Shape((PhaseShape("fused_ring", fast / 8 * up / 1e3, after_ns=(287 - up) * MS),)), hosts,
            )
            for name, up, hosts in (("a", 164, ("h1", "h5")), ("b", 180, ("h2", "h6")))
        ]  # fmt: skip
        simulation = Simulation(
            machines(Network(fabric), 1),
            jobs,
            SimulationSettings(policy=policy),
            scheduler=scheduler_named("fifo"),
        )
        simulation.run()
        slower[policy] = summary(simulation)["mean_slowdown"]
    assert slower["ecmp"] > 1.5
    assert slower["cassini"] == pytest.approx(344 / 287, rel=0.03)


def test_replacing_a_job_that_vanishes_leaves_nobody_in_step_with_it() -> None:
    jobs = pair(287, 164, 180)
    first = plan(PlanInput(ONE_LINK, jobs, CASSINI, 0))
    alone = plan(PlanInput(ONE_LINK, jobs[:1], CASSINI, 3 * MS, previous=first))
    assert alone.jobs["a"].period_ns is None
    back = plan(replace(PlanInput(ONE_LINK, jobs, CASSINI, 9 * MS), previous=alone))
    assert back.jobs["a"].once
    assert back.jobs["b"].once
