# SPDX-License-Identifier: Apache-2.0
"""Jobs on the cables between two switches: only those on one cable share a link."""

from __future__ import annotations

import pytest
from bundles_rig import bundled

from controller.model.job import Flow, Job, Phase, Profile
from controller.planner import POLICIES, PlanInput, plan
from controller.routing.cable_links import CableLinks
from controller.routing.forwarding import forwarding
from topo.generate import leaf_spine

RATE = 10**10
FABRIC = bundled(leaf_spine(2, 1, 4, host_bps=RATE, fabric_bps=RATE), 2)


def job(number: int, up: float) -> Job:
    """A job that fills a cable for the part `up` of its period of 100 ms, from leaf1 to leaf2."""
    name, src, dst = f"j{number}", f"h{number}", f"h{number + 4}"
    profile = Profile(100_000_000, (Phase(0, round(up * 100_000_000), RATE),))
    size = round(RATE * up / 80)
    return Job(name, "m", 2, (src, dst), profile, 1e12, (Flow(f"{name}/{src}>{dst}", name, src, dst, size),))


def ways(made, jobs) -> dict[str, tuple]:
    """The two fabric links of each job's flow."""
    cables = CableLinks(FABRIC, forwarding(FABRIC))
    flows = {f.flow.partition("/")[0]: f for f in made.flows.values()}
    return {j.name: cables.way(flows[j.name].path, flows[j.name].source_port)[1:-1] for j in jobs}


@pytest.mark.parametrize("policy", ["polyrhythm", "crux"])
def test_two_jobs_on_two_cables_share_nothing(policy: str) -> None:
    jobs = (job(1, 0.6), job(2, 0.6))
    made = plan(PlanInput(FABRIC, jobs, POLICIES[policy], 0))
    first, second = ways(made, jobs).values()
    assert not set(first) & set(second)
    assert made.links == ()
    assert all("shared with no other job" in f.why for f in made.flows.values())
    assert all(j.period_ns is None for j in made.jobs.values())


def test_a_third_job_shares_single_cables_only() -> None:
    """Each sends for 0.4 of its time: as one link of twice the rate, the cables would have three jobs each."""
    jobs = tuple(job(n, 0.4) for n in (1, 2, 3))
    made = plan(PlanInput(FABRIC, jobs, POLICIES["polyrhythm"], 0))
    found = ways(made, jobs)
    shared = {(k.src, k.dst): set(k.jobs) for k in made.links}
    every = {link for way in found.values() for link in way}
    assert all(":" in a and ":" in b for a, b in every)
    on = {link: {name for name, way in found.items() if link in way} for link in every}
    assert shared == {link: names for link, names in on.items() if len(names) > 1}
    assert {len(names) for names in shared.values()} == {2}
    # Two jobs on a cable take turns, so each runs as fast as alone.
    assert {name for name, j in made.jobs.items() if j.period_ns} == set().union(*shared.values())
    assert all(j.expected_ns is None or j.expected_ns < 105_000_000 for j in made.jobs.values())


def test_jobs_that_stay_keep_their_ports_when_another_comes() -> None:
    jobs = (job(1, 0.6), job(2, 0.6))
    before = plan(PlanInput(FABRIC, jobs, POLICIES["polyrhythm"], 0))
    after = plan(PlanInput(FABRIC, (*jobs, job(3, 0.2)), POLICIES["polyrhythm"], 0, previous=before))
    assert all(after.flows[name].source_port == f.source_port for name, f in before.flows.items())
