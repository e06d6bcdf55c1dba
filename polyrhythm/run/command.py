# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm run`: its options, the progress bar, the table, the JSON file, and the live fabric on a
terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from controller.planner import POLICIES, Policy, PolicyError
from controller.planner.options import POLICY_HELP, add_policy_options, policy_arguments, policy_of
from polyrhythm.emulation.interactive import serve_command_line
from polyrhythm.emulation.process import check_supported
from polyrhythm.run.comparison import ScenarioResult, to_json
from polyrhythm.run.experiment import (
    BASELINE,
    OverallProgress,
    RunOptions,
    ScenarioRunner,
)
from polyrhythm.run.live import Live
from polyrhythm.run.processes import RunError
from polyrhythm.run.report import blocks, summary, table
from polyrhythm.scenario import Scenario, load_scenario, scenario_path, write_on
from polyrhythm.scenario.failures import FailureError, parse_failure
from polyrhythm.subcommands import integer
from polyrhythm_files import ConfigError
from topo.files import load_topology
from topo.mininet import MininetError, check_host

LIVE_SCENARIO = "cluster"
DEFAULT_SCENARIOS = ("two_vgg19", "snapshot1", "snapshot2", "collide", "contend")
# Runs from random start offsets. Chosen: the fewest whose mean says more than the synchronised start alone.
DEFAULT_OFFSETS = 3
# Columns that the table needs. On a narrower terminal the figures are lines instead.
WIDE = 150


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm run`."""
    parser.add_argument(
        "scenario",
        nargs="*",
        metavar="SCENARIO",
        help="a scenario file, or the name of a scenario that comes with Polyrhythm "
        f"(default: {', '.join(DEFAULT_SCENARIOS)})",
    )
    parser.add_argument("--once", action="store_true", help="exit after the table, also on a terminal")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to a JSON file (docs/run.md)")
    parser.add_argument(
        "--fabric",
        choices=("embedded", "mininet"),
        default="embedded",
        help="embedded: one process, no root (default); mininet: real switches, agents and sockets in "
        "network namespaces, in real time (needs root)",
    )
    parser.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        help="run the scenarios on the fabric of this topology file (also a topology.json of p4lang's "
        "tutorials)",
    )
    parser.add_argument(
        "--cli",
        action="store_true",
        help="do not measure; open Mininet's command line on the live fabric (needs --fabric mininet and one "
        "scenario or --topology)",
    )
    parser.add_argument(
        "--policy",
        metavar="NAME",
        default="polyrhythm",
        help=f"the policy to compare with ECMP (default polyrhythm): {POLICY_HELP}",
    )
    add_policy_options(parser)
    parser.add_argument(
        "--seed",
        type=integer(0),
        default=1,
        metavar="N",
        help="seed of start jitter, ECMP source ports and ECN marking, 0 or more (default 1)",
    )
    parser.add_argument(
        "--offsets",
        type=integer(0),
        default=None,
        metavar="N",
        help="also measure N runs from random start offsets, 0 or more (default "
        f"{DEFAULT_OFFSETS}; with --fabric mininet 0)",
    )
    parser.add_argument(
        "--profile",
        choices=("measured", "declared"),
        default="",
        help="measured: the controller profiles the jobs; declared: it uses the profiles that the jobs "
        "announce (default: as the scenario says)",
    )
    parser.add_argument(
        "--lanes",
        type=integer(1),
        default=2,
        metavar="N",
        help="number of sessions that run at once, 1 or more (default 2)",
    )
    parser.add_argument(
        "--fail",
        action="append",
        default=[],
        metavar="WHAT@MS",
        help="cause a failure at a fabric time in ms: power a switch off (spine2@3000), or cut the cables "
        "between two switches (leaf1:spine2@3000) or one cable, by its port (leaf1:5@3000), for good or "
        "until a time (spine2@3000-3500); repeatable",
    )
    parser.add_argument(
        "--port",
        type=integer(0, 65_535),
        default=8080,
        metavar="PORT",
        help="TCP port of the live page, 0 to 65535 (default 8080; if it is taken, the next free one)",
    )
    parser.add_argument(
        "--live-scenario",
        metavar="SCENARIO",
        help=f"the scenario of the live page (default: the first measured one, or {LIVE_SCENARIO} if "
        f"none is named)",
    )
    parser.add_argument("--rpc-delay-ms", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--keep", metavar="DIR", help="keep the logs and intermediate files in this folder")


def run(args: argparse.Namespace) -> int:
    """Measure the scenarios, print the table, and on a terminal serve the live page until Ctrl-C.

    Returns 1 if a scenario could not be measured, 2 for bad input, 130 if interrupted.
    """
    with tempfile.TemporaryDirectory(prefix="polyrhythm-") as temporary:
        return _run_in(args, Path(temporary))


def _run_in(args: argparse.Namespace, temporary: Path) -> int:
    # Rich would replace a module and object between colons by an emoji.
    errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    try:
        policy = policy_of(args, args.policy)
        if args.cli and (
            args.fabric != "mininet" or len(args.scenario) > 1 or not (args.scenario or args.topology)
        ):
            raise ConfigError("--cli needs --fabric mininet, and one scenario or --topology")
        chosen = [scenario_path(name) for name in args.scenario or DEFAULT_SCENARIOS]
        if args.cli and not args.scenario:
            chosen = [_one_job_scenario(args.topology, temporary)]
        elif args.topology is not None:
            chosen = [_on_topology(path, args.topology, temporary) for path in chosen]
        scenarios = [(path, load_scenario(path)) for path in chosen]
        shown = args.live_scenario or (args.scenario[0] if args.scenario else LIVE_SCENARIO)
        live_path = chosen[0] if args.topology is not None else scenario_path(shown)
        load_scenario(live_path)
        _check_names(scenarios)
        _check_fail(args.fail, scenarios)
        if args.fabric == "mininet":
            for _, scenario in scenarios:
                check_supported(scenario)
        if args.json:
            _check_writable(Path(args.json))
        _check_plans(policy, [scenario for _, scenario in scenarios], args.seed)
    except (ConfigError, PolicyError) as error:
        errors.print(str(error), markup=False)
        return 2
    try:
        if args.fabric == "mininet":
            check_host()
    except MininetError as error:
        errors.print(f"polyrhythm run: {error}", markup=False)
        return 1
    if args.cli:
        return _command_line(args, scenarios[0][1], Path(args.keep or temporary), errors)
    live = Live(live_path, args.policy, args.seed, args.port, args.fabric) if _live_wanted(args) else None
    try:
        return asyncio.run(_run(args, scenarios, Path(args.keep or temporary), live, errors))
    except (RunError, OSError) as error:
        errors.print(f"polyrhythm run: {error}", markup=False)
        return 1
    except asyncio.CancelledError:
        return 130


def _check_plans(policy: Policy, scenarios: list[Scenario], seed: int) -> None:
    """Plan each scenario with a policy of another package, because a controller without a plan only logs it.

    Raises:
        PolicyError: the policy can make no plan.
    """
    if policy.distribution != POLICIES[BASELINE].distribution:
        # Imported here because it loads the simulator, which `run` needs for nothing else.
        from polyrhythm.api import plan_scenario

        for scenario in scenarios:
            plan_scenario(scenario, policy, seed)


def _on_topology(path: Path, topology: Path, folder: Path) -> Path:
    """Write the scenario of `path` with the fabric of a topology file into `folder`; returns the new file."""
    out = folder / f"{path.stem}.json"
    write_on(path, topology, out)
    load_topology(topology)
    try:
        load_scenario(out)
    except ConfigError as error:
        # The error names a temporary file, which the user does not know.
        words = re.sub(rf"^{re.escape(str(out))}:\d+: ", "", str(error))
        raise ConfigError(f"{path} on {topology}: {words}") from None
    return out


def _one_job_scenario(topology: Path, folder: Path) -> Path:
    """Write a scenario with one small job on the fabric of a topology file; returns the new file.

    The job has a worker on the first host of each leaf and sends at a hundredth of the slowest NIC's rate.
    """
    hosts = load_topology(topology).hosts
    if len(hosts) < 2:
        raise ConfigError(f"{topology}: the fabric has one host; at least two are needed")
    firsts: dict[str, str] = {}
    for host in hosts:
        firsts.setdefault(host.leaf, host.name)
    gbps = min(h.rate_bps for h in hosts) / 1e11
    data = {
        "name": "one-job",
        "fabric": {"kind": "file", "path": str(topology.resolve())},
        "jobs": [
            {
                "name": "one-job",
                "model": "none",
                "gpus": len(hosts),
                "hosts": list(firsts.values()) if len(firsts) > 1 else [h.name for h in hosts[:2]],
                "period_ms": 1000,
                "phases": [{"start_ms": 0, "end_ms": 500, "gbps": gbps}],
            }
        ],
    }
    out = folder / "one-job.json"
    out.write_text(json.dumps(data), encoding="utf-8")
    return out


def _check_writable(path: Path) -> None:
    """Check before the measurement that the JSON file can be written after it."""
    folder = path.resolve().parent
    if not folder.is_dir():
        raise ConfigError(f"{path}: the folder of this file does not exist")
    if path.is_dir():
        raise ConfigError(f"{path}: this is a folder; a file is needed")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ConfigError(f"{path}: cannot be written")


def _command_line(args: argparse.Namespace, scenario: Scenario, logs: Path, errors: Console) -> int:
    logs.mkdir(parents=True, exist_ok=True)
    try:
        serve_command_line(scenario, args.policy, args.seed, args.port, logs)
    except (MininetError, OSError) as error:
        errors.print(f"polyrhythm run: {error}", markup=False)
        return 1
    return 0


async def _run(
    args: argparse.Namespace,
    scenarios: list[tuple[Path, Scenario]],
    workdir: Path,
    live: Live | None,
    errors: Console,
) -> int:
    console = Console(width=None if sys.stdout.isatty() else WIDE)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        if live is not None:
            console.print(f"The live fabric: [bold]{await live.start(workdir / 'live')}[/bold]")
        outcomes = await _measure(args, scenarios, workdir)
        document = {c.scenario.name: to_json(c) for c in outcomes if isinstance(c, ScenarioResult)}
        if document:
            if console.width >= WIDE:
                console.print(summary(document), table(document), sep="\n")
            else:
                console.print(blocks(document))
        failures = _failures(outcomes, scenarios)
        for line in failures:
            errors.print(line, markup=False)
        console.print(_scale_line(scenarios[0][1]), style="dim")
        if args.json:
            _write_json(Path(args.json), args, document)
        if live is not None:
            console.print(f"The live fabric still runs: [bold]{live.address}[/bold]. Press Ctrl-C to end it.")
            await live.wait()
        return 1 if failures else 0
    finally:
        if live is not None:
            await live.stop()


async def _measure(
    args: argparse.Namespace, scenarios: list[tuple[Path, Scenario]], workdir: Path
) -> list[ScenarioResult | BaseException]:
    offsets = args.offsets
    if offsets is None:
        offsets = DEFAULT_OFFSETS if args.fabric == "embedded" else 0
    options = RunOptions(
        seed=args.seed,
        policy=args.policy,
        policy_options=policy_arguments(args),
        offsets=offsets,
        lanes=args.lanes if args.fabric == "embedded" else 1,
        rpc_delay_ms=args.rpc_delay_ms,
        fail=tuple(args.fail),
        fabric=args.fabric,
        profile=args.profile,
    )
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Bar(
        *columns,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(f"{len(scenarios)} scenarios", total=1.0)
        progress = OverallProgress(lambda fraction: bar.update(task, completed=fraction))
        experiment = ScenarioRunner(options, workdir, progress)
        return await asyncio.gather(
            *(experiment.compare(path, scenario) for path, scenario in scenarios), return_exceptions=True
        )


def _failures(
    outcomes: list[ScenarioResult | BaseException], scenarios: list[tuple[Path, Scenario]]
) -> list[str]:
    """One line for each scenario that could not be measured. Any exception but a RunError is a bug and is
    raised.
    """
    lines = []
    for outcome, (_, scenario) in zip(outcomes, scenarios, strict=True):
        if isinstance(outcome, RunError):
            lines.append(f"{scenario.name}: {outcome}")
        elif isinstance(outcome, BaseException):
            raise outcome
    return lines


def _write_json(path: Path, args: argparse.Namespace, document: dict[str, Any]) -> None:
    whole = {
        "polyrhythm": metadata.version("polyrhythm"),
        "seed": args.seed,
        "policy": args.policy,
        "scenarios": document,
    }
    path.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def _scale_line(scenario: Scenario) -> str:
    rate = scenario.topology.hosts[0].rate_bps
    return (
        f"Scale: 1 emulated bit stands for {scenario.scale:g} bits. A {rate * scenario.scale / 1e9:g} "
        f"Gbit/s link "
        f"runs at {rate / 1e6:g} Mbit/s with payloads of {scenario.packet_bytes} bytes. Time is not scaled."
    )


def _live_wanted(args: argparse.Namespace) -> bool:
    return sys.stdout.isatty() and not args.once


def _check_names(scenarios: list[tuple[Path, Scenario]]) -> None:
    names = [scenario.name for _, scenario in scenarios]
    for (path, scenario), seen in zip(scenarios, range(len(names)), strict=True):
        if scenario.name in names[:seen]:
            raise ConfigError(
                f"{path}: another scenario has the name {scenario.name!r} too; names must be unique"
            )


def _check_fail(failures: list[str], scenarios: list[tuple[Path, Scenario]]) -> None:
    for text in failures:
        for _, scenario in scenarios:
            try:
                parse_failure(text, scenario.topology)
            except FailureError as error:
                raise ConfigError(f"--fail {error}") from None
