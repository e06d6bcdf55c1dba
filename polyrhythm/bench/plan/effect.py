# SPDX-License-Identifier: Apache-2.0
"""A running controller: `job_to_effect_p99_ms` and `answer_p99_ms`.

One process serves the sessions of stand-ins for all switches, this one those of agents, one host for each
leaf. Jobs of HOSTS_A_JOB hosts with declared profiles arrive and leave, JOBS_A_SECOND a second. A third
process has agents of other hosts, which ask for flows (flow_questions.py): each agent has a machine of its
own, so neither question nor answer waits there for the messages of an arriving job.

- `job_to_effect_p99_ms`: from the first message of a job's agents until the last of them has been told the
  schedule of the job and the source port of its flow. The controller writes to switches what these need, and
  waits for their acknowledgements, before it tells agents.
- `answer_p99_ms`: from the question for the path of a flow until the answer, QUESTIONS_A_SECOND a second
  meanwhile.
- `jobs_unfinished`, `unanswered`: those without an effect or an answer within END_S. They count as END_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from controller.process.latency import switch_threads_often
from controller.wire import agent_pb2 as pb
from controller.wire.time_slices import default_time_slices, short_time_slices
from polyrhythm.bench.hostfabric import RATE_BPS, fabric
from polyrhythm.bench.plan.agent_stand_ins import AgentStandIns, JobArrival, connected, until
from polyrhythm.bench.processes import last_words, line, process
from topo.graph import Host

SIZES = (64, 32)
"""Leaves and spines: 96 switches."""
HOSTS_A_LEAF = 2
"""One for jobs, 64 agents in all, and one that may ask for flows."""
JOBS, HOSTS_A_JOB, JOBS_A_SECOND = 200, 8, 5
QUESTIONS_A_SECOND = 200
LIFE_S = 5.0
"""How long a job stays, or longer until it has its effect. Chosen: 25 jobs are present at a time, three on
each host."""
END_S = 10.0
"""How long the bench waits for the last effects. Chosen: far above the bounds."""
_LATER_S = 0.1
"""After this time a job without an effect is looked at again. Chosen: short beside LIFE_S."""
_MS = 1_000_000


def measure(seed: int, runs: int) -> dict[str, Any]:
    """All figures by name. The jobs arrive once, whatever `runs` is: each of them is a measurement.

    Raises:
        RuntimeError: a process did not start, or the first job had no effect.
    """
    with tempfile.TemporaryDirectory(prefix="polyrhythm-") as folder, contextlib.ExitStack() as stack:
        # As the agents have them that this process stands for. Those share no interpreter either.
        short_time_slices()
        stack.callback(default_time_slices)
        stack.callback(sys.setswitchinterval, sys.getswitchinterval())
        switch_threads_often()
        try:
            return _measure(Path(folder), stack, seed)
        except (RuntimeError, OSError) as error:
            raise RuntimeError(f"{error}{last_words(Path(folder))}") from None


def _measure(folder: Path, stack: contextlib.ExitStack, seed: int) -> dict[str, Any]:
    rng = Random(f"{seed}/bench plan/effect")
    sizes = [str(n) for n in SIZES]
    stand_ins = "polyrhythm.bench.plan.switch_stand_ins"
    switches = stack.enter_context(process("-m", stand_ins, *sizes, log=folder / "fabric.log"))
    description = folder / "fabric.json"
    description.write_text(line(switches, folder / "fabric.log"))
    controller = stack.enter_context(
        process("-m", "polyrhythm", "controller", f"--fabric={description}", log=folder / "controller.log")
    )
    address = json.loads(line(controller, folder / "controller.log"))["agents"]
    questions = "polyrhythm.bench.plan.flow_questions"
    asking = stack.enter_context(
        process("-m", questions, address, str(seed), *sizes, log=folder / "questions.log")
    )
    line(asking, folder / "questions.log")
    return asyncio.run(_figures_of(address, rng, asking, folder / "questions.log"))


async def _figures_of(
    address: str, rng: Random, asking: subprocess.Popen[str], log: Path
) -> dict[str, float | int]:
    hosts = fabric(*SIZES, HOSTS_A_LEAF).hosts[::HOSTS_A_LEAF]
    async with connected(address, hosts) as agents:
        # The first plans of a process load and compile kernels; the bounds are those of one that runs.
        for number in range(2 * JOBS_A_SECOND):
            first = job(f"first{number}", [h.name for h in rng.sample(hosts, HOSTS_A_JOB)], rng)
            agents.arrive(first)
            arrival = agents.arrivals[first.job]
            await until(lambda arrival=arrival: arrival.ended_s, "the effect of a job")  # type: ignore[misc]
            agents.leave(first)
        agents.arrivals.clear()
        jobs = [
            job(f"j{number}", [h.name for h in rng.sample(hosts, HOSTS_A_JOB)], rng) for number in range(JOBS)
        ]
        if asking.stdin is not None:
            wanted = {"seconds": JOBS / JOBS_A_SECOND, "end_s": END_S}
            print(json.dumps(wanted), file=asking.stdin, flush=True)
        await _offer(agents, jobs)
        answers = json.loads(await asyncio.to_thread(line, asking, log))
        return figures(agents.arrivals, answers["answers_s"], answers["unanswered"])


def asking_hosts(leaves: int, spines: int) -> Sequence[Host]:
    """The hosts whose agents ask for flows: those without jobs, of half the leaves."""
    others = fabric(leaves, spines, HOSTS_A_LEAF).hosts[1::HOSTS_A_LEAF]
    return others[: max(2, leaves // 2)]


def figures(
    arrivals: Mapping[str, JobArrival], answers_s: Sequence[float], unanswered: int
) -> dict[str, float | int]:
    """The figures from the arrivals of all jobs and the answers to new flows."""
    effects = [END_S if a.ended_s is None else a.ended_s - a.began_s for a in arrivals.values()]
    answers = [*answers_s, *[END_S] * unanswered]
    return {
        "job_to_effect_p99_ms": round(1e3 * _p99(effects), 2),
        "job_to_effect_median_ms": round(1e3 * statistics.median(effects), 2),
        "jobs": len(effects),
        "jobs_unfinished": sum(a.ended_s is None for a in arrivals.values()),
        "answer_p99_ms": round(1e3 * _p99(answers), 2),
        "answer_median_ms": round(1e3 * statistics.median(answers), 2),
        "answers": len(answers_s),
        "unanswered": unanswered,
    }


def job(name: str, hosts: list[str], rng: Random) -> pb.JobJoin:
    """A ring job whose flows send at the rate of the NICs for 25 to 65 % of a period of 0.2 to 2 s."""
    period = round(200 * 10 ** rng.random()) * _MS
    up = round(rng.uniform(0.25, 0.65) * period)
    pairs = [(host, hosts[(n + 1) % len(hosts)]) for n, host in enumerate(hosts)]
    size = RATE_BPS * up // 8_000_000_000
    return pb.JobJoin(
        job=name,
        model="bench",
        gpus=8 * len(hosts),
        hosts=hosts,
        period_ns=period,
        phases=[pb.Phase(start_ns=0, end_ns=up, rate_bps=RATE_BPS)],
        flops_per_iteration=rng.uniform(1e14, 1e16),
        flows=[pb.FlowSpec(name=f"{name}/{a}>{b}", src=a, dst=b, bytes_per_iteration=size) for a, b in pairs],
    )


async def _offer(agents: AgentStandIns, jobs: Sequence[pb.JobJoin]) -> None:
    """Let the jobs arrive and leave; then wait for the last effects."""
    # (when, whether it leaves, number); of one time, arrivals go first.
    todo = [(n / JOBS_A_SECOND, False, n) for n in range(len(jobs))]
    todo += [(n / JOBS_A_SECOND + LIFE_S, True, n) for n in range(len(jobs))]
    heapq.heapify(todo)
    began = time.monotonic()
    while todo:
        due, leaves, number = heapq.heappop(todo)
        await asyncio.sleep(max(0.0, began + due - time.monotonic()))
        if not leaves:
            agents.arrive(jobs[number])
            continue
        arrival = agents.arrivals[jobs[number].job]
        if arrival.missing and time.monotonic() < arrival.began_s + END_S:
            heapq.heappush(todo, (due + _LATER_S, True, number))
        else:
            agents.leave(jobs[number])
    end = time.monotonic() + END_S
    while time.monotonic() < end and any(a.missing for a in agents.arrivals.values()):
        await asyncio.sleep(0.02)


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]
