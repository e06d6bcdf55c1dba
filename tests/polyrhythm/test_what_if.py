# SPDX-License-Identifier: Apache-2.0
"""The present jobs for the simulator: what it is given, and what comes out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.model.job import Job, Phase, Profile
from controller.planner import policy_named
from controller.process.what_if import PresentFabric
from polyrhythm.api import load_scenario
from polyrhythm.what_if import simulated_under

SCENARIO = load_scenario("two_vgg19")
RATE_BPS = SCENARIO.topology.links[0].rate_bps
PERIOD_NS = 260_000_000
PROFILE = Profile(PERIOD_NS, (Phase(0, 120_000_000, RATE_BPS),))


def jobs(profile: Profile = PROFILE) -> tuple[Job, ...]:
    """The two jobs of the scenario: each needs the one uplink for 120 of 260 ms."""
    return tuple(replace(w.job, profile=profile) for w in SCENARIO.workloads)


def present(*members: Job, offsets: tuple[int, ...] = (0, 0), **changes: object) -> PresentFabric:
    fabric = PresentFabric(
        SCENARIO.topology, members, offsets, frozenset(), frozenset(), 1, 1024, 60_000_000_000
    )
    return replace(fabric, **changes)


def test_time_shifts_help_two_jobs_on_one_link() -> None:
    """In step, equal shares stretch both iterations by 120 ms; with shifts neither is disturbed."""
    both = present(*jobs())
    plain = {name: figures for name, *figures in simulated_under(both, policy_named("ecmp")).jobs}
    ours = simulated_under(both, policy_named("polyrhythm"))
    for mean, _, alone in plain.values():
        assert alone == pytest.approx(260, rel=0.01)
        assert mean == pytest.approx(380, rel=0.02)
    for _, mean, _, alone in ours.jobs:
        assert mean == pytest.approx(alone, rel=0.02)
    assert ours.gpu_utilisation == pytest.approx(140 / 260, rel=0.03)


def test_the_present_offsets_count() -> None:
    """Half a period apart the jobs do not meet, under plain ECMP too."""
    apart = present(*jobs(), offsets=(0, PERIOD_NS // 2))
    for _, mean, _, alone in simulated_under(apart, policy_named("ecmp")).jobs:
        assert mean == pytest.approx(alone, rel=0.01)


def test_a_profile_of_several_phases_keeps_its_period() -> None:
    parts = (Phase(0, 40_000_000, RATE_BPS), Phase(60_000_000, 140_000_000, RATE_BPS))
    (job,) = jobs(Profile(PERIOD_NS, parts))[:1]
    ((_, mean, p99, alone),) = simulated_under(present(job, offsets=(0,)), policy_named("ecmp")).jobs
    assert mean == pytest.approx(260, rel=0.01)
    assert p99 == pytest.approx(260, rel=0.01)
    assert alone == pytest.approx(260, rel=0.01)


@pytest.mark.parametrize(
    "down",
    [{"down_links": frozenset({("leaf1", "spine1")})}, {"down_switches": frozenset({"spine1"})}],
)
def test_what_is_down_carries_nothing(down: dict[str, frozenset[object]]) -> None:
    """The fabric has one spine: no iteration ends without it."""
    for _, mean, _, alone in simulated_under(present(*jobs(), **down), policy_named("ecmp")).jobs:
        assert mean is None
        assert alone == pytest.approx(260, rel=0.01)


def test_a_cable_beside_another_one_is_left_out() -> None:
    """Of two parallel cables of half the rate, one is down: the jobs take twice as long to send."""
    link = SCENARIO.topology.links[0]
    half = [replace(k, rate_bps=RATE_BPS // 2) for k in SCENARIO.topology.links]
    more = [replace(k, a_port=k.a_port + 100, b_port=k.b_port + 100) for k in half]
    wide = replace(SCENARIO.topology, links=(*half, *more))
    (job,) = jobs()[:1]
    whole = present(job, offsets=(0,), topology=wide)
    cable = wide.cable_at[link.a, link.a_port]
    narrow = replace(whole, down_links=frozenset({cable}))
    for fabric, mean_ms in ((whole, 260), (narrow, 380)):
        ((_, mean, _, _),) = simulated_under(fabric, policy_named("ecmp")).jobs
        assert mean == pytest.approx(mean_ms, rel=0.01)


def test_a_job_that_the_simulator_does_not_know_is_refused() -> None:
    first, second = jobs()
    with pytest.raises(ValueError, match="sender"):
        simulated_under(present(first, replace(second, sender="swift")), policy_named("ecmp"))
