# SPDX-License-Identifier: Apache-2.0
"""Jobs whose communication depends on their own placement only."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.placement.latency import Sensitivity
from controller.placement.machines import Machines
from controller.placement.schedulers import SCHEDULERS, SchedulerOptions, scheduler_named
from controller.placement.schedulers.pollux import progress
from sim.cluster import WorkloadError
from sim.isolated import IsolatedJob, IsolatedSettings, simulate

QUIET = Sensitivity(0, 0, 0)
MACHINES = Machines.uniform(2, 2, 4)
HOUR = 3600.0


def job(name: str, demand: int, ideal: float, at: float = 0.0, **kw: object) -> IsolatedJob:
    return IsolatedJob(name, at, demand, ideal, **({"sensitivity": QUIET} | kw))  # type: ignore[arg-type]


def run(name: str, jobs: list[IsolatedJob], settings_: IsolatedSettings | None = None):  # type: ignore[no-untyped-def]
    return simulate(MACHINES, jobs, scheduler_named(name, SchedulerOptions(HOUR)), settings_)


def test_a_job_alone_takes_its_compute_and_its_communication() -> None:
    sensitive = job("one", 8, 100.0, at=7.0, sensitivity=Sensitivity(0.1, 0.7, 5.0))
    found = run("dally", [sensitive], IsolatedSettings(rule="flat"))["one"]
    # Two machines of four GPUs in one rack: the parts of both tiers.
    assert found.completion == pytest.approx(100 * 1.8)
    assert found.communication == pytest.approx(80)
    assert found.by_tier == pytest.approx((0, 180, 0))
    assert (found.queued, found.moves) == (0, 0)


def test_a_job_waits_for_another_and_the_wait_is_booked() -> None:
    found = run("hived", [job("first", 16, 100.0), job("second", 16, 50.0, at=30.0)])
    assert found["second"].ended == pytest.approx(150)
    assert found["second"].queued == pytest.approx(70)


def test_a_preempted_job_continues_where_it_stopped_and_pays_for_the_restore() -> None:
    jobs = [job("old", 16, 3 * HOUR), job("young", 16, 0.5 * HOUR, at=0.25 * HOUR)]
    settings_ = IsolatedSettings(lease_s=HOUR, aligned=False, restore_s=60)
    found = run("tiresias", jobs, settings_)
    assert found["young"].ended == pytest.approx(1.5 * HOUR)
    assert found["old"].ended == pytest.approx(3.5 * HOUR + 60)
    assert found["old"].moves == 1
    assert found["old"].queued == pytest.approx(0.5 * HOUR)


def test_aligned_leases_end_together() -> None:
    jobs = [job("old", 16, 3 * HOUR, at=0.9 * HOUR), job("young", 16, 1.0, at=0.95 * HOUR)]
    together = run("themis", jobs, IsolatedSettings(lease_s=HOUR, aligned=True))
    own = run("themis", jobs, IsolatedSettings(lease_s=HOUR, aligned=False))
    assert together["young"].ended == pytest.approx(HOUR + 1)
    assert own["young"].ended == pytest.approx(1.9 * HOUR + 1)


def test_a_job_that_was_spread_takes_a_machine_from_others_at_the_end_of_a_lease() -> None:
    others = [job(f"other-{m}", 3, 2.5 * HOUR) for m in range(4)]
    spread = job("spread", 4, 100 * HOUR, at=1.0, sensitivity=Sensitivity(0.0, 1.0, 9.0))
    found = run("dally-nowait", [*others, spread], IsolatedSettings(lease_s=HOUR))
    assert found["spread"].moves == 1
    assert found["spread"].by_tier[2] == pytest.approx(HOUR - 1)
    assert found["spread"].by_tier[1] == 0
    assert sum(found[o.name].moves for o in others) >= 1


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (job("j", 17, 1.0), "wants 17 GPUs; legal: 1 to the cluster's 16"),
        (job("j", 0, 1.0), "wants 0 GPUs"),
        (job("j", 1, 0.0), "runs for 0.0 s"),
        (job("j", 1, float("inf")), "runs for inf s"),
        (job("j", 1, 1.0, at=-1.0), "arrives at -1.0 s"),
        (job("j", 1, 1.0, at=float("nan")), "arrives at nan s"),
    ],
)
def test_jobs_that_can_never_run(bad: IsolatedJob, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        run("dally", [bad])


def test_names_are_unique() -> None:
    with pytest.raises(WorkloadError, match="two of this name"):
        run("dally", [job("j", 1, 1.0), job("j", 1, 1.0)])


JOBS = st.lists(
    st.tuples(
        st.integers(1, 16), st.floats(1, 40_000), st.floats(0, 20_000), st.booleans(), st.integers(0, 9)
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=12, deadline=None)
@given(JOBS, st.booleans())
@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_every_job_ends_and_its_times_add_up(
    name: str, rows: list[tuple[int, float, float, bool, int]], aligned: bool
) -> None:
    jobs = [
        job(f"j{i}", n, ideal, at, skewed=skewed, sensitivity=Sensitivity(0.1, 0.1 * s, s))
        for i, (n, ideal, at, skewed, s) in enumerate(rows)
    ]
    settings_ = IsolatedSettings(lease_s=HOUR, aligned=aligned)
    found = run(name, jobs, settings_)
    assert set(found) == {j.name for j in jobs}
    assert run(name, jobs, settings_) == found
    for j in jobs:
        o = found[j.name]
        assert o.completion == pytest.approx(o.queued + sum(o.by_tier), rel=1e-6)
        if name != "pollux":
            assert sum(o.by_tier) == pytest.approx(j.ideal_s + o.communication, rel=1e-6)
    if name == "pollux":
        # Its jobs do not run on the GPUs that they asked for.
        return
    busy = sum(j.demand * sum(found[j.name].by_tier) for j in jobs)
    span = max(o.ended for o in found.values()) - min(j.arrival_s for j in jobs)
    assert busy <= MACHINES.total * span * (1 + 1e-9)


def test_an_elastic_job_is_done_sooner_alone_and_later_in_a_crowd() -> None:
    alone = run("pollux", [job("a", 4, 4 * HOUR)])["a"].completion
    assert alone == pytest.approx(4 * HOUR * progress(4) / progress(8), rel=1e-6)
    crowd = [job(f"j{i}", 4, 4 * HOUR) for i in range(MACHINES.total)]
    every = run("pollux", crowd)
    assert max(o.ended for o in every.values()) > 4 * HOUR
    assert all(o.queued == 0 for o in every.values())


def test_jobs_that_take_turns_on_shared_gpus_end_as_if_alone() -> None:
    # All 16 GPUs; an iteration computes 1 s and sends 1 s over the network.
    sends = Sensitivity(0.0, 0.0, 1.0)
    pair = [job(name, 16, 100.0, sensitivity=sends, compute_s=1.0) for name in ("a", "b")]
    settings_ = IsolatedSettings(lease_s=HOUR, rule="flat")
    both = run("muri", pair, settings_)
    assert [both[name].ended for name in ("a", "b")] == pytest.approx([200, 200])
    # Jobs that only compute gain nothing, so they queue.
    quiet = [replace(j, sensitivity=QUIET) for j in pair]
    assert sorted(o.ended for o in run("muri", quiet, settings_).values()) == pytest.approx([100, 200])
    # One whose iterations are unknown shares with nobody.
    unknown = [pair[0], replace(pair[1], compute_s=0.0)]
    assert sorted(o.ended for o in run("muri", unknown, settings_).values()) == pytest.approx([200, 400])


@pytest.mark.parametrize("aligned", [True, False])
def test_a_job_is_faster_once_its_partner_has_ended(aligned: bool) -> None:
    sends, computes = Sensitivity(0.0, 0.0, 1.0), QUIET
    jobs = [
        job("sends", 16, 10.0, sensitivity=sends, compute_s=1.0),
        job("computes", 16, 100.0, sensitivity=computes, compute_s=1.0),
    ]
    found = run("muri", jobs, IsolatedSettings(lease_s=HOUR, rule="flat", aligned=aligned))
    # Together an iteration takes 2 s: ten of each, then ninety alone.
    assert found["sends"].ended == pytest.approx(20)
    assert found["computes"].ended == pytest.approx(110)
    assert found["computes"].communication == 0


@settings(max_examples=12, deadline=None)
@given(JOBS, st.booleans())
def test_shared_gpus_are_given_back_and_every_job_ends(
    rows: list[tuple[int, float, float, bool, int]], aligned: bool
) -> None:
    jobs = [
        job(f"j{i}", n, ideal, at, sensitivity=Sensitivity(0.1, 0.1 * s, s), compute_s=0.1 + s)
        for i, (n, ideal, at, _, s) in enumerate([*rows, *rows])
    ]
    found = run("muri", jobs, IsolatedSettings(lease_s=HOUR, aligned=aligned))
    assert set(found) == {j.name for j in jobs}
    for j in jobs:
        o = found[j.name]
        assert o.completion == pytest.approx(o.queued + sum(o.by_tier), rel=1e-6)
        assert sum(o.by_tier) >= (j.ideal_s + o.communication) * (1 - 1e-9)
