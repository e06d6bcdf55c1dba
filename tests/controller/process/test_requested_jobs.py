# SPDX-License-Identifier: Apache-2.0
"""Jobs that requests declare: what they become, what is refused, and what agents and restarts change."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from control_rig import job

from controller.live.core import Core
from controller.live.earlier_state import restore
from controller.live.messages import AgentDown, AgentUp, WorkerJoined, WorkerLeft
from controller.live.saved_state import SavedState, read_back
from controller.live.settings import CoreSettings
from controller.northbound.job_routes import JobChangeIn, JobIn
from controller.northbound.problems import OperationError
from controller.northbound.repeats import Repeats
from controller.planner import POLICIES, plan
from controller.process.requested_jobs import RunningJobs
from controller.store.interface import LoadedState
from controller.store.records import encode
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=10**8, fabric_bps=10**8)
S = 1_000_000_000
ASKED = {
    "name": "a",
    "model": "VGG19",
    "gpus": 2,
    "hosts": ["h1", "h3"],
    "period_ms": 260,
    "phases": [{"start_ms": 0, "end_ms": 120, "rate_bps": 10**8}],
    "flops_per_iteration": 1e12,
    "flows": [
        {"src": "h1", "dst": "h3", "bytes_per_iteration": 1_500_000},
        {"src": "h3", "dst": "h1", "bytes_per_iteration": 1_500_000},
    ],
}


def new_core(restart_grace_ns=0):
    settings = CoreSettings(TOPOLOGY, POLICIES["polyrhythm"], 1, verify=False, elephant_bytes=0)
    return Core(replace(settings, restart_grace_ns=restart_grace_ns))


def jobs_of(core):
    return RunningJobs(core, core.handle)


def create(jobs, **changes):
    return asyncio.run(jobs.create(JobIn(**{**ASKED, **changes}).model_dump()))


def change(jobs, name, **changes):
    return asyncio.run(jobs.change(name, JobChangeIn(**changes).model_dump(exclude_none=True)))


def test_a_requested_job_is_what_agents_would_announce_and_is_planned() -> None:
    core = new_core()
    made = create(jobs_of(core))
    assert made.job == job("a", "h1", "h3")
    assert (made.requested, core.wants_plan) == (True, True)
    core.adopt(plan(core.plan_input()))
    assert {flow.path is not None for flow in core.plan.flows.values()} == {True}


def test_agents_may_come_and_go_and_the_job_stays_until_a_request_ends_it() -> None:
    core = new_core()
    jobs = jobs_of(core)
    create(jobs)
    core.handle(AgentUp("h1", "udp", workers=frozenset()))
    core.handle(WorkerJoined("h1", 0, job("a", "h1", "h3")))
    core.handle(WorkerLeft("h1", 0, "a"))
    core.handle(WorkerLeft("h3", 1, "a"))
    core.handle(AgentDown("h1"))
    core.now_ns += 3_600 * S
    core.run_timers()
    assert core.registry.get("a") is not None
    core.handle(WorkerJoined("h1", 0, job("a", "h1", "h2")))
    assert [j.name for j in core.registry.jobs] == ["a"], "another job's first worker has joined"
    asyncio.run(jobs.end("a"))
    assert core.registry.get("a") is None
    with pytest.raises(OperationError, match="no job 'a'") as caught:
        asyncio.run(jobs.end("a"))
    assert caught.value.code == 404


def test_a_job_of_agents_can_be_ended_and_not_changed() -> None:
    core = new_core()
    jobs = jobs_of(core)
    for rank, host in enumerate(("h1", "h3")):
        core.handle(WorkerJoined(host, rank, job("a", "h1", "h3")))
    with pytest.raises(OperationError, match="was declared by its agents"):
        change(jobs, "a", gpus=8)
    with pytest.raises(OperationError, match="job a is there already"):
        create(jobs)
    assert not jobs.declaration("a").requested
    asyncio.run(jobs.end("a"))
    assert core.registry.jobs == ()


def test_a_change_replaces_what_it_names() -> None:
    core = new_core()
    jobs = jobs_of(core)
    before = create(jobs).job
    made = change(jobs, "a", gpus=8, phases=[{"start_ms": 0, "end_ms": 60, "rate_bps": 10**8}]).job
    assert (made.gpus, made.profile.phases[0].end_ns) == (8, 60_000_000)
    assert replace(made, gpus=2, profile=before.profile) == before
    assert core.registry.get("a") == made
    assert change(jobs, "a").job == made
    assert change(jobs, "a", hosts=["h2", "h4"], flows=[]).job.hosts == ("h2", "h4")
    assert core.registry.flow("a/h1>h3") is None


def test_flows_follow_from_traffic() -> None:
    core = new_core()
    made = create(
        jobs_of(core),
        gpus=4,
        hosts=["h1", "h2", "h3", "h4"],
        flows=None,
        traffic={"collective": "ring", "data_bytes": 1_000_000},
    )
    ends = {(flow.src, flow.dst) for flow in made.job.flows}
    assert ends == {("h1", "h2"), ("h2", "h3"), ("h3", "h4"), ("h4", "h1")}
    assert {flow.bytes_per_iteration for flow in made.job.flows} == {1_500_000}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hosts": ["h1", "h9"]}, "the fabric has no host named h9"),
        ({"hosts": ["h1"]}, "legal: from one host of the job to another"),
        ({"model": "\n"}, "legal: printable text"),
        ({"period_ms": 0}, "the period is 0 ns"),
        ({"period_ms": 100}, "phases must be sorted"),
        ({"traffic": {}}, "flows and traffic are given"),
        ({"flows": None, "traffic": {"nothing": 1}}, "traffic"),
        ({"flows": None, "hosts": ["h9"], "traffic": {"nothing": 1}}, "no host named h9"),
        ({"flows": [{"src": "h1", "dst": "h3", "bytes_per_iteration": 1}] * 1_025}, "1,025 flows go from h1"),
    ],
)
def test_what_the_fabric_cannot_have_is_refused(changes, says) -> None:
    core = new_core()
    with pytest.raises(OperationError, match=says) as caught:
        create(jobs_of(core), **changes)
    assert caught.value.code == 409
    assert core.registry.declared("a") is None


def test_views_are_outdated_before_a_request_is_answered() -> None:
    core = new_core()
    seen: list[tuple[str, ...]] = []
    jobs = RunningJobs(core, core.handle, lambda: seen.append(tuple(job.name for job in core.registry.jobs)))
    create(jobs, name="a")
    asyncio.run(jobs.end("a"))
    assert seen == [("a",), ()]


def test_a_change_of_hosts_cannot_make_a_name_wrong() -> None:
    jobs = jobs_of(new_core())
    create(jobs, name="a@h3")
    with pytest.raises(OperationError, match="not with its first host at the end") as caught:
        change(jobs, "a@h3", hosts=["h3", "h1"])
    assert caught.value.code == 409


def test_a_host_with_too_many_jobs_takes_no_more() -> None:
    core = new_core()
    jobs = jobs_of(core)
    for number in range(256):
        create(jobs, name=f"j{number}")
    with pytest.raises(OperationError, match="host h1 has 256 jobs already"):
        create(jobs)
    assert change(jobs, "j0", gpus=4).job.gpus == 4


def test_requested_jobs_outlast_a_restart_without_their_agents() -> None:
    core = new_core()
    saved = SavedState(core, "boot")
    create(jobs_of(core))
    records = {}
    for (kind, key), value in saved.change(None).records.items():
        records.setdefault(kind, {})[key] = encode(value)
    later = new_core(restart_grace_ns=30 * S)
    restore(later, read_back(LoadedState(records), None, "boot"))
    later.run_timers()
    later.now_ns += 60 * S
    later.run_timers()
    assert later.registry.is_requested("a")
    assert [j.name for j in later.registry.jobs] == ["a"]


def test_a_request_is_carried_out_once_for_each_key() -> None:
    done = []

    async def work() -> int:
        await asyncio.sleep(0)
        done.append(1)
        return len(done)

    async def fails() -> int:
        raise OperationError(409, "no")

    async def main() -> None:
        repeats: Repeats[int] = Repeats()
        both = await asyncio.gather(*(repeats.once("bob", "k", "x", work) for _ in range(2)))
        assert both == [1, 1]
        assert await repeats.once("eve", "k", "x", work) == 2
        assert await repeats.once("bob", None, "x", work) == 3
        with pytest.raises(OperationError, match="another request had this key"):
            await repeats.once("bob", "k", "y", work)
        with pytest.raises(OperationError, match="no"):
            await repeats.once("bob", "l", "x", fails)
        assert await repeats.once("bob", "l", "x", work) == 4
        for number in range(2_000):
            await repeats.once("bob", str(number), "x", work)
        assert await repeats.once("bob", "k", "x", work) == 2_005

    asyncio.run(main())
