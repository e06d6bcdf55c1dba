# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm run`: the progress bar, the tables, the JSON file, and the live fabric on a terminal."""

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
from controller.planner.options import policy_arguments, policy_of
from polyrhythm.emulation.interactive import serve_command_line
from polyrhythm.emulation.process import check_supported
from polyrhythm.emulation.tcp_workers import check_kernel
from polyrhythm.fabric.jobs import check_embedded
from polyrhythm.run.comparison import BASELINE, ScenarioResult, to_json
from polyrhythm.run.experiment import OverallProgress, RunOptions, ScenarioRunner
from polyrhythm.run.live import Live
from polyrhythm.run.options import (
    DEFAULT_OFFSETS,
    DEFAULT_SCENARIOS,
    LIVE_SCENARIO,
    add_arguments,
    rivals_of,
)
from polyrhythm.run.processes import RunError
from polyrhythm.run.report import blocks, rivals, summary, table
from polyrhythm.scenario import Scenario, load_scenario, scenario_path, write_on
from polyrhythm.scenario.failures import FailureError, parse_failure
from polyrhythm_files import ConfigError
from topo.files import load_topology
from topo.mininet import MininetError, check_host

__all__ = ["add_arguments", "run"]

# For `policy_of`: a policy as it is registered.
_NO_OPTIONS = argparse.Namespace()
# Columns that the table needs. On a narrower terminal the figures are lines instead.
WIDE = 150


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
        rival_policies = [policy_of(_NO_OPTIONS, name) for name in rivals_of(args)]
        if args.cli and (
            args.fabric != "mininet" or len(args.scenario) > 1 or not (args.scenario or args.topology)
        ):
            raise ConfigError("--cli needs --fabric mininet, and one scenario or --topology")
        chosen = [scenario_path(name) for name in args.scenario or DEFAULT_SCENARIOS]
        if args.cli and not args.scenario:
            chosen = [_one_job_scenario(args.topology, temporary)]
        elif args.topology is not None:
            chosen = [_on_topology(path, args.topology, temporary) for path in chosen]
        scenarios = [(path, load_scenario(path, args.scale)) for path in chosen]
        shown = args.live_scenario or (args.scenario[0] if args.scenario else LIVE_SCENARIO)
        live_path = chosen[0] if args.topology is not None else scenario_path(shown)
        load_scenario(live_path, args.scale)
        _check_names(scenarios)
        _check_fail(args.fail, scenarios)
        if args.fabric == "mininet":
            for _, scenario in scenarios:
                check_supported(scenario)
        else:
            for _, scenario in scenarios:
                check_embedded(scenario)
        if args.json:
            _check_writable(Path(args.json))
        for one in (policy, *rival_policies):
            _check_plans(one, [scenario for _, scenario in scenarios], args.seed)
    except (ConfigError, PolicyError) as error:
        errors.print(str(error), markup=False)
        return 2
    try:
        if args.fabric == "mininet":
            check_host()
            for _, scenario in scenarios:
                check_kernel(scenario)
    except MininetError as error:
        errors.print(f"polyrhythm run: {error}", markup=False)
        return 1
    if args.cli:
        return _command_line(args, scenarios[0][1], Path(args.keep or temporary), errors)
    live = None
    if _live_wanted(args):
        live = Live(live_path, args.policy, args.seed, args.port, args.fabric, args.scale)
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
        document = {
            c.scenario.name: to_json(c, args.policy) for c in outcomes if isinstance(c, ScenarioResult)
        }
        if document:
            if console.width >= WIDE:
                compared = [rivals(document)] if rivals_of(args) else []
                console.print(summary(document), *compared, table(document), sep="\n")
            else:
                console.print(blocks(document))
        failures = _failures(outcomes, scenarios)
        for line in failures:
            errors.print(line, markup=False)
        measured = [c.scenario for c in outcomes if isinstance(c, ScenarioResult)]
        for line in dict.fromkeys(map(_scale_line, measured or [scenarios[0][1]])):
            console.print(line, style="dim")
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
        rivals=rivals_of(args),
        offsets=offsets,
        lanes=args.lanes if args.fabric == "embedded" else 1,
        rpc_delay_ms=args.rpc_delay_ms,
        fail=tuple(args.fail),
        fabric=args.fabric,
        profile=args.profile,
        scale=args.scale,
        warmup=args.warmup,
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
        # Those of most packets first, so that none of them is left for one lane at the end.
        flows = {s.name: sum(len(work.job.flows) for work in s.workloads) for _, s in scenarios}
        started = {
            scenario.name: asyncio.create_task(experiment.compare(path, scenario))
            for path, scenario in sorted(scenarios, key=lambda each: -flows[each[1].name])
        }
        return await asyncio.gather(*(started[s.name] for _, s in scenarios), return_exceptions=True)


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
