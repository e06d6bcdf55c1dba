# SPDX-License-Identifier: Apache-2.0
"""What all experiments share: common options and their limits, the output folder, and the report."""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.kernel import available
from polyrhythm.folder_lock import FolderInUseError, alone_in
from polyrhythm.subcommands import unwritable

Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """The result of an experiment: its report, and a function that writes tables and figures.

    The function takes a folder and returns the names of the figures.
    """

    report: Report
    write: Callable[[Path], list[str]]


def add_arguments(parser: argparse.ArgumentParser, seed: str, out: str) -> None:
    """Add --seed, --workers, --out and --json. `seed` and `out` are the help texts of the first and third."""
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help=f"seed {seed}, 0 or more (default 1)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of processes, 1 or more (default: one for each processor)",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help=out)
    parser.add_argument("--json", action="store_true", help="print JSON")


def refused(what: str) -> int:
    """Say what is wrong with the options or a file. Returns the exit code for that."""
    print(what, file=sys.stderr)
    return 2


def not_written(error: OSError, out: Path | str | None) -> int:
    """Say why the files of `out` cannot be written. Returns the exit code: 1 for a full disk, else 2."""
    place = error.filename or out
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return refused(unwritable(error, place))
    print(f"--out: {place}: {error.strerror}; make space, and give the same command again", file=sys.stderr)
    return 1


def run(
    name: str,
    args: argparse.Namespace,
    least: Mapping[str, int],
    experiment: Callable[[], ExperimentResult],
    to_text: Callable[[Report], str],
) -> int:
    """Check the options, run the experiment, write the files and print the report.

    `least` is the least legal value of each integer option. `args.out` is a folder or None. The report gains
    `seconds` and, if files are written, `figures`. Returns the exit code: 1 without Numba or space for the
    files, 2 for bad options.
    """
    for option, legal in least.items():
        if getattr(args, option) < legal:
            return refused(f"--{option}: {getattr(args, option)}; legal: a whole number from {legal}")
    if not available():
        print(f"paper {name}: needs Numba, which is not installed", file=sys.stderr)
        return 1
    out: Path | None = args.out
    try:
        # Before the measurement, so that an illegal folder is reported at once.
        if out:
            out.mkdir(parents=True, exist_ok=True)
        with alone_in(out):
            began = time.perf_counter()
            found = experiment()
            report = {**found.report, "seconds": round(time.perf_counter() - began, 1)}
            if out:
                report["figures"] = found.write(out)
                (out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    except FolderInUseError as error:
        return refused(str(error))
    except OSError as error:
        return not_written(error, out)
    print(json.dumps(report, indent=2) if args.json else to_text(report))
    return 0
