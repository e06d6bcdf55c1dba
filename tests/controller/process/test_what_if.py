# SPDX-License-Identifier: Apache-2.0
"""The question what other policies would do: one at a time, bounded, and what is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from fake_source import TOPOLOGY

from controller.live.core import Core
from controller.live.operator_commands import JobRequested
from controller.live.recorder import Recorder
from controller.live.settings import CoreSettings
from controller.model.job import Flow, Job, Phase, Profile
from controller.northbound.problems import OperationError
from controller.planner import POLICIES, Policy
from controller.process.what_if import (
    POLICY_CPU_S,
    QUESTION_CPU_S,
    PresentFabric,
    RunningWhatIf,
    SimulatedUnder,
)
from controller.southbound.fleet import RunnerError

HOSTS = [host.name for host in TOPOLOGY.hosts[:2]]
JOB = Job(
    "x",
    "VGG19",
    2,
    tuple(HOSTS),
    Profile(200_000_000, (Phase(0, 50_000_000, 1_000_000),)),
    0.0,
    (Flow("x/a>b", "x", HOSTS[0], HOSTS[1], 6250),),
)


def simulated(present: PresentFabric, policy: Policy) -> SimulatedUnder:
    if policy.name == "crux":
        raise ValueError("not this one")
    names = [job.name for job in present.jobs]
    return SimulatedUnder(0.5, tuple((name, 200.0 + 50 * n, 300.0, 200.0) for n, name in enumerate(names)))


class Worker:
    """A worker that needs `cpu_s` for each call, and waits for `go`."""

    def __init__(self, cpu_s: float = 1.0, go: asyncio.Event | None = None) -> None:
        self.cpu_s, self.go, self.closed = cpu_s, go, False

    async def run_timed(self, limit_s: float, function: Any, *arguments: Any) -> tuple[Any, float]:
        if self.go is not None:
            await self.go.wait()
        if self.cpu_s > limit_s:
            raise RunnerError(f"{function.__name__} took longer than {limit_s:g} s of processor time")
        try:
            return function(*arguments), self.cpu_s
        except ValueError as error:
            raise RunnerError(str(error)) from error

    def close(self) -> None:
        self.closed = True


def asked(worker: Worker, *jobs: Job) -> RunningWhatIf:
    core = Core(CoreSettings(TOPOLOGY, POLICIES["polyrhythm"], 1, verify=False, elephant_bytes=0))
    for job in jobs:
        core.handle(JobRequested(job))
    return RunningWhatIf(core, Recorder(TOPOLOGY), simulated, lambda: worker)


def test_each_policy_names_its_worst_off_job() -> None:
    second = replace(JOB, name="y", flows=(replace(JOB.flows[0], name="y/a>b", job="y"),))
    unknown = replace(
        second, name="z", flows=(replace(JOB.flows[0], name="z/a>b", job="z"),), profile=Profile(1, ())
    )
    worker = Worker()
    answer = asyncio.run(asked(worker, JOB, second, unknown).compare(["ecmp", "crux", "ecmp"]))
    plain, refused = answer.results
    assert (plain.policy, plain.fault) == ("ecmp", None)
    assert (plain.worst.job, plain.worst.ratio) == ("y", 1.25)
    assert (plain.gpu_utilisation, plain.mean_iteration_ms) == (0.5, 225.0)
    assert (refused.policy, refused.fault, refused.worst) == ("crux", "not this one", None)
    assert answer.left_out == ("z",)
    assert worker.closed


def test_a_job_that_ends_no_iteration_is_the_worst_off_and_a_sentence_says_so() -> None:
    def stalled(present: PresentFabric, policy: Policy) -> SimulatedUnder:
        jobs = [("a", 900.0, 900.0, 200.0), *((f"b{n}", None, None, 200.0) for n in range(19))]
        return SimulatedUnder(None, tuple(jobs))

    what_if = asked(Worker(), JOB)
    what_if._simulate = stalled
    (under,) = asyncio.run(what_if.compare(["ecmp"])).results
    assert (under.worst.job, under.worst.ratio, under.fault) == ("b0", None, None)
    assert under.note.startswith(
        "no iteration of b0, b1, b10, b11, b12, b13, b14, b15, b16, b17, b18, b2 and 7 more ended in 60 s: "
    )


def test_one_question_at_a_time() -> None:
    async def work() -> None:
        go = asyncio.Event()
        what_if = asked(Worker(go=go), JOB)
        first = asyncio.create_task(what_if.compare(["ecmp"]))
        await asyncio.sleep(0)
        with pytest.raises(OperationError) as error:
            await what_if.compare(["ecmp"])
        assert error.value.code == 503
        go.set()
        assert (await first).results[0].fault is None
        assert (await what_if.compare(["ecmp"])).results[0].fault is None

    asyncio.run(work())


def test_all_policies_of_a_running_fabric_within_the_limit() -> None:
    answer = asyncio.run(asked(Worker(cpu_s=POLICY_CPU_S), JOB).compare(None))
    names = [result.policy for result in answer.results]
    assert {"ecmp", "polyrhythm", "crux"} <= set(names)
    assert "mltcp-square" not in names, "it is for the simulator only"
    assert sum(result.fault is None for result in answer.results) == QUESTION_CPU_S / POLICY_CPU_S
    assert "the policies before it took" in answer.results[-1].fault


@pytest.mark.parametrize(("jobs", "policies"), [((), ["ecmp"]), ((JOB,), ["best"]), ((JOB,), [""])])
def test_what_cannot_be_answered_is_refused(jobs: tuple[Job, ...], policies: list[str]) -> None:
    with pytest.raises(OperationError) as error:
        asyncio.run(asked(Worker(), *jobs).compare(policies))
    assert error.value.code == 409
