# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper all`: every experiment, and one HTML report of the papers' figures beside ours."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyrhythm.folder_lock import FolderInUseError, alone_in
from polyrhythm.paper import harness
from polyrhythm.paper.overview_html import to_html
from polyrhythm.paper.overview_rows import ABSENT, EXTRACTORS, LEFT_OUT, Figure
from polyrhythm.paper.overview_sizes import SIZES
from polyrhythm.paper.processes import run_command_apart
from polyrhythm.paper.resumable import PROGRAM, mark
from polyrhythm.paper.verdicts import VERDICTS
from polyrhythm.progress import Bar
from sim.output import replace_file, versions

QUICK: Mapping[str, tuple[str, ...]] = {
    "routing": ("--quick", "--iterations", "4", "--ilp-seconds", "5"),
    "mltcp": ("--quick",),
    "cassini-snapshots": ("--quick",),
    "cassini-testbed": ("--quick", "--schedulers", "themis", "pollux"),
    "interleave": ("--quick",),
    "crux-microbench": ("--cases", "60"),
    "crux-testbed": ("--seeds", "1", "--seconds", "4"),
    "crux-trace": ("--quick", "--without-ours"),
    "untuned": ("--quick",),
    "dally": ("--quick",),
}
"""The options of each experiment with --quick. Chosen: together less than 15 minutes on two cores."""
_WITHOUT_SEED = {"routing"}
"""Experiments that take a number of seeds and no seed."""
_PROGRAM = (*PROGRAM, "bmv2", "hostagent", "p4/build", "polyrhythm", "polyrhythm_files")
"""The sources on which the reports depend; some experiments run packets."""
_ROOM = 1 << 20
"""A disk with less room, in bytes, is full. Chosen."""
_LANES = {"mltcp", "cassini-snapshots"}
"""Experiments whose option for processes is --lanes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm paper all`."""
    parser.add_argument(
        "--quick", action="store_true", help="few cases of each, for two cores in about 15 minutes"
    )
    parser.add_argument(
        "--only", nargs="+", choices=tuple(EXTRACTORS), metavar="NAME", help=f"of {', '.join(EXTRACTORS)}"
    )
    harness.add_arguments(
        parser,
        "of all experiments that have one",
        "folder for report.html, report.json and a folder for each experiment, from which a stopped run "
        "continues (default papers)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the experiments that have no report yet. Returns 1 if one failed or the disk is full, 2 for bad
    options."""
    for option, least in (("seed", 0), ("workers", 1)):
        if getattr(args, option) < least:
            return harness.refused(f"--{option}: {getattr(args, option)}; legal: a whole number from {least}")
    out: Path = args.out or Path("papers")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with alone_in(out):
            document, failed = _report(args, out)
    except FolderInUseError as error:
        return harness.refused(str(error))
    except OSError as error:
        return harness.not_written(error, out)
    print(json.dumps(document, indent=2) if args.json else _text(document, out))
    return int(failed)


def _report(args: argparse.Namespace, out: Path) -> tuple[dict[str, Any], bool]:
    """Run the experiments and write the report into the folder. Returns it, and whether one failed.

    Raises:
        OSError: a file cannot be written.
    """
    names = [name for name in EXTRACTORS if not args.only or name in args.only]
    rows: list[Figure] = []
    outcomes: list[dict[str, str]] = []
    charts: dict[str, list[str]] = {}
    failed = False
    try:
        with Bar("paper all", len(names), lines_s=30, unit="experiments") as bar:
            for done, name in enumerate(names, start=1):
                words = command(name, args)
                report, outcome = _measured(name, words, out / name)
                size = SIZES[name](report) if report is not None else "not run"
                outcomes.append(
                    {
                        "name": name,
                        "command": f"polyrhythm {' '.join(words)}",
                        "size": size,
                        "outcome": outcome,
                    }
                )
                if report is None:
                    failed = True
                    rows.append(Figure(f"paper {name}", "all figures", None, None, "not run", outcome))
                else:
                    rows += EXTRACTORS[name](report)
                    charts[name] = _charts(out / name)
                bar.step(done)
        if not args.only:
            rows += (*ABSENT, *(LEFT_OUT if args.quick else ()))
        counts = Counter(row.verdict for row in rows)
        document = {
            "quick": args.quick,
            "seed": args.seed,
            "versions": versions(),
            "verdicts": {name: counts[name] for name in VERDICTS},
            "experiments": outcomes,
            "rows": [
                {
                    "source": row.source,
                    "what": row.what,
                    "paper": row.paper_text or row.paper,
                    "ours": row.ours_text or row.ours,
                    "verdict": row.verdict,
                    "why": row.why,
                }
                for row in rows
            ],
        }
        replace_file(out / "report.html", to_html(rows, _facts(args), outcomes, charts).encode())
        replace_file(out / "report.json", (json.dumps(document, indent=2) + "\n").encode())
    except KeyboardInterrupt:
        print(
            f"stopped in experiment {len(outcomes) + 1} of {len(names)}; {out} has what is finished; "
            "the same command continues from there",
            file=sys.stderr,
        )
        raise
    return document, failed


def command(name: str, args: argparse.Namespace) -> list[str]:
    """The words after `polyrhythm` that run an experiment."""
    words = ["paper", name, *(QUICK[name] if args.quick else ())]
    if name not in _WITHOUT_SEED:
        words += ["--seed", str(args.seed)]
    return [*words, "--lanes" if name in _LANES else "--workers", str(args.workers)]


def _measured(name: str, words: Sequence[str], out: Path) -> tuple[dict[str, Any] | None, str]:
    """The report of an experiment, and how it went. A report of the same command and sources is taken
    again.

    Raises:
        OSError: the disk is full.
    """
    stamp = {"command": list(words), "program": mark(_PROGRAM), "versions": versions()}
    kept = out / "overview.json"
    try:
        entry = json.loads(kept.read_text(encoding="utf-8"))
        if entry["stamp"] == stamp:
            return entry["report"], f"{_took(entry)}, in an earlier run"
    except (OSError, ValueError, KeyError, TypeError):
        pass
    out.mkdir(parents=True, exist_ok=True)
    began, processor = time.monotonic(), _processor_s()
    printed, log = out / "printed.json", out / "log.txt"
    code = run_command_apart([*words, "--out", str(out), "--json"], printed, log)
    taken: dict[str, Any] = {
        "stamp": stamp,
        "seconds": time.monotonic() - began,
        "cpu_s": _processor_s() - processor,
    }
    # An experiment may end with 1 because a claim does not hold; its report is there all the same.
    try:
        report: dict[str, Any] = json.loads(printed.read_text(encoding="utf-8"))
    except ValueError:
        # A full disk ends each of the next experiments too, and has no room for the reason in the log.
        replace_file(out / "space", bytes(_ROOM))
        (out / "space").unlink()
        last = (log.read_text(encoding="utf-8").strip().splitlines() or ["it printed nothing"])[-1]
        return None, f"failed with {code}: {last}"
    taken["report"] = report
    replace_file(kept, json.dumps(taken).encode())
    return report, _took(taken)


def _processor_s() -> float:
    """The processor time that the processes which have ended took, with those that they started, in s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _took(entry: Mapping[str, Any]) -> str:
    return f"{entry['seconds']:.0f} s, {entry['cpu_s']:.0f} s of processors"


def _charts(folder: Path) -> list[str]:
    """The figures of an experiment, which are SVG documents."""
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.svg"))]


def _facts(args: argparse.Namespace) -> dict[str, str]:
    packages = ", ".join(f"{name} {version}" for name, version in versions().items() if version)
    return {
        "versions": f"{packages}, Python {platform.python_version()}",
        "seed": str(args.seed),
        "size": "quick: few cases of each" if args.quick else "full",
        "processes": f"{args.workers} on {os.cpu_count()} processors",
        "workloads": "generated with the papers' statistics; no file of the papers' authors is read",
    }


def _text(document: Mapping[str, Any], out: Path) -> str:
    lines = [f"{e['name']}: {e['outcome']}; {e['size']}" for e in document["experiments"]]
    lines += [f"{row['verdict']:15} {row['source']}: {row['what']}" for row in document["rows"]]
    lines.append(", ".join(f"{count} {name}" for name, count in document["verdicts"].items()))
    return "\n".join([*lines, f"{out / 'report.html'}"])
