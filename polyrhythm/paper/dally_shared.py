# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper dally --model shared`: jobs that Dally or another scheduler places meet on links, and a
policy of the network serves them."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np

from controller.planner import policy_named
from polyrhythm.paper import harness
from polyrhythm.paper.resumable import Row, Task, collect
from sim.cluster import Cluster, JobRequest, check, machines
from sim.isolated_workload import drawn_requests
from sim.network import Network
from sim.readers import read_philly, read_sensetime
from sim.scheduler import scheduler_named
from sim.simulation import Simulation, SimulationSettings
from sim.state import JobOutcome
from sim.units import seconds
from topo.generate import leaf_spine

SCHEDULER, BASELINE, OURS = "dally", "ecmp", "polyrhythm"
POLICIES = (BASELINE, OURS)
RACKS = (8, 16)
BEYOND = 0.05
"""Our aim: with paths, levels and time, the mean JCT is shorter by this part than with Dally over ECMP."""
_SPINES, _MACHINES, _GPUS = 4, 8, 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that only shared links have."""
    parser.add_argument(
        "--policies",
        nargs="+",
        metavar="NAME",
        default=list(POLICIES),
        help=f"shared: policies of the network (default {' '.join(POLICIES)}); {BASELINE} always runs",
    )
    parser.add_argument(
        "--host-gbps",
        type=float,
        default=100.0,
        metavar="F",
        help="shared: the rate of a machine (default 100)",
    )
    parser.add_argument(
        "--oversubscription",
        type=float,
        default=2.0,
        metavar="F",
        help="shared: the machines' rate over that of their rack's uplinks (default 2, as CASSINI's testbed)",
    )
    parser.add_argument(
        "--load",
        type=float,
        default=0.9,
        metavar="F",
        help="shared: Poisson arrivals keep this part of the GPUs busy if no job communicates (default 0.9: "
        "with the paper's mean gap a third is busy, and nothing waits)",
    )


def wrong(args: argparse.Namespace) -> str | None:
    """What is wrong with these options."""
    for option, value, least, most in (
        ("host-gbps", args.host_gbps, 0.1, 1e5),
        ("oversubscription", args.oversubscription, 0.1, 100),
        ("load", args.load, 0.01, 100),
    ):
        if not least <= value <= most:
            return f"--{option}: {value}; legal: a number from {least:g} to {most:g}"
    for name in args.policies:
        try:
            policy_named(name)
        except ValueError as error:
            return f"--policies: {error}"
    return None


def workload(args: argparse.Namespace) -> list[JobRequest]:
    """The jobs, with their own arrivals.

    Raises:
        TraceError, WorkloadError: a bad file, or jobs that the smallest cluster can never run.
    """
    if args.trace is None:
        requests = drawn_requests(args.jobs, args.seed, each=args.work == "each")
    else:
        path = Path(args.trace)
        requests = (read_sensetime if path.suffix == ".json" else read_philly)(path)
        if args.work == "each":
            # The readers divide a job's iterations by its GPUs.
            requests = [replace(r, iterations=r.iterations * r.gpus) for r in requests]
    check(cluster(min(args.racks), args.host_gbps, args.oversubscription), requests)
    return requests


def cluster(racks: int, host_gbps: float, oversubscription: float) -> Cluster:
    """`racks` leaves of 8 machines with 8 GPUs under 4 spines."""
    host = round(host_gbps * 1e9)
    uplink = round(_MACHINES * host / _SPINES / oversubscription)
    return machines(Network(leaf_spine(racks, _SPINES, _MACHINES, host_bps=host, fabric_bps=uplink)), _GPUS)


def arriving(
    requests: Sequence[JobRequest], arrivals: str, gpus: int, load: float, seed: int
) -> list[JobRequest]:
    """The jobs in the order of the file: all at time 0 (`batch`), or as a Poisson process in which they keep
    the part `load` of `gpus` GPUs busy if none communicates."""
    if arrivals == "batch":
        return [replace(r, arrival_ns=0) for r in requests]
    work = sum(r.iterations * r.shape.compute_ns / 1e9 * r.gpus for r in requests)
    gap = work / (load * gpus) / len(requests)
    random, at, found = Random(f"{seed}/arrivals"), 0.0, []
    for request in requests:
        found.append(replace(request, arrival_ns=round(at * 1e9)))
        at += random.expovariate(1 / gap)
    return found


def experiment(args: argparse.Namespace, requests: Sequence[JobRequest]) -> harness.ExperimentResult:
    """All simulations, and the gain of each scheduler and policy over Dally with ECMP."""
    names = list(dict.fromkeys((BASELINE, *args.policies)))
    schedulers = list(dict.fromkeys((SCHEDULER, *args.schedulers)))
    options = (
        args.seed, args.host_gbps, args.oversubscription, args.load, args.lease_h, args.restore_s,
        args.trace and str(Path(args.trace).resolve()), args.jobs, args.work,
    )  # fmt: skip
    tasks: list[Task] = [
        (arrivals, racks, scheduler, name, *options)
        for arrivals in ("batch", "poisson")
        for racks in sorted(set(args.racks))
        for scheduler in schedulers
        for name in names
    ]
    path = args.out / "rows-shared.jsonl" if args.out else None
    found = collect(
        partial(_measure, requests=requests), tasks, min(args.workers, len(tasks)), path, "simulations"
    )
    rows = []
    for task, row in found.items():
        arrivals, racks, scheduler, name = task[:4]
        base = found[arrivals, racks, SCHEDULER, BASELINE, *options]["figures"]
        own = row["figures"]
        gains = {
            f: round(1 - own[f] / base[f], 4) if base[f] else None
            for f in own
            if f.startswith(("jct", "make"))
        }
        place = {"arrivals": arrivals, "racks": racks, "scheduler": scheduler, "policy": name}
        rows.append({**place, **own, "shorter_by": gains})
    report = {
        "model": "shared",
        "scheduler": SCHEDULER,
        "workload": args.trace or f"drawn: {len(requests)} jobs, seed {args.seed}",
        "jobs": len(requests),
        "largest_demand": max(r.gpus for r in requests),
        "work": args.work,
        "host_gbps": args.host_gbps,
        "oversubscription": args.oversubscription,
        "load": args.load,
        "lease_s": args.lease_h * 3600,
        "restore_s": args.restore_s,
        "aim": BEYOND,
        "rows": rows,
    }
    return harness.ExperimentResult(report, lambda out: _write(out, found))


def _measure(task: Task, requests: Sequence[JobRequest]) -> Row:
    arrivals, racks, scheduler, name, seed, host_gbps, oversubscription, load, lease_h, restore_s, *_ = task
    servers = cluster(racks, host_gbps, oversubscription)
    simulation = Simulation(
        servers,
        arriving(requests, arrivals, servers.gpus, load, seed),
        SimulationSettings(policy=name, seed=seed, restore_ns=round(restore_s * 1e9), log=False),
        scheduler=scheduler_named(scheduler, lease_s=lease_h * 3600, seed=seed),
    )
    simulation.run()
    outcomes = list(simulation.memory.outcomes.values())
    leaf = {host.name: host.leaf for host in servers.network.topology.hosts}
    return {
        "figures": _figures(outcomes, leaf),
        "jobs": [
            [o.request.name, round(_completion(o), 1), o.request.gpus, " ".join(o.hosts)] for o in outcomes
        ],
    }


def _completion(outcome: JobOutcome) -> float:
    return seconds(outcome.ended) - outcome.request.arrival_ns / 1e9


def _figures(outcomes: Sequence[JobOutcome], leaf: dict[str, str]) -> dict[str, float]:
    """Times in s. `*_gpu_time`: the part of the GPU time that is of jobs whose last GPUs were on several
    machines, or in several racks. `network_time`: the part of it that jobs lost to the network.
    `contended_time`: the part that they lost to other jobs on their links, beyond what their own transfers
    take alone on the same GPUs."""
    completion = np.array([_completion(o) for o in outcomes])
    gpu_time = np.array([o.total * o.request.gpus for o in outcomes], dtype=np.float64)
    computed = sum(o.iterations * o.request.shape.compute_ns * 1000.0 * o.request.gpus for o in outcomes)
    alone = sum(o.iterations * o.ideal * o.request.gpus for o in outcomes)
    several = np.array([len(o.hosts) > 1 for o in outcomes])
    across = np.array([len({leaf[h] for h in o.hosts if h in leaf}) > 1 for o in outcomes])
    p95, p99 = np.percentile(completion, [95, 99])
    return {
        "makespan": round(max(seconds(o.ended) for o in outcomes), 1),
        "jct_mean": round(float(completion.mean()), 1),
        "jct_median": round(float(np.median(completion)), 1),
        "jct_p95": round(float(p95), 1),
        "jct_p99": round(float(p99), 1),
        "queued_mean": round(float(np.mean([seconds(o.waited) for o in outcomes])), 1),
        "machines_gpu_time": round(float(gpu_time[several].sum() / gpu_time.sum()), 4),
        "racks_gpu_time": round(float(gpu_time[across].sum() / gpu_time.sum()), 4),
        "network_time": round(max(0.0, float(1 - computed / gpu_time.sum())), 4),
        "contended_time": round(max(0.0, float(1 - alone / gpu_time.sum())), 4),
    }


def _write(out: Path, found: dict[Task, Row]) -> list[str]:
    with (out / "jobs-shared.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(("arrivals", "racks", "scheduler", "policy", "job", "jct_s", "gpus", "hosts"))
        for task, row in found.items():
            table.writerows((*task[:4], *job) for job in row["jobs"])
    return []


def to_text(report: harness.Report) -> str:
    """The table, and where the aim is missed the reason that the figures give."""
    lines = [
        f"workload: {report['workload']} ({report['jobs']} jobs of up to {report['largest_demand']} GPUs)",
        f"machines of {report['host_gbps']:g} Gbit/s, racks "
        f"{report['oversubscription']:g}:1 oversubscribed; Poisson load {report['load']:g}; work "
        f"{report['work']}",
        f"{'':17}{'scheduler':20}{'policy':12}{'mean JCT':>10}"
        + "".join(f"{name:>9}" for name in ("shorter", "median", "P95", "P99"))
        + "  "
        "GPU time on several machines, racks, lost to the network, and of that to other jobs",
    ]
    for row in report["rows"]:
        lines.append(
            f"{row['arrivals']:8}{row['racks']:3} racks {row['scheduler']:20}{row['policy']:12}"
            f"{row['jct_mean'] / 1e6:10.3f}"
            f"{_percent(row['shorter_by']['jct_mean']):>9}"
            + "".join(f"{_percent(row['shorter_by'][f]):>9}" for f in ("jct_median", "jct_p95", "jct_p99"))
            + f"  {_percent(row['machines_gpu_time'])}, {_percent(row['racks_gpu_time'])}, "
            f"{_percent(row['network_time'])}, {_percent(row['contended_time'])}"
        )
    lines.append(
        "mean JCT in 10^6 s; the others as the part by which they are shorter than with "
        f"{report['scheduler']} over {BASELINE}"
    )
    for row in report["rows"]:
        gain = row["shorter_by"]["jct_mean"]
        if (row["scheduler"], row["policy"]) == (SCHEDULER, OURS) and gain is not None:
            verdict = "reached" if gain >= report["aim"] else "missed"
            lines.append(
                f"{row['arrivals']}, {row['racks']} racks: {_percent(gain)} of {_percent(report['aim'])}: "
                + verdict
                + ("" if verdict == "reached" else f"; over {BASELINE} {_lost(report['rows'], row)}")
            )
    return "\n".join(lines)


def _lost(rows: Sequence[Row], row: Row) -> str:
    """What there was to gain."""
    (base,) = (
        r
        for r in rows
        if (r["arrivals"], r["racks"]) == (row["arrivals"], row["racks"])
        and (r["scheduler"], r["policy"]) == (SCHEDULER, BASELINE)
    )
    return (
        f"jobs lost {_percent(base['network_time'])} of their GPU time to the network, "
        f"{_percent(base['contended_time'])} of it to other jobs, which is what a policy could win back; "
        f"{_percent(base['racks_gpu_time'])} was of jobs in several racks"
    )


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f} %"
