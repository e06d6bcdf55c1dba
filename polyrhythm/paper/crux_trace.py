# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper crux-trace`: two weeks of jobs under CRUX and its baselines (CRUX, Figure 23)."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from controller.kernel import available
from polyrhythm.folder_lock import alone_in
from polyrhythm.paper import harness
from polyrhythm.paper.charts import draw_bars
from polyrhythm.paper.crux_trace_fabrics import cluster
from polyrhythm.paper.crux_trace_jobs import BUSY, TraceSpec, requests
from polyrhythm.paper.crux_trace_moment import (
    FIGURE_25,
    LEAST_VOLUME,
    LEVEL,
    MOST_VOLUME,
    PAPER,
    POLICIES,
    Calibration,
    Moment,
    calibrated,
    spread,
)
from polyrhythm.paper.crux_trace_store import Key, Store
from polyrhythm.paper.processes import spawned_pool
from polyrhythm.paper.unjudged import LABEL

POINT = 0.01
"""Utilisations within one percentage point count as equal."""
TENTH = 0.001
"""A claim "<=" may be missed by a tenth of a point: periods are rounded up."""
CHOSEN_ON = (
    "fabrics, iterations and hosts: among about fifteen settings, two moments of seed 1, for the order of "
    "Figure 23; the volume for CRUX's utilisation on the Clos; paper untuned has workloads that were chosen "
    "on nothing"
)
_DONE = "moments.jsonl"
_CALIBRATED_ON = 4
_FIGURE_25_POLICIES = ("ecmp", "crux_full", "spray")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm paper crux-trace`."""
    add = parser.add_argument
    add(
        "--trace",
        default="",
        metavar="FILE",
        help="a trace that `polyrhythm sim` reads (default: a generated one)",
    )
    add(
        "--topology",
        default="",
        metavar="FILE",
        help="a third fabric: a topology file, or Lingjun's topo.csv (default: none)",
    )
    add(
        "--days",
        type=float,
        default=14.0,
        metavar="D",
        help="length of the trace in days, 0.01 to 1000 (default 14)",
    )
    add(
        "--samples",
        type=int,
        default=56,
        metavar="N",
        help="number of moments to simulate, evenly spread over the trace (default 56: every 5.4 hours)",
    )
    add(
        "--window-s",
        type=float,
        default=10.0,
        metavar="S",
        help="simulated seconds at each moment, 1 to 3600 (default 10)",
    )
    add("--quick", action="store_true", help="simulate 4 moments of 4 s")
    add(
        "--volume",
        type=float,
        metavar="F",
        help="multiply the bytes of all jobs by this factor (default: calibrated, so that CRUX has the "
        "paper's "
        f"utilisation of {LEVEL} on the Clos)",
    )
    add(
        "--busy",
        type=float,
        metavar="F",
        help="multiply the length of all jobs by one factor, so that they keep this fraction of "
        "2,768 GPUs busy (default: as long as the file has them; generated ones 0.6)",
    )
    add(
        "--without-ours",
        action="store_true",
        help="do not simulate the policy polyrhythm, with and without its judge",
    )
    add("--seed", type=int, default=1, metavar="N", help="seed of the generated jobs and of ECMP (default 1)")
    add(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of processes, 1 to 1024 (default: one for each processor)",
    )
    add(
        "--out",
        metavar="DIR",
        type=Path,
        help="folder for report.json, the figure, and finished simulations; a stopped run continues from it",
    )
    add("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Simulate the missing moments, write and print. Returns 1 without Numba or space for the files, 2 for
    bad input."""
    samples, window = (4, 4.0) if args.quick else (args.samples, args.window_s)
    for name, value, least, most in (
        ("days", args.days, 0.01, 1000),
        ("samples", samples, 1, 100_000),
        ("window-s", window, 1, 3600),
        ("workers", args.workers, 1, 1024),
        ("seed", args.seed, 0, 2**31),
        ("busy", 1.0 if args.busy is None else args.busy, 0.01, 1.0),
        ("volume", 1.0 if args.volume is None else args.volume, LEAST_VOLUME, MOST_VOLUME),
    ):
        if not least <= value <= most:
            print(f"--{name}: {value:g}; legal: {least:g} to {most:g}", file=sys.stderr)
            return 2
    if not available():
        print("crux-trace: needs Numba, which is not installed", file=sys.stderr)
        return 1
    spec = TraceSpec(args.trace, args.topology, args.days, samples, window, args.seed, busy=args.busy or 0.0)
    policies = [name for name in POLICIES if not (args.without_ours and name.startswith("ours"))]
    try:
        jobs = {name: len(requests(spec, name)) for name in spec.fabrics}
    except ValueError as error:
        return harness.refused(str(error))
    except OSError as error:
        return harness.refused(f"{error.filename}: {error.strerror}")
    try:
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        with alone_in(args.out), spawned_pool(args.workers) as pool:
            store = Store(pool, args.out / _DONE if args.out else None)
            level = None if args.volume is not None else calibrate(spec, store)
            spec = replace(spec, volume=level.volume if level else args.volume)
            keys = [(f, i, p) for i in range(samples) for f in spec.fabrics for p in policies]
            found = store.moments(spec, keys, "crux-trace")
            placed = under_schedulers(spec, store)
        report = summary(spec, policies, jobs, found, level) | {"schedulers": placed}
        report["seconds"] = round(time.perf_counter() - began, 1)
        if args.out:
            report["figures"] = draw(args.out, report["fabrics"])
            (args.out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    except ValueError as error:
        return harness.refused(str(error))
    except OSError as error:
        return harness.not_written(error, args.out)
    print(json.dumps(report, indent=2) if args.json else to_text(report))
    return 0


def calibrate(spec: TraceSpec, store: Store) -> Calibration:
    """Find the volume of communication at which CRUX has the paper's utilisation on the Clos.

    It uses a few moments of the trace.
    """
    count = min(_CALIBRATED_ON, spec.samples)
    keys: list[Key] = [("clos", (2 * i + 1) * spec.samples // (2 * count), "crux_full") for i in range(count)]

    def utilisation(volume: float) -> float:
        found = store.moments(replace(spec, volume=volume), keys, f"calibration, volume {volume:.3g}")
        return sum(m.used for m in found.values()) / max(1, sum(m.gpus for m in found.values()))

    return calibrated(utilisation)


def under_schedulers(spec: TraceSpec, store: Store) -> dict[str, dict[str, Any]]:
    """Figure 25: by job scheduler the utilisation of the Clos under ECMP, under CRUX, and under spraying, the
    gain of CRUX with its standard error, and the paper's utilisation without and with CRUX."""
    found: dict[str, dict[str, Any]] = {}
    for name, paper in FIGURE_25.items():
        chosen = replace(spec, scheduler=name)
        keys = [("clos", i, p) for i in range(spec.samples) for p in _FIGURE_25_POLICIES]
        moments = store.moments(chosen, keys, f"scheduler {name}")
        gpus = [float(moments["clos", i, "ecmp"].gpus) for i in range(spec.samples)]
        used = {p: [moments["clos", i, p].used for i in range(spec.samples)] for p in _FIGURE_25_POLICIES}
        gains = [b - a for a, b in zip(used["ecmp"], used["crux_full"], strict=True)]
        total = max(1.0, sum(gpus))
        found[name] = {
            "gpus_allocated": round(sum(gpus) / spec.samples, 1),
            "utilisation": {p: round(sum(v) / total, 4) for p, v in used.items()},
            "gain": [round(sum(gains) / total, 4), round(spread(gains, gpus), 4)],
            "paper": list(paper),
        }
    return found


def summary(
    spec: TraceSpec,
    policies: list[str],
    jobs: Mapping[str, int],
    found: Mapping[Key, Moment],
    level: Calibration | None,
) -> dict[str, Any]:
    """The utilisation over allocated GPU-seconds by fabric and policy, and which claims of the paper hold."""
    fabrics: dict[str, dict[str, Any]] = {}
    for name in spec.fabrics:
        moments = {p: [found[name, i, p] for i in range(spec.samples)] for p in policies}
        rows = moments[policies[0]]
        gpus = [float(m.gpus) for m in rows]
        busy = {p: [m.used for m in ms] for p, ms in moments.items()}
        fabrics[name] = {
            "gpus": cluster(name, spec.topology).gpus,
            "jobs": jobs[name],
            "jobs_at_once": round(sum(m.jobs for m in rows) / spec.samples, 1),
            "jobs_that_send": round(sum(m.sending for m in rows) / spec.samples, 1),
            "gpus_allocated": round(sum(gpus) / spec.samples, 1),
            "utilisation": {p: round(sum(v) / max(1.0, sum(gpus)), 4) for p, v in busy.items()},
            "standard_error": {p: round(spread(v, gpus), 4) for p, v in busy.items()},
            "paper": dict(PAPER.get(name, {})),
            **order(busy, gpus),
            "beyond_spraying": beyond_spraying(busy, gpus),
        }
    return {
        "trace": spec.trace or "generated",
        "days": spec.days,
        "samples": spec.samples,
        "window_s": spec.window_s,
        "seed": spec.seed,
        "volume": spec.volume,
        "busy": spec.busy or (None if spec.trace else BUSY),
        "chosen_on": CHOSEN_ON,
        "ours": LABEL,
        "calibration": {"level": LEVEL, **asdict(level)} if level else None,
        "fabrics": fabrics,
        "as_in_the_paper": {name: all(f["order"].values()) for name, f in fabrics.items()},
    }


def beyond_spraying(busy: Mapping[str, list[float]], gpus: list[float]) -> dict[str, list[float]]:
    """What each policy that sets priorities or times gains over spraying alone, which needs no routing, as a
    part of the GPUs, and its standard error. The arguments are those of `order`."""
    gained = {}
    for name in ("crux_full", "cassini", "ours"):
        if name in busy and "spray" in busy:
            gains = [b - a for a, b in zip(busy["spray"], busy[name], strict=True)]
            gained[name] = [round(sum(gains) / max(1.0, sum(gpus)), 4), round(spread(gains, gpus), 4)]
    return gained


def order(busy: Mapping[str, list[float]], gpus: list[float]) -> dict[str, dict[str, Any]]:
    """Check each claim about the order of utilisations (`order`), with its `margin` and standard error.

    `busy` has the number of computing GPUs at each moment by policy, `gpus` the number of allocated GPUs. "<"
    is strict. "<=" may be missed by a standard error, or by a tenth of a point.
    """
    total = max(1.0, sum(gpus))

    def margin(low: str, high: str) -> tuple[float, float]:
        gains = [b - a for a, b in zip(busy[low], busy[high], strict=True)]
        return sum(gains) / total, spread(gains, gpus)

    strict = [("sincronia", r) for r in ("taccl", "cassini")] + [(r, "crux_pa") for r in ("taccl", "cassini")]
    loose = [("crux_pa", "crux_ps_pa"), *([("crux_full", "ours")] if "ours" in busy else [])]
    margins = {f"{a} < {b}": margin(a, b) for a, b in strict}
    claims = {claim: gain > 0 for claim, (gain, _) in margins.items()}
    for a, b in loose:
        margins[f"{a} <= {b}"] = gain, error = margin(a, b)
        claims[f"{a} <= {b}"] = gain >= -max(error, TENTH)
    within = "crux_full within a point of crux_ps_pa"
    margins[within] = margin("crux_ps_pa", "crux_full")
    claims[within] = abs(margins[within][0]) <= POINT
    return {
        "order": claims,
        "margin": {claim: [round(gain, 4), round(error, 4)] for claim, (gain, error) in margins.items()},
    }


def draw(out: Path, fabrics: Mapping[str, Any]) -> list[str]:
    """Draw Figure 23 with the paper's bars beside ours; returns the file name."""
    groups, ours, theirs = [], [], []
    for fabric in fabrics.values():
        for policy, value in fabric["utilisation"].items():
            groups.append(policy)
            ours.append(value)
            theirs.append(fabric["paper"].get(policy, 0.0))
    title = "CRUX Figure 23: " + ", ".join(fabrics)
    figure = draw_bars(title, "GPU utilisation", groups, {"measured": ours, "the paper's": theirs})
    (out / "figure-23.svg").write_text(figure, encoding="utf-8")
    return ["figure-23.svg"]


def to_text(report: Mapping[str, Any]) -> str:
    """The report as text."""
    lines = [f"{report['trace']} trace of {report['days']:g} days, {report['samples']} moments"]
    level = report["calibration"]
    lines.append(f"volume of communication: {report['volume']:.3g} times")
    if level:
        verdict = "as calibrated" if level["reached"] else "no tried volume comes nearer"
        lines[-1] += f" (CRUX then has {level['utilisation']:.3f} of {level['level']} on the Clos, {verdict})"
    for name, fabric in report["fabrics"].items():
        lines.append(
            f"{name}: {fabric['jobs_at_once']} jobs, {fabric['jobs_that_send']} of them on several hosts, "
            f"on {fabric['gpus_allocated']} GPUs at once"
        )
        for policy, value in fabric["utilisation"].items():
            paper = f" (paper {fabric['paper'][policy]:.2f})" if policy in fabric["paper"] else ""
            lines.append(f"  {policy:12} {value:.4f} +- {fabric['standard_error'][policy]:.4f}{paper}")
        for claim, holds in fabric["order"].items():
            gain, error = fabric["margin"][claim]
            lines.append(f"  {claim}: {'yes' if holds else 'no'} (by {gain:+.4f} +- {error:.4f})")
        for policy, (gain, error) in fabric["beyond_spraying"].items():
            lines.append(f"  {policy} beyond spraying: {gain:+.4f} +- {error:.4f}")
    for name, row in report["schedulers"].items():
        used, (gain, error) = row["utilisation"], row["gain"]
        lines.append(
            f"scheduler {name}: ECMP {used['ecmp']:.4f}, CRUX {used['crux_full']:.4f} ({gain:+.4f} +- "
            f"{error:.4f}), spraying {used['spray']:.4f}; paper {row['paper'][0]:.2f}, {row['paper'][1]:.2f}"
        )
    return "\n".join([*lines, f"ours: {report['ours']}", f"chosen on: {report['chosen_on']}"])
