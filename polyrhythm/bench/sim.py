# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench sim`: the speed of the simulator.

An event is the begin or end of a flow, or a timer that fires. Rates are events per second of processor time
of one core. Engines are compiled before the measurement. Repeated iterations are not skipped, except in the
two weeks. Of these each policy has a process of its own: `two_weeks_POLICY_s` is wall-clock time,
`two_weeks_POLICY_cpu_s` processor time with the compilation of the kernels, and `two_weeks_POLICY_mib` the
peak memory of the process.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from controller.kernel import available, version
from controller.planner.registry import registered
from controller.routing.ecmp import draw_port
from controller.routing.forwarding import forwarding
from controller.routing.paths import path_of
from polyrhythm.bench.report import show
from polyrhythm.progress import Bar, working
from polyrhythm.subcommands import integer
from sim.cluster import machines
from sim.engine import FlowEngine, KernelEngine
from sim.generators import paper_fabric, paper_jobs, poisson
from sim.jobrun import JobRun
from sim.network import Network
from sim.reference import ReferenceEngine
from sim.scheduler import scheduler_named
from sim.shape import program
from sim.simulation import Simulation, SimulationSettings
from sim.task_graph import TaskGraphBuilder
from sim.units import CLASSES, NEVER, PS_PER_MS, PS_PER_S
from topo.generate import leaf_spine

