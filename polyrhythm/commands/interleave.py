# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm interleave`: compute the time-shift of each job, for jobs and links listed in a file."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from controller.interleave.solve import Interleaving, TooFineError, interleave
from polyrhythm.circle_plot import draw
from polyrhythm.interleave_file import load_interleave_task
from polyrhythm.progress import working
from polyrhythm.subcommands import integer
from polyrhythm_files import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm interleave`."""
    parser.add_argument(
        "file",
        metavar="FILE.json",
        type=Path,
        help="file with links, jobs and their Up phases (docs/interleaving.md has the format)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--plot", metavar="FILE.svg", type=Path, help="draw the unified circles of the links into this file"
    )
    parser.add_argument(
        "--seed",
        type=integer(0),
        default=0,
        metavar="N",
        help="seed of the restarts of the search, 0 or more (default 0)",
    )


def run(args: argparse.Namespace) -> int:
    """Read the file, compute the time-shifts, print them, and draw the circles. Returns 2 for bad input."""
    try:
        if args.plot is not None and args.plot.suffix.lower() != ".svg":
            raise ConfigError(
                f"--plot {args.plot}: circles are drawn as SVG; legal: a name that ends in .svg"
            )
        task = load_interleave_task(args.file)
        with working("computing time-shifts"):
            found = interleave(task.links, task.periods, step_deg=task.step_deg, seed=args.seed)
        if args.plot is not None:
            args.plot.write_text(draw(found), encoding="utf-8")
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except TooFineError as error:
        print(f"{args.file}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"--plot {args.plot}: cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    print(json.dumps(to_json(found), indent=2) if args.json else to_text(found))
    return 0


def to_json(found: Interleaving) -> dict[str, Any]:
    """The result as JSON values, in ms, Gbit/s and degrees."""
    losses = {c.link.name: c.loss for c in found.circles}
    return {
        "links": [
            {
                "name": c.link.name[0],
                "score": c.score,
                "best_score": c.best_score,
                "best_is_proven": c.exact,
                "perimeter_ms": c.perimeter_ns / 1e6,
                "rotation_deg": dict(c.rotation_deg),
                "excess_gbps": c.excess_bps / 1e9,
                "demand_gbps": [rate / 1e9 for rate in c.demand_bps.tolist()],
            }
            for c in found.circles
        ],
        "jobs": [
            {
                "name": job,
                "shift_ms": shift / 1e6,
                "period_ms": found.periods[job] / 1e6,
                "period_error_pct": 100 * found.errors[job],
            }
            for job, shift in found.shifts.items()
        ],
        "loops": [
            {
                "links": [name[0] for name in loop.links],
                "jobs": list(loop.jobs),
                "loss": {name[0]: losses[name] for name in loop.links},
            }
            for loop in found.loops
        ],
    }


def to_text(found: Interleaving) -> str:
    """The result in words, one line for each job, link and loop."""
    lines = []
    for job, shift in found.shifts.items():
        longer = f", {100 * found.errors[job]:.2f} % over its own" if found.errors[job] else ""
        lines.append(f"job {job}: starts at {shift / 1e6:g} of every {found.periods[job] / 1e6:g} ms{longer}")
    for c in found.circles:
        best = f", {c.best_score:.3f} alone" if c.loss > 1e-9 else ""
        shared = ", ".join(f"{j} at {deg:.1f}°" for j, deg in c.rotation_deg.items()) or "no jobs"
        if c.perimeter_ns or not c.link.demands:
            shared += f" of {c.perimeter_ns / 1e6:g} ms"
        else:
            shared = "its jobs never fill it"
        lines.append(f"link {c.link.name[0]}: score {c.score:.3f}{best}; {shared}")
    for loop in found.loops:
        names = ", ".join(name[0] for name in loop.links)
        lines.append(f"loop: {names} with {', '.join(loop.jobs)}: their shifts are a compromise")
    return "\n".join(lines)
