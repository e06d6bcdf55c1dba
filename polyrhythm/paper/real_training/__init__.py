# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper real-training`: training programs of others on a Mininet fabric, with us and without."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
from collections.abc import Collection
from pathlib import Path

from hostagent.config import BUILT_SOCKET_SHIM
from polyrhythm.emulation.folder import own_folder
from polyrhythm.paper import harness
from polyrhythm.paper.real_training import capture
from polyrhythm.paper.real_training.parts import PARTS, RATES_BPS, measure
from polyrhythm.paper.real_training.report import report, to_text
from polyrhythm.progress import Bar
from polyrhythm.subcommands import integer
from topo.mininet import MininetError, check_host

REPEATS, ITERATIONS = 5, 20
_LINES_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm paper real-training`."""
    names = [part.name for part in PARTS]
    parser.add_argument(
        "--parts", nargs="+", choices=names, default=names, metavar="PART", help=f"of {', '.join(names)}"
    )
    parser.add_argument(
        "--repeats",
        type=integer(1, 1000),
        default=REPEATS,
        metavar="N",
        help="runs of each part under ECMP, and as many under ours, in turn (default %(default)s)",
    )
    parser.add_argument(
        "--iterations",
        type=integer(2, 100_000),
        default=ITERATIONS,
        metavar="N",
        help="measured steps of each job in a run (default %(default)s)",
    )
    parser.add_argument(
        "--link-mbps",
        type=float,
        choices=[rate / 1e6 for rate in RATES_BPS],
        default=RATES_BPS[0] / 1e6,
        metavar="RATE",
        help="links to begin with, in Mbit/s; on a machine too slow for them smaller ones are taken "
        f"({', '.join(f'{rate / 1e6:g}' for rate in RATES_BPS)})",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder for report.json and logs/")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Measure, write and print. Returns 1 where something is missing or fails, 2 for bad options."""
    parts = [part for part in PARTS if part.name in args.parts]
    try:
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
        check_needs({"mpi"} & set(args.parts))
        rates = [rate for rate in RATES_BPS if rate <= args.link_mbps * 1e6]
        bar = Bar("real training", 2 * args.repeats * len(parts), _LINES_S, "runs")
        with own_folder() as folder, bar:
            done = 0

            def step() -> None:
                nonlocal done
                done += 1
                bar.step(done)

            try:
                results = [
                    measure(
                        part,
                        args.iterations,
                        args.repeats,
                        folder,
                        rates_bps=rates,
                        kill_control=part.name == "collide",
                        progress=step,
                    )
                    for part in parts
                ]
            finally:
                if args.out:
                    keep_logs(folder, args.out / "logs")
        found = report(results)
        if args.out:
            text = json.dumps(found, indent=2) + "\n"
            (args.out / "report.json").write_text(text, encoding="utf-8")
    except MininetError as error:
        print(f"polyrhythm paper real-training: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        return harness.not_written(error, args.out)
    print(json.dumps(found, indent=2) if args.json else to_text(found))
    return 0


def keep_logs(folder: Path, kept: Path) -> None:
    """Copy what controllers, agents, switches and ranks wrote below `folder` to `kept`, as PART/NAME.log.

    Raises:
        OSError: a log cannot be copied.
    """
    for log in sorted(folder.glob("*/*.log")):
        (kept / log.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, kept / log.parent.name / log.name)


def check_needs(also: Collection[str] = ()) -> None:
    """Check that this machine has what the experiment needs; `also` may have "mpi".

    Raises:
        MininetError: something is missing; the message says what, and where it comes from.
    """
    check_host()
    programs = {capture.PROGRAM: "tcpdump", **({"mpirun": "openmpi-bin"} if "mpi" in also else {})}
    for program, package in programs.items():
        if shutil.which(program) is None:
            raise MininetError(f"not on PATH: {program}; on Debian: apt-get install {package}")
    for module in ("torch", *(("mpi4py",) if "mpi" in also else ())):
        if importlib.util.find_spec(module) is None:
            raise MininetError(f"{module} is not installed; pip install --group training")
    if not BUILT_SOCKET_SHIM.is_file():
        raise MininetError("the socket shim is not built; make shim")
