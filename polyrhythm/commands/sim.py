# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm sim`: simulate a workload on a cluster, flow by flow, under one or more policies."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from controller.placement.schedulers import SchedulerOptions
from controller.planner import Policy, policy_named
from controller.planner.options import (
    POLICY_HELP,
    add_max_slowdown,
    add_option,
    policy_of,
    with_typed_options,
)
from polyrhythm.folder_lock import alone_in
from polyrhythm.paper.harness import not_written, refused
from polyrhythm.progress import Bar
from polyrhythm.simulated_workload import ClusterOptions, SimulatedWorkload, load_workload, settings_of
from polyrhythm.subcommands import integer
from sim import figures
from sim.checkpoint import fingerprint, load, save
from sim.cluster import Cluster, JobRequest, WorkloadError
from sim.output import MarkEstimate, parquet_available, replace_file, summary, versions, write_tables
from sim.scheduler import SCHEDULERS, scheduler_named
from sim.simulation import FabricFailure, Simulation, SimulationSettings

CHECKPOINT_EVERY_S = 30.0
"""Chosen: seconds of host time between checkpoints."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm sim`."""
    add = parser.add_argument
    add(
        "--trace",
        required=True,
        metavar="FILE",
        help="the workload: a scenario (a file, or the name of one that comes with Polyrhythm), a trace "
        "(Philly or Muri CSV, Lingjun CSV, SenseTime JSON), or a generator: poisson:JOBS, batch:JOBS, "
        "snapshot:JOBS, paper:BLOOM/8,GPT-3/4",
    )
    add(
        "--topology",
        type=Path,
        metavar="FILE",
        help="the fabric: a topology file, or the topo.csv of Lingjun's trace (not for a scenario, which "
        "has its own fabric)",
    )
    add(
        "--policy",
        default="ecmp",
        metavar="NAME,NAME",
        help=f"policies to simulate, one after another (default ecmp); each is {POLICY_HELP}",
    )
    add_max_slowdown(parser)
    add_option(parser, "an option of those of the policies that have it", dest="each_option")
    add("--scheduler", default="fifo", choices=SCHEDULERS, help="which waiting job runs next (default fifo)")
    add(
        "--lease-s",
        type=float,
        default=SchedulerOptions().lease_s,
        metavar="S",
        help="seconds after which a placement scheduler (dally, tiresias, ...) offers a job's GPUs again "
        f"(default {SchedulerOptions().lease_s:g})",
    )
    add(
        "--seed",
        type=integer(0),
        default=1,
        metavar="N",
        help="seed of all random choices, 0 or more (default 1)",
    )
    add("--gpus-per-server", type=int, default=8, metavar="N", help="GPUs of each server (default 8)")
    add(
        "--pcie-gbps",
        type=float,
        default=0.0,
        metavar="G",
        help="rate between the GPUs and the NIC of a server in Gbit/s; 0: no limit (default 0)",
    )
    add(
        "--nvlink-gbps",
        type=float,
        default=0.0,
        metavar="G",
        help="rate between the GPUs of a server in Gbit/s; 0: no limit (default 0)",
    )
    add(
        "--host-gbps",
        type=float,
        default=200.0,
        metavar="G",
        help="rate of the NICs in Lingjun's topo.csv in Gbit/s (default 200)",
    )
    add(
        "--fabric-gbps",
        type=float,
        default=400.0,
        metavar="G",
        help="rate of the links between switches in Lingjun's topo.csv in Gbit/s (default 400)",
    )
    add(
        "--hours",
        type=float,
        default=24.0,
        metavar="H",
        help="hours over which generated jobs arrive (default 24)",
    )
    add(
        "--until-s",
        type=float,
        default=0.0,
        metavar="S",
        help="stop at this time in seconds; 0: when all jobs have ended (default 0)",
    )
    add(
        "--replan-delay-ms",
        type=float,
        default=0.0,
        metavar="MS",
        help="time from an event to the effect of the new plan in ms (default 0)",
    )
    add(
        "--restore-s",
        type=float,
        default=0.0,
        metavar="S",
        help="seconds in which a stopped job saves its state and continues elsewhere (default 0)",
    )
    add(
        "--samples-s",
        type=float,
        default=0.0,
        metavar="S",
        help="seconds between samples of the cluster's state; 0: no samples (default 0)",
    )
    add(
        "--fail",
        action="append",
        default=[],
        metavar="NAME@MS",
        help="a switch (spine2@3000) or cable (leaf1-spine2@3000) goes down at this time in ms; repeatable",
    )
    add(
        "--heal",
        action="append",
        default=[],
        metavar="NAME@MS",
        help="it comes up again at this time in ms; repeatable",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for tables, figures and checkpoints; an interrupted simulation continues from its "
        "checkpoint",
    )
    add(
        "--checkpoint-s",
        type=float,
        default=CHECKPOINT_EVERY_S,
        metavar="S",
        help="least number of seconds between checkpoints; 0: as often as possible (default %(default)g)",
    )
    add("--fresh", action="store_true", help="ignore the checkpoints in DIR")
    add("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Simulate each policy in turn and print a summary. Returns 1 if the disk is full, 2 for bad input."""
    try:
        workload = _workload(args)
        cluster, requests = workload.cluster, workload.requests
        settings = settings_of(
            workload,
            args.seed,
            replan_delay_ms=args.replan_delay_ms,
            restore_s=args.restore_s,
            until_s=args.until_s,
            samples_s=args.samples_s,
        )
        failures = _failures(args)
    except ValueError as error:
        return refused(str(error))
    except OSError as error:
        return refused(f"{error.filename}: {error.strerror or error}")
    try:
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
        with alone_in(args.out):
            simulations = {
                name: _simulate(args, cluster, requests, replace(settings, policy=name), failures)
                for name in dict.fromkeys(args.policy.split(","))
            }
            documents = [summary(s) for s in simulations.values()]
            files = _write(args, simulations, documents, workload.marking) if args.out else []
    except ValueError as error:
        return refused(str(error))
    except OSError as error:
        return not_written(error, args.out)
    if args.json:
        print(json.dumps({"policies": documents, "files": [str(f) for f in files]}, indent=2))
    else:
        Console(emoji=False).print(_table(documents))
    return 0


def _check_options(args: argparse.Namespace) -> None:
    """Check the range of numbers and the names of policies, before anything is read or simulated."""
    _policies(args)
    for option, least, most in (
        ("gpus_per_server", 1, 1_000_000),
        ("pcie_gbps", 0, 1e6),
        ("nvlink_gbps", 0, 1e6),
        ("host_gbps", 1e-3, 1e6),
        ("fabric_gbps", 1e-3, 1e6),
        ("hours", 1e-3, 2_500),
        ("until_s", 0, 9e6),
        ("lease_s", 0.001, 1e9),
        ("replan_delay_ms", 0, 9e6),
        ("restore_s", 0, 9e6),
        ("samples_s", 0, 9e6),
        ("checkpoint_s", 0, 9e6),
    ):
        value = getattr(args, option)
        if not least <= value <= most:
            raise WorkloadError(f"--{option.replace('_', '-')} {value:g}: legal: {least:g} to {most:g}")


def _policies(args: argparse.Namespace) -> dict[str, Policy]:
    """The policies by name. `--max-slowdown` and `--option` hold for those that have such an option.

    Raises:
        PolicyError: one does not exist or cannot be simulated, or none has an option that was given.
    """
    found = {name: policy_named(name) for name in args.policy.split(",")}
    searching = [name for name, policy in found.items() if policy.joint_search]
    found |= {name: policy_of(args, name, simulator=True) for name in searching or found}
    for option, value in args.each_option:
        having = [
            name
            for name, policy in found.items()
            if any(option in (known, known.rpartition(".")[2]) for known, _ in policy.options)
        ]
        # Where none has it, the error says which options there are.
        for name in having or found:
            found[name] = with_typed_options(found[name], [(option, value)])
    return found


def _workload(args: argparse.Namespace) -> SimulatedWorkload:
    _check_options(args)
    options = ClusterOptions(**{f.name: getattr(args, f.name) for f in fields(ClusterOptions)})
    return load_workload(args.trace, args.topology, options, args.seed)


def _failures(args: argparse.Namespace) -> list[FabricFailure]:
    found = []
    for up, words in ((False, args.fail), (True, args.heal)):
        for word in words:
            matched = re.fullmatch(r"(.+)@(\d+(?:\.\d+)?)", word)
            if matched is None:
                raise WorkloadError(f"{word!r}: not a failure; legal: NAME@MS, for example spine2@3000")
            found.append(FabricFailure(round(float(matched[2]) * 1e6), matched[1], up))
    return found


def _simulate(
    args: argparse.Namespace,
    cluster: Cluster,
    requests: Sequence[JobRequest],
    settings: SimulationSettings,
    failures: Sequence[FabricFailure],
) -> Simulation:
    """Simulate one policy, from its checkpoint if there is one, with a progress bar on a terminal."""
    policies = _policies(args)
    mark = fingerprint(
        cluster.network.topology, cluster.network.inside, cluster.servers, requests, settings, failures,
        args.scheduler, args.lease_s, versions(), policies[settings.policy].reference,
    )  # fmt: skip
    path = _checkpoint(args.out, settings.policy) if args.out else None
    memory = None
    if path is not None:
        memory = None if args.fresh else load(path, mark)
    if memory is not None:
        print(f"{settings.policy}: continuing from {memory.now / 1e12:.0f} s of {path}", file=sys.stderr)
    simulation = Simulation(
        cluster,
        requests,
        settings,
        scheduler=scheduler_named(args.scheduler, lease_s=args.lease_s, seed=settings.seed),
        failures=failures,
        memory=memory,
        policies=policies,
    )
    with Bar(settings.policy, len(requests)) as bar:
        saved = time.monotonic()

        def tidied(simulation: Simulation) -> None:
            nonlocal saved
            if path is not None and time.monotonic() - saved >= args.checkpoint_s:
                save(simulation.memory, path, mark)
                saved = time.monotonic()

        simulation.run(tidied, bar.step)
    if path is not None:
        # The checkpoint stays until all policies are done and written, so that none is simulated twice.
        save(simulation.memory, path, mark)
    return simulation


def _checkpoint(out: Path, policy: str) -> Path:
    return out / f"{policy}.checkpoint"


def _write(
    args: argparse.Namespace,
    simulations: dict[str, Simulation],
    documents: Sequence[dict[str, Any]],
    marking: MarkEstimate,
) -> list[Path]:
    files: list[Path] = []
    for name, simulation in simulations.items():
        folder = args.out / name
        folder.mkdir(parents=True, exist_ok=True)
        files += write_tables(simulation, folder, marking)
    if figures.available():
        files += figures.draw(simulations, args.out)
    if not parquet_available():
        print("pyarrow is not installed: tables are written as CSV only", file=sys.stderr)
    if not figures.available():
        print("matplotlib is not installed: no figures are drawn", file=sys.stderr)
    files.append(args.out / "summary.json")
    replace_file(files[-1], (json.dumps({"policies": documents}, indent=2) + "\n").encode())
    for name in simulations:
        _checkpoint(args.out, name).unlink(missing_ok=True)
    return files


def _table(documents: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        title="Job completion times, slow-down (iteration time over the ideal one), and GPU utilisation "
        "while allocated",
        header_style="bold",
    )
    shown: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
        ("policy", "policy", str),
        ("finished", "done", str),
        ("mean_completion_s", "mean s", lambda v: "-" if v is None else f"{v:,.0f}"),
        ("p99_completion_s", "p99 s", lambda v: "-" if v is None else f"{v:,.0f}"),
        ("mean_slowdown", "slow-down", lambda v: "-" if v is None else f"{v:.3f}"),
        ("gpu_utilisation", "GPUs busy", lambda v: "-" if v is None else f"{v:.1%}"),
        ("iterations", "iterations", lambda v: f"{v:,}"),
    )
    for _, heading, _ in shown:
        table.add_column(heading, justify="right", overflow="fold")
    for document in documents:
        table.add_row(*(Text(form(document[key])) for key, _, form in shown))
    return table
