# SPDX-License-Identifier: Apache-2.0
"""The harness of an experiment: its usual options, their limits, the folder to write to, and the report."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.kernel import available

Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """What an experiment found: the report, and what writes tables and figures into a folder, which
    returns the figures' names."""

    report: Report
    write: Callable[[Path], list[str]]


def add_arguments(parser: argparse.ArgumentParser, seed: str, out: str) -> None:
    """--seed, --workers, --out and --json; `seed` and `out` say what for."""
    parser.add_argument("--seed", type=int, default=1, help=f"{seed} (default 1)")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a processor)"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help=out)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(
    name: str,
    args: argparse.Namespace,
    least: Mapping[str, int],
    experiment: Callable[[], ExperimentResult],
    to_text: Callable[[Report], str],
) -> int:
    """Check, measure, write and print; returns the exit code: 1 without Numba, 2 for bad options.

    `least` has the least legal value of each option that is a whole number, `args.out` a folder or
    None. The report gains `seconds` and, where something is written, `figures`.
    """
    for option, legal in least.items():
        if getattr(args, option) < legal:
            print(f"--{option}: {getattr(args, option)}; legal: a whole number from {legal}", file=sys.stderr)
            return 2
    if not available():
        print(f"paper {name}: needs Numba, which is not installed", file=sys.stderr)
        return 1
    out: Path | None = args.out
    try:
        # Before anything is measured: who names a folder that cannot be is told at once.
        if out:
            out.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        found = experiment()
        report = {**found.report, "seconds": round(time.perf_counter() - began, 1)}
        if out:
            report["figures"] = found.write(out)
            (out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        print(f"--out: {error.filename}: {error.strerror}; legal: a folder to write to", file=sys.stderr)
        return 2
    print(json.dumps(report, indent=2) if args.json else to_text(report))
    return 0