PAPER_JOBS = (("BLOOM", 8), ("GPT-3", 8), ("LLaMA2", 4), ("BLOOM", 4), ("GPT-3", 4))
ACTIVE_FLOWS = 50_000
OVERLOADED_EVENTS = 10_000
PLAIN_S = 5.0
PROGRESS_S = 10.0
WEEKS_POLICIES = ("crux", "polyrhythm")
WEEKS_GPUS, WEEKS_JOBS, WEEKS_S = 2_000, 5_000, 14 * 86_400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm bench sim`."""
    parser.add_argument(
        "--full", action="store_true", help="also simulate two weeks of 2,000 GPUs and 5,000 jobs"
    )
    parser.add_argument(
        "--policies",
        nargs="+",
        choices=registered(),
        default=list(WEEKS_POLICIES),
        metavar="NAME",
        help=f"policies of the two weeks (default {' '.join(WEEKS_POLICIES)})",
    )
    parser.add_argument(
        "--jobs",
        type=integer(1, WEEKS_JOBS),
        default=WEEKS_JOBS,
        metavar="N",
        help=f"simulate the first N jobs of the two weeks (default {WEEKS_JOBS})",
    )
    parser.add_argument("--seed", type=integer(0), default=1)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print. Returns 1 without Numba, because the plain engine is not meant for speed."""
    if not available():
        print("bench sim: Numba is not installed, only the plain engine runs", file=sys.stderr)
        return 1
    with working("measuring"):
        report = {"numba": version(), **_paper(args.seed), **_overloaded(args.seed)}
    if args.full:
        report |= _two_weeks(args.policies, args.jobs, args.seed)
    show(report, args.json)
    return 0


def paper_runs(seed: int, iterations: int) -> tuple[Network, list[JobRun]]:
    """The full workload of the routing paper under ECMP: 64 leaves, 32 spines, 5 jobs."""
    network = Network(paper_fabric())
    table = forwarding(network.topology)
    runs = []
    for job in paper_jobs(network.topology, PAPER_JOBS, seed):
        built = program(job.model.shape(job.ring), job.name, job.ranks)
        paths = tuple(
            network.links(path_of(network.topology, table, c.src, c.dst, draw_port(c.flow, seed)))
            for c in built.channels
        )
        runs.append(JobRun(job.name, built, paths, CLASSES // 2, iterations, round(job.start_s * PS_PER_S)))
    return network, runs


def _finish(engine: FlowEngine) -> float:
    """Run to the end of all jobs; returns the processor time in seconds."""
    begin = time.process_time()
    while engine.advance(NEVER):
        pass
    return time.process_time() - begin


def _paper(seed: int) -> dict[str, Any]:
    rates: dict[str, float] = {}
    for name, iterations, full in (("compile", 1, False), ("local", 20, False), ("full", 2, True)):
        network, runs = paper_runs(seed, iterations)
        engine = KernelEngine(network.capacity, network.marks, runs, 0, skip=False, full=full)
        rates[name] = _finish(engine) / engine.events
    network, runs = paper_runs(seed, 1)
    plain = ReferenceEngine(network.capacity, network.marks, runs, 0)
    begin = time.process_time()
    # The plain engine is a thousand times slower, so it simulates only the first all-reduces.
    while time.process_time() - begin < PLAIN_S and plain.next_event() < NEVER:
        plain.advance(plain.next_event())
    plain_s = (time.process_time() - begin) / plain.events
    return {
        "events_per_second": round(1 / rates["local"]),
        "events_per_second_full_compiled": round(1 / rates["full"]),
        "events_per_second_full_plain": round(1 / plain_s),
        "speedup_full_resolve": round(plain_s / rates["local"], 1),
        "speedup_full_compiled": round(rates["full"] / rates["local"], 1),
    }


def overloaded_runs(network: Network, seed: int, flows: int) -> list[JobRun]:
    """`flows` chains of two random flows, spread evenly over the classes, between random pairs of NICs."""
    random = np.random.default_rng(seed)
    hosts, spines = network.topology.hosts, [s.name for s in network.topology.switches if s.tier == "spine"]
    runs = []
    for klass in range(CLASSES):
        builder, paths = TaskGraphBuilder(), []
        for i in range(flows // CLASSES):
            src, dst = (hosts[k] for k in random.choice(len(hosts), 2, replace=False))
            middle = (src.leaf, spines[random.integers(len(spines))], dst.leaf)
            paths.append(
                network.links((src.name, *(middle if src.leaf != dst.leaf else middle[:1]), dst.name))
            )
            channel = builder.channel(src.name, dst.name, f"c{klass}/{i}")
            first = builder.flow([], channel, float(random.uniform(1e7, 8e8)))
            builder.flow([first], channel, float(random.uniform(1e7, 8e8)))
        runs.append(JobRun(f"c{klass}", builder.build(), tuple(paths), klass, 1, 0))
    return runs


def _overloaded(seed: int) -> dict[str, Any]:
    network = Network(paper_fabric())
    engine = KernelEngine(
        network.capacity, network.marks, overloaded_runs(network, seed, ACTIVE_FLOWS), 0, skip=False
    )
    engine.advance(0)
    before, begin, now = engine.events, time.process_time(), 0
    while engine.events - before < OVERLOADED_EVENTS:
        now += PS_PER_MS // 10
        engine.advance(now)
    took = time.process_time() - begin
    return {
        "events_per_second_overloaded": round((engine.events - before) / took),
        "active_flows_overloaded": len(engine.rates()),
    }


def _two_weeks(policies: Sequence[str], jobs: int, seed: int) -> dict[str, Any]:
    """The figures of the two weeks, by policy, each measured in a process of its own."""
    found: dict[str, Any] = {}
    for policy in policies:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            figures = pool.submit(two_weeks, policy, jobs, seed).result()
        found |= {f"two_weeks_{policy}_{name}": value for name, value in figures.items()}
    return found


def two_weeks(policy: str, jobs: int, seed: int) -> dict[str, Any]:
    """Simulate the first `jobs` of the 5,000 jobs of two weeks under a policy, in this process."""
    topology = leaf_spine(25, 8, 10, host_bps=10**11, fabric_bps=10**11)
    cluster = machines(Network(topology), WEEKS_GPUS // len(topology.hosts))
    simulation = Simulation(
        cluster,
        poisson(WEEKS_JOBS, seed, gpus=cluster.gpus, horizon_s=WEEKS_S)[:jobs],
        SimulationSettings(policy=policy, until_ns=round(WEEKS_S * 1e9), seed=seed, log=False),
        scheduler=scheduler_named("fifo"),
    )
    begin, begin_cpu = time.perf_counter(), time.process_time()
    with Bar(f"two weeks, {policy}", jobs, lines_s=PROGRESS_S) as bar:
        simulation.run(progress=bar.step)
    memory = simulation.memory
    return {
        "s": round(time.perf_counter() - begin, 1),
        "cpu_s": round(time.process_time() - begin_cpu, 1),
        "mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10),
        "events": memory.events,
        "iterations": sum(o.iterations for o in memory.outcomes.values()),
        "iterations_skipped": memory.skipped,
        "finished": sum(o.ended >= 0 for o in memory.outcomes.values()),
    }
