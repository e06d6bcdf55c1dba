# SPDX-License-Identifier: Apache-2.0
"""The simulator against packets: the main job's scenarios on the embedded fabric and here, from the same
start offsets, paths and plan."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from controller.model import TRAFFIC_CLASSES
from controller.routing.forwarding import forwarding
from controller.routing.paths import path_of
from polyrhythm.run.session import SessionResult, SessionSpec, run_session
from polyrhythm.scenario import Scenario, load_scenario, scenario_path
from polyrhythm.simulate import requests_of
from sim.jobrun import FREE, JobRun, Rhythm
from sim.network import Network
from sim.reference import ReferenceEngine
from sim.shape import program
from sim.units import CLASSES

SEED = 1
WARMUP, MEASURED = 5, 40


def measured_by_packets(name: str, policy: str, workdir: Path) -> SessionResult:
    spec = SessionSpec(
        scenario=scenario_path(name), policy=policy, mode="together", seed=SEED, workdir=workdir
    )
    return asyncio.run(run_session(spec, lambda fraction: None))


def window(result: SessionResult, warmup: int) -> dict[str, tuple[int, float]]:
    """Per job: when an iteration begins (ns), and the mean of the MEASURED ones from there. The first of
    all if there is no warm-up; else that nearest to the moment when all jobs have warmed up, for jobs of
    one period keep whatever offset they have."""
    begins: dict[str, list[int]] = {}
    for job, records in result.iterations.items():
        latest: dict[int, int] = {}
        for r in records:
            latest[r.index] = max(latest.get(r.index, 0), r.start_ns)
        begins[job] = sorted(latest.values())
    from_ns = max(starts[warmup] for starts in begins.values())
    found = {}
    for job, starts in begins.items():
        first = min(range(len(starts)), key=lambda i: abs(starts[i] - from_ns)) if warmup else 0
        found[job] = starts[first], (starts[first + MEASURED] - starts[first]) / MEASURED
    return found


def orders(scenario: Scenario, plan: Mapping[str, object]) -> dict[str, tuple[int, Rhythm]]:
    found = {}
    for entry in plan["jobs"]:  # type: ignore[attr-defined]
        rhythm = FREE
        if entry["period_ms"] is not None:
            epoch, shift, period = plan["epoch_ns"], entry["shift_ms"] * 1e9, entry["period_ms"] * 1e9
            # Periods long past: the job is in its rhythm when we begin.
            rhythm = Rhythm(epoch * 1000 - 1000 * round(period), round(shift), round(period))  # type: ignore[operator]
        found[entry["job"]] = (CLASSES - 1 - TRAFFIC_CLASSES.queues[entry["dscp"]], rhythm)
    return found


def simulated(scenario: Scenario, result: SessionResult, starts: Mapping[str, int]) -> dict[str, float]:
    """Mean iteration times in ns, by the plain engine (the compiled one equals it)."""
    assert result.plan is not None
    network, table = Network(scenario.topology), forwarding(scenario.topology)
    planned = {f["flow"]: f["path"] for f in result.plan["flows"]}
    told = orders(scenario, result.plan)
    runs = []
    for request in requests_of(scenario, iterations=10**6):
        built = program(request.shape, request.name, request.ranks or ())
        paths = []
        for c in built.channels:
            # A flow that is left to ECMP draws its port as the agents do.
            port = Random(f"{SEED}/{c.flow}").randrange(0xC000, 0x10000)
            nodes = planned[c.flow] or path_of(scenario.topology, table, c.src, c.dst, port)
            paths.append(network.links(tuple(nodes)))
        klass, rhythm = told[request.name]
        start = starts[request.name] * 1000
        runs.append(JobRun(request.name, built, tuple(paths), klass, request.iterations, start, rhythm))
    engine = ReferenceEngine(network.capacity, network.marks, runs, min(r.ready for r in runs))
    begins: dict[str, list[int]] = {r.name: [] for r in runs}
    while any(len(b) <= MEASURED for b in begins.values()):
        engine.advance(engine.next_event())
        for run in runs:
            if run.begin >= 0 and run.begin not in begins[run.name][-1:]:
                begins[run.name].append(run.begin)
    return {name: (b[MEASURED] - b[0]) / MEASURED / 1000 for name, b in begins.items()}


def compare(name: str, policy: str, tolerance: float, workdir: Path) -> None:
    scenario = load_scenario(scenario_path(name))
    packets = measured_by_packets(name, policy, workdir)
    # Without a plan the jobs run as they began; a plan is in force after some iterations.
    measured = window(packets, 0 if policy == "ecmp" else WARMUP)
    flows = simulated(scenario, packets, {job: start for job, (start, _) in measured.items()})
    for job, (_, mean) in measured.items():
        print(f"{name} {policy} {job}: packets {mean / 1e6:.2f} ms, simulated {flows[job] / 1e6:.2f} ms")
        assert flows[job] == pytest.approx(mean, rel=tolerance), job


@pytest.mark.parametrize(("policy", "tolerance"), [("ecmp", 0.10), ("polyrhythm", 0.05)])
def test_two_jobs_on_a_link_agree_with_packets(policy: str, tolerance: float, tmp_path: Path) -> None:
    compare("two_vgg19", policy, tolerance, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["snapshot1", "snapshot2", "collide", "contend"])
@pytest.mark.parametrize(("policy", "tolerance"), [("ecmp", 0.10), ("polyrhythm", 0.05)])
def test_scenarios_agree_with_packets(name: str, policy: str, tolerance: float, tmp_path: Path) -> None:
    compare(name, policy, tolerance, tmp_path)
