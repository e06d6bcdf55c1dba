# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm chaos`: break a running controller, its agents and its switches, and look whether they recover.

Real processes over real sockets: a controller with its planner, four agents, the training processes of three
jobs, and a fabric of four embedded switches. Proxies stand between the controller and the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from polyrhythm.chaos.faults import KINDS, Fault, fault
from polyrhythm.progress import Bar
from polyrhythm.subcommands import integer

# Answers that take longer are counted for each kind of fault. Chosen: the bound of their 99th percentile.
LATE_MS = 15.0
# A line of progress every so many seconds where there is no terminal.
_LINES_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm chaos`."""
    parser.add_argument(
        "--faults", type=integer(1), default=40, metavar="N", help="how many faults (default %(default)s)"
    )
    parser.add_argument(
        "--seed", type=integer(0), default=1, metavar="S", help="chooses the faults (default %(default)s)"
    )
    parser.add_argument(
        "--first",
        type=integer(0),
        default=0,
        metavar="N",
        help="begin with this fault of the seed's sequence, to repeat a violation (default %(default)s)",
    )
    parser.add_argument(
        "--kind",
        action="append",
        choices=sorted(KINDS),
        metavar="KIND",
        help=f"only faults of this kind (may be repeated): {', '.join(sorted(KINDS))}",
    )
    parser.add_argument(
        "--logs", type=Path, metavar="DIR", help="keep the logs of all processes in this folder"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def chosen(seed: int, first: int, count: int, kinds: list[str] | None) -> list[Fault]:
    """The `count` faults of a seed from number `first` on, of these kinds (None: of all)."""
    found: list[Fault] = []
    number = first
    while len(found) < count:
        one = fault(seed, number)
        if kinds is None or one.kind in kinds:
            found.append(one)
        number += 1
    return found


def run(args: argparse.Namespace) -> int:
    """Run the faults. Returns 1 if there is a violation, or if a process does not start."""
    from polyrhythm.bench.report import show
    from polyrhythm.chaos.processes import ProcessError

    faults = chosen(args.seed, args.first, args.faults, args.kind)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if args.logs is not None:
            args.logs.mkdir(parents=True, exist_ok=True)
            folder = args.logs.resolve()
        try:
            figures = _run(folder, faults, args.seed)
        except ProcessError as error:
            print(f"polyrhythm chaos: {error}", file=sys.stderr)
            return 1
    if args.json:
        print(json.dumps(figures, indent=2))
    else:
        show({key: value for key, value in figures.items() if key != "what"}, as_json=False)
    return 1 if figures["violations"] else 0


def _run(folder: Path, faults: list[Fault], seed: int) -> dict[str, Any]:
    # gRPC and the P4 classes take a second to import, and --help needs none of them.
    from polyrhythm.chaos.injection import inject
    from polyrhythm.chaos.invariants import START_S, Invariants
    from polyrhythm.chaos.processes import ChaosCluster, ProcessError

    began = time.monotonic()
    cluster = ChaosCluster(folder)
    try:
        cluster.start()
        invariants = Invariants(cluster)
        wrong, _ = invariants.settle(START_S)
        seen = invariants.seen
        if wrong:
            raise ProcessError(f"before the first fault: {'; '.join(wrong)}")
        seen.answers_ms.clear()
        done: dict[str, int] = {}
        late_answers: dict[str, int] = {}
        with Bar("chaos", len(faults), _LINES_S, "faults") as bar:
            for count, one in enumerate(faults, 1):
                found: list[str] = []

                def wait(seconds: float, found: list[str] = found) -> None:
                    until = time.monotonic() + seconds
                    while (left := until - time.monotonic()) > 0:
                        time.sleep(min(left, 0.2))
                        found += invariants.look()

                answers = len(seen.answers_ms)
                inject(cluster, one, wait)
                if one.kind in ("controller-kill", "controller-restart"):
                    found += invariants.forgotten()
                wrong, took_ms = invariants.settle()
                late = sum(answer_ms > LATE_MS for answer_ms in seen.answers_ms[answers:])
                if late:
                    late_answers[one.kind] = late_answers.get(one.kind, 0) + late
                seen.recoveries_ms.append(took_ms)
                done[one.kind] = done.get(one.kind, 0) + 1
                for what in dict.fromkeys(found + wrong):
                    seen.violations.append({"fault": one.number, "kind": one.kind, "what": what})
                    repeat = f"polyrhythm chaos --seed {seed} --first {one.number} --faults 1"
                    print(f"chaos: {one}: {what} (to repeat: {repeat})", file=sys.stderr, flush=True)
                bar.step(count)
    finally:
        cluster.stop()
    return {
        "faults": len(faults),
        "seed": seed,
        "violations": len(seen.violations),
        "lost_jobs": seen.lost_jobs,
        "answer_p99_ms": round(percentile(seen.answers_ms, 0.99), 3),
        "answer_median_ms": round(percentile(seen.answers_ms, 0.5), 3),
        "answers": len(seen.answers_ms),
        "late_answers": dict(sorted(late_answers.items())),
        "answers_without_agent": seen.alone,
        "recovery_p99_ms": round(percentile(seen.recoveries_ms, 0.99)),
        "recovery_median_ms": round(percentile(seen.recoveries_ms, 0.5)),
        "longest_black_hole_s": round(seen.longest_black_hole_s, 3),
        "longest_call_ms": round(seen.longest_call_ms, 1),
        "probes_delivered": seen.probes,
        "seconds": round(time.monotonic() - began, 1),
        "kinds": dict(sorted(done.items())),
        "what": seen.violations,
    }


def percentile(values: list[float], part: float) -> float:
    """The value below which this part (0 to 1) of the values lies; 0 for none."""
    ordered = sorted(values)
    return ordered[int(part * (len(ordered) - 1))] if ordered else 0.0
