# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench routing`: the time and the quality of the routing algorithms.

Every figure is the median of RUNS runs in one process, after a first run that compiles or loads the kernels.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from controller.routing.affine_hash import bases, contributions
from controller.routing.algorithms import Options, solve
from controller.routing.algorithms.base import Algorithm, loads
from controller.routing.algorithms.greedy import greedy
from controller.routing.algorithms.ilp import ilp, installed, one_part
from controller.routing.algorithms.optimal import optimal
from controller.routing.components import components
from controller.routing.fabric import Fabric, Floats, Ints, LeafDemand, TwoTier
from controller.routing.failover import CurrentAssignment, Failover, events
from controller.routing.from_topology import fabric_of
from controller.routing.incremental import IncrementalColouring
from controller.routing.port_learning import learn
from controller.routing.ports import destinations, ports_for, ports_of_all_paths, repeats, sources, stages
from controller.routing.rates import CLASSES, maxmin
from controller.routing.three_tier import three_tier as three_tier_arrays
from polyrhythm.bench.report import show
from polyrhythm.progress import working
from polyrhythm.subcommands import integer
from topo.generate import leaf_spine, three_tier
from topo.graph import OUR_HASH

RUNS = 15
_RATE = 100_000_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm bench routing`."""
    parser.add_argument(
        "--seed", type=integer(0), default=1, metavar="N", help="seed of the instances, 0 or more (default 1)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    with working("measuring"):
        found = measure(args.seed)
    show(found, args.json)
    return 0


def measure(seed: int) -> dict[str, Any]:
    """All figures by name. Each name contains the unit."""
    rng = np.random.default_rng(seed)
    return {
        **_greedy(rng),
        **_optimal(rng),
        **_fat_tree(rng),
        **_ilp(rng),
        **_live(rng),
        **_rates(rng),
        **_ports(rng),
        **_failover(rng),
        **_failover_live(seed),
        **_components(rng),
    }


def _median(work: Callable[[], object], runs: int = RUNS) -> float:
    """The median time in seconds."""
    work()
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _clos(leaves: int, spines: int) -> TwoTier:
    names = [tuple(f"{kind}{i + 1}" for i in range(n)) for kind, n in (("leaf", leaves), ("spine", spines))]
    return TwoTier(names[0], names[1], np.full((leaves, spines), float(_RATE)))


def _uniform(leaves: int, count: int, rng: np.random.Generator) -> LeafDemand:
    src = rng.integers(0, leaves, count)
    dst = (src + rng.integers(1, leaves, count)) % leaves
    return LeafDemand(src.astype(np.int32), dst.astype(np.int32))


def _full(leaves: int, per_leaf: int, rng: np.random.Generator) -> LeafDemand:
    """One flow from every NIC and one to every NIC. Flows inside a leaf load no link."""
    nics = leaves * per_leaf
    src, dst = np.arange(nics) // per_leaf, rng.permutation(nics) // per_leaf
    away = src != dst
    return LeafDemand(src[away].astype(np.int32), dst[away].astype(np.int32))


def _excess(fabric: Fabric, demand: LeafDemand, choice: Ints) -> int:
    return int(loads(fabric, demand, choice).max(initial=0)) - fabric.bound(demand)


def _greedy(rng: np.random.Generator) -> dict[str, Any]:
    fabric, flows = _clos(64, 32), _uniform(64, 1500, rng)
    fast = _median(lambda: solve(greedy, fabric, flows))
    plain = _median(lambda: solve(greedy, fabric, flows, Options(plain=True)))
    wide, many = _clos(512, 64), _uniform(512, 100_000, rng)
    return {
        "greedy_1500_ms": 1e3 * fast,
        "greedy_speedup_1500": plain / fast,
        "greedy_100k_ms": 1e3 * _median(lambda: solve(greedy, wide, many)),
    }


def _optimal(rng: np.random.Generator) -> dict[str, Any]:
    fabric, flows = _clos(64, 32), _full(64, 32, rng)
    return {
        "optimal_2048_us": 1e6 * _median(lambda: solve(optimal, fabric, flows)),
        "optimal_excess": _excess(fabric, flows, solve(optimal, fabric, flows)),
        "greedy_excess": _excess(fabric, flows, solve(greedy, fabric, flows)),
    }


def _fat_tree(rng: np.random.Generator) -> dict[str, Any]:
    """The fat tree of 32-port switches: 8,192 hosts, 512 leaves, 512 spines, 256 cores."""
    fabric = three_tier_arrays(three_tier(32, 16, 16, 16, 16, host_bps=_RATE, fabric_bps=_RATE))
    if fabric is None:
        raise RuntimeError("the generator made no three-tier Clos")
    flows = _full(512, 16, rng)
    time_s = _median(lambda: solve(optimal, fabric, flows))
    carried = loads(fabric, flows, solve(optimal, fabric, flows))
    leaf_links = 2 * fabric.up.size
    far = flows.take(fabric.pods(flows.src) != fabric.pods(flows.dst))
    ends = ((flows.src, 16), (flows.dst, 16))
    leaf_bound = max(int(-(-np.bincount(end).max() // ways)) for end, ways in ends)
    pods = (fabric.pods(far.src), fabric.pods(far.dst))
    core_bound = max(int(-(-np.bincount(end).max() // 256)) for end in pods)
    return {
        "fat_tree_8k_ms": 1e3 * time_s,
        "fat_tree_8k_excess": {
            "leaf": int(carried[:leaf_links].max()) - leaf_bound,
            "core": int(carried[leaf_links:].max()) - core_bound,
        },
    }


def _ilp(rng: np.random.Generator) -> dict[str, Any]:
    """One instance by the ILP solver HiGHS, at most 10 s: 256 flows, 16 leaves, 16 spines, full load."""
    if not installed():
        return {"optimal_vs_ilp": None}
    fabric, flows = _clos(16, 16), _full(16, 16, rng)
    began = time.perf_counter()
    choice = solve(ilp, fabric, flows, Options(limit_s=10.0))
    ilp_s = time.perf_counter() - began
    parts = _full(4, 16, rng)
    apart = LeafDemand(
        np.concatenate([parts.src + 4 * i for i in range(4)]).astype(np.int32),
        np.concatenate([parts.dst + 4 * i for i in range(4)]).astype(np.int32),
    )
    whole_s = _median(partial(one_part, fabric, apart, Options()), 3)
    return {
        "components_ilp_gain": whole_s / _median(partial(solve, ilp, fabric, apart), 3),
        "optimal_vs_ilp": ilp_s / _median(lambda: solve(optimal, fabric, flows)),
        "ilp_s": ilp_s,
        "ilp_excess": _excess(fabric, flows, choice),
    }


def _live(rng: np.random.Generator) -> dict[str, Any]:
    """One flow ends and another begins, on 64 leaves and 32 spines at nine tenths of the full load."""
    live = IncrementalColouring(64, 32)
    pairs = _full(64, 32, rng)
    ends = list(zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True))
    spare = [ends.pop() for _ in range(len(ends) // 10)]
    flows = [live.arrive(u, v) for u, v in ends]
    picks = rng.integers(0, len(flows), 500).tolist()

    def churn() -> None:
        for i, pick in enumerate(picks):
            live.leave(flows[pick])
            place = i % len(spare)
            spare[place], ends[pick] = ends[pick], spare[place]
            flows[pick] = live.arrive(*ends[pick])

    per_event = _median(churn) / (2 * len(picks))
    return {"arrive_leave_us": 1e6 * per_event, "arrive_leave_max_load": int(live.loads().max())}


def _rates(rng: np.random.Generator) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, leaves, spines, count in (("1500", 64, 32, 1500), ("100k", 512, 64, 100_000)):
        fabric, flows = _clos(leaves, spines), _uniform(leaves, count, rng)
        paths = fabric.links(flows, solve(greedy, fabric, flows))
        klass = rng.integers(0, CLASSES, count).astype(np.int8)
        capacity = fabric.capacity
        found[f"maxmin_{name}_ms"] = 1e3 * _median(partial(maxmin, paths, capacity, klass))
        if count == 1500:
            found["maxmin_error"] = _error(paths, capacity, klass)
    return found


def _error(paths: Ints, capacity: Floats, klass: Any) -> float:
    """The largest relative difference between the kernel and the reference."""
    rates, plain = maxmin(paths, capacity, klass), maxmin(paths, capacity, klass, plain=True)
    return float(np.max(np.abs(rates - plain) / np.maximum(plain, 1.0)))


def _ports(rng: np.random.Generator) -> dict[str, Any]:
    src, dst = (rng.integers(0, 2**32, 100_000, dtype=np.uint32) for _ in range(2))
    table = (np.arange(256) % 32).astype(np.int32)
    counts = []
    for base in bases(OUR_HASH, src[:1000], dst[:1000]):
        slices = ((base ^ contributions("crc32")) & np.uint32(31)).tolist()
        counts.append(learn(partial(_slice, slices), 32).probes)
    return {
        "ports_100k_ms": 1e3 * _median(lambda: ports_of_all_paths(src, dst, table)),
        "probes_linear_32": statistics.mean(counts),
    }


def _slice(slices: list[int], port: int) -> int:
    return slices[port - 0xC000]


def _failover(rng: np.random.Generator) -> dict[str, Any]:
    """The answers to all single failures of 64 leaves and 32 spines at full load."""
    topology = leaf_spine(64, 32, 32, host_bps=_RATE, fabric_bps=_RATE)
    fabric = fabric_of(topology)
    nics = rng.permutation(2048)
    flows = LeafDemand((np.arange(2048) // 32).astype(np.int32), (nics // 32).astype(np.int32))
    choice = solve(optimal, fabric, flows)
    src = sources((h.ip for h in topology.hosts), topology.hash)
    dst = destinations((topology.hosts[n].ip for n in nics.tolist()), topology.hash)
    ports = ports_for(src, dst, stages(topology, fabric, flows, choice), skip=repeats(src, dst, choice))
    everything = list(events(topology))
    began = time.perf_counter()
    failover = Failover(topology, fabric, CurrentAssignment(src, dst, flows, choice, ports))
    for event in everything:
        failover.answer(event)
    prepared_s = time.perf_counter() - began
    return {
        "failover_plans": len(everything),
        "failover_prepare_ms_per_plan": 1e3 * prepared_s / len(everything),
    }


_LIVE = """
name: bench
fabric: {kind: leaf_spine, leaves: 2, spines: 4, hosts_per_leaf: 4, host_gbps: 50, fabric_gbps: 50}
warmup: 1
iterations: 8
jobs:
"""


def _failover_live(seed: int) -> dict[str, Any]:
    """The fabric time from a cut cable until the last affected flow has its new path at its agent.

    It is measured in a run of the embedded fabric with its controller. None: the failure affected no flow.
    """
    from polyrhythm.run.session import SessionSpec, run_session

    phase = "phases: [{start_ms: 0, end_ms: 20, gbps: 50}]"
    jobs = "".join(
        f"  - {{name: j{i}, model: M, gpus: 2, hosts: [h{i}, h{i + 4}], period_ms: 40, {phase}}}\n"
        for i in range(1, 5)
    )
    with tempfile.TemporaryDirectory(prefix="polyrhythm-") as folder:
        scenario = Path(folder) / "bench.yaml"
        scenario.write_text(_LIVE + jobs, encoding="utf-8")
        spec = SessionSpec(scenario, "routing", "together", seed, Path(folder), fail=("leaf1:spine1@250",))
        result = asyncio.run(run_session(spec, lambda _: None))
    (outcome,) = result.failovers
    return {"failover_live_ms": outcome["last_reassigned_ms"], "failover_live_lost": outcome["packets_lost"]}


def _components(rng: np.random.Generator) -> dict[str, Any]:
    """Whether it pays to solve independent parts in parallel: eight groups of leaves that do not communicate
    with one another, with 8,192 flows each.
    """
    fabric = _clos(512, 64)
    parts = [_full(64, 128, rng) for _ in range(8)]
    src = np.concatenate([part.src + 64 * i for i, part in enumerate(parts)])
    dst = np.concatenate([part.dst + 64 * i for i, part in enumerate(parts)])
    flows = LeafDemand(src.astype(np.int32), dst.astype(np.int32))
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def apart(algorithm: Algorithm) -> None:
            found = [flows.take(part) for part in components(fabric, flows)]
            list(pool.map(partial(solve, algorithm, fabric), found))

        return {
            "components": len(components(fabric, flows)),
            "components_greedy_gain": _median(partial(solve, greedy, fabric, flows))
            / _median(partial(apart, greedy)),
            "components_optimal_gain": _median(partial(solve, optimal, fabric, flows))
            / _median(partial(apart, optimal)),
        }
