# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper crux-trace`: two weeks of jobs under CRUX, its parts and its rivals (CRUX, Figure 23)."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from controller.kernel import available
from polyrhythm.paper.bars import draw_bars
from polyrhythm.paper.crux_trace_cases import PAPER, POLICIES, Moment, Plan, cluster, measure, requests
from sim.output import versions

POINT = 0.01
"""What counts as the same utilisation: one point."""
_DONE = "moments.jsonl"

Key = tuple[str, int, str]
"""Fabric, number of the moment, policy as the report calls it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm paper crux-trace`."""
    add = parser.add_argument
    add(
        "--trace",
        default="",
        metavar="FILE",
        help="any trace that `polyrhythm sim` reads (default: generated)",
    )
    add("--topology", default="", metavar="FILE", help="a third fabric: Lingjun's topo.csv, or JSON")
    add("--days", type=float, default=14.0, help="of the trace (default 14)")
    add(
        "--samples",
        type=int,
        default=56,
        help="moments looked at, evenly spread (default 56: every 5.4 hours)",
    )
    add("--window-s", type=float, default=10.0, metavar="S", help="simulated at each moment (default 10)")
    add("--quick", action="store_true", help="4 moments of 4 s")
    add("--without-ours", action="store_true", help="leave out Polyrhythm's own policy, which plans longest")
    add("--seed", type=int, default=1, help="of the generated jobs and of ECMP (default 1)")
    add("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a processor)")
    add(
        "--out",
        metavar="DIR",
        type=Path,
        help="report.json, the figure, and what is done so far, to go on from",
    )
    add("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Simulate what is not there yet, judge, write and print; 1 without Numba, 2 for bad input."""
    samples, window = (4, 4.0) if args.quick else (args.samples, args.window_s)
    for name, value, least, most in (
        ("days", args.days, 0.01, 1000),
        ("samples", samples, 1, 100_000),
        ("window-s", window, 1, 3600),
        ("workers", args.workers, 1, 1024),
        ("seed", args.seed, 0, 2**31),
    ):
        if not least <= value <= most:
            print(f"--{name}: {value:g}; legal: from {least:g} to {most:g}", file=sys.stderr)
            return 2
    if not available():
        print("crux-trace: needs Numba, which is not installed", file=sys.stderr)
        return 1
    plan = Plan(args.trace, args.topology, args.days, samples, window, args.seed)
    policies = [name for name in POLICIES if name != "ours" or not args.without_ours]
    try:
        jobs = {name: len(requests(plan, name)) for name in plan.fabrics}
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        found = collect(plan, policies, args.workers, args.out)
        report = summary(plan, policies, jobs, found)
        report["seconds"] = round(time.perf_counter() - began, 1)
        if args.out:
            report["figures"] = draw(args.out, report["fabrics"])
            (args.out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print(json.dumps(report, indent=2) if args.json else to_text(report))
    return 0


def _mark(plan: Plan) -> str:
    """What the results depend on but their keys."""
    files = [
        Path(f).read_bytes() if f and Path(f).is_file() else f.encode() for f in (plan.trace, plan.topology)
    ]
    words = json.dumps([asdict(plan), versions(), [sha256(f).hexdigest() for f in files]], sort_keys=True)
    return sha256(words.encode()).hexdigest()


def collect(plan: Plan, policies: list[str], workers: int, out: Path | None) -> dict[Key, Moment]:
    """Every moment of every fabric under every policy; with `out`, those done before are taken from there."""
    mark, path = _mark(plan), out / _DONE if out else None
    found = dict(_read(path, mark)) if path and path.exists() else {}
    todo = [
        (fabric, sample, policy)
        for sample in range(plan.samples)
        for fabric in plan.fabrics
        for policy in policies
        if (fabric, sample, policy) not in found
    ]
    if path is not None:
        path.write_text("".join(_line(mark, key, moment) for key, moment in found.items()), encoding="utf-8")
    began = time.perf_counter()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        work = {pool.submit(measure, plan, key[0], key[1], POLICIES[key[2]]): key for key in todo}
        for done, future in enumerate(as_completed(work), 1):
            key = work[future]
            found[key] = future.result()
            if path is not None:
                with path.open("a", encoding="utf-8") as file:
                    file.write(_line(mark, key, found[key]))
            if sys.stderr.isatty():
                left = (time.perf_counter() - began) / done * (len(todo) - done)
                words = f"\r{done} of {len(todo)} simulations, {left / 60:.1f} min left "
                print(words, end="" if done < len(todo) else "\n", file=sys.stderr, flush=True)
    return found


def _line(mark: str, key: Key, moment: Moment) -> str:
    return json.dumps({"mark": mark, "key": key, "moment": asdict(moment)}) + "\n"


def _read(path: Path, mark: str) -> Iterator[tuple[Key, Moment]]:
    """What an earlier run with the same settings has done; a line that a kill cut off is passed over."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if entry["mark"] == mark:
            fabric, sample, policy = entry["key"]
            yield (fabric, sample, policy), Moment(**entry["moment"])


def summary(
    plan: Plan, policies: list[str], jobs: Mapping[str, int], found: Mapping[Key, Moment]
) -> dict[str, Any]:
    """Utilisation over allocated GPU-seconds by fabric and policy, and what of the paper's order holds."""
    fabrics: dict[str, dict[str, Any]] = {}
    for name in plan.fabrics:
        moments = {p: [found[name, i, p] for i in range(plan.samples)] for p in policies}
        gpus = [m.gpus for m in moments[policies[0]]]
        used = {p: sum(m.used for m in rows) / max(1, sum(gpus)) for p, rows in moments.items()}
        fabrics[name] = {
            "gpus": cluster(name, plan.topology).gpus,
            "jobs": jobs[name],
            "jobs_at_once": round(sum(m.jobs for m in moments[policies[0]]) / plan.samples, 1),
            "gpus_allocated": round(sum(gpus) / plan.samples, 1),
            "utilisation": {p: round(v, 4) for p, v in used.items()},
            "paper": dict(PAPER.get(name, {})),
            "order": order(used),
        }
    return {
        "trace": plan.trace or "generated",
        "days": plan.days,
        "samples": plan.samples,
        "window_s": plan.window_s,
        "fabrics": fabrics,
        "as_in_the_paper": {name: all(f["order"].values()) for name, f in fabrics.items()},
    }


def order(used: Mapping[str, float]) -> dict[str, bool]:
    """Each claim about the order of utilisations, and whether it is so here."""
    claims = {f"sincronia < {rival}": used["sincronia"] < used[rival] for rival in ("taccl", "cassini")}
    claims |= {f"{rival} < crux_pa": used[rival] < used["crux_pa"] for rival in ("taccl", "cassini")}
    claims["crux_pa <= crux_ps_pa"] = used["crux_pa"] <= used["crux_ps_pa"]
    claims["crux_full within a point of crux_ps_pa"] = abs(used["crux_full"] - used["crux_ps_pa"]) <= POINT
    if "ours" in used:
        claims["crux_full <= ours"] = used["crux_full"] <= used["ours"] + 1e-9
    return claims


def draw(out: Path, fabrics: Mapping[str, Any]) -> list[str]:
    """Figure 23 with the paper's bars beside ours, where it has any, as SVG; returns the name."""
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
    """The report for reading."""
    lines = [f"{report['trace']} trace of {report['days']:g} days, {report['samples']} moments"]
    for name, fabric in report["fabrics"].items():
        lines.append(f"{name}: {fabric['jobs_at_once']} jobs on {fabric['gpus_allocated']} GPUs at once")
        for policy, value in fabric["utilisation"].items():
            paper = f" (paper {fabric['paper'][policy]:.2f})" if policy in fabric["paper"] else ""
            lines.append(f"  {policy:12} {value:.4f}{paper}")
        lines += [f"  {claim}: {'yes' if holds else 'no'}" for claim, holds in fabric["order"].items()]
    return "\n".join(lines)
