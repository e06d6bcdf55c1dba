# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper untuned`: untuned jobs of published traces, and where CRUX, CASSINI or we lose."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from polyrhythm.paper import harness
from polyrhythm.paper.charts import draw_bars
from polyrhythm.paper.resumable import collect
from polyrhythm.paper.unjudged import LABEL
from polyrhythm.paper.untuned_jobs import (
    FABRICS,
    HORIZON_S,
    JOBS_A_GPU,
    STATISTICS,
    UntunedSpec,
    cluster,
    digest_of,
    smallest_fabric,
    workload,
)
from polyrhythm.paper.untuned_run import POLICIES, SCHEDULER, measure, run_of, task_of
from polyrhythm.paper.untuned_table import BEYOND_SPRAYING, losses, spraying, table

LOADS = (0.5, 0.7, 0.9)
SEEDS, MOST_SEEDS = 3, 5
CALIBRATED = (
    "on nothing: jobs, fabric, loads and policies are not tuned. The placement was changed once: with jobs "
    "packed closely (backfill), few shared links, and the policies were within 0.1 % of one another on "
    "Lingjun's jobs"
)
_ROWS = "simulations.jsonl"
_QUICK_FABRIC, *_ = FABRICS
_QUICK_LOADS, _QUICK_SEEDS = (0.7,), 2
_SHOWN = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm paper untuned`."""
    add = parser.add_argument
    add(
        "--trace",
        nargs="+",
        default=list(STATISTICS),
        metavar="FILE",
        help="traces that `polyrhythm sim` reads, such as those of Lingjun, Muri and SenseTime, or names of "
        f"generators with their statistics (default: {' '.join(STATISTICS)})",
    )
    add(
        "--topology",
        metavar="FILE",
        help=f"topology file, or one of {', '.join(FABRICS)}: racks of 4 or 8 hosts, 2:1 (default: for each "
        "trace the smallest one that has the GPUs of its largest job)",
    )
    add(
        "--loads",
        nargs="+",
        type=float,
        metavar="F",
        help=f"parts of the GPUs that the jobs would keep busy alone, 0.05 to 1 (default {_words(LOADS)})",
    )
    add("--seeds", type=int, metavar="N", help=f"number of seeds, 1 to {MOST_SEEDS} (default {SEEDS})")
    add(
        "--jobs-a-gpu",
        type=float,
        default=JOBS_A_GPU,
        metavar="F",
        help=f"how many jobs each GPU runs on average, 0.1 to 100 (default {JOBS_A_GPU:g})",
    )
    add("--policies", nargs="+", choices=POLICIES, metavar="NAME", help=f"of {', '.join(POLICIES)}")
    add(
        "--quick",
        action="store_true",
        help=f"one load ({_words(_QUICK_LOADS)}), {_QUICK_SEEDS} seeds, {_QUICK_FABRIC}, where no option "
        "says otherwise",
    )
    harness.add_arguments(
        parser,
        "of the first draw of jobs",
        "folder for report.json, the figure and finished simulations; a stopped run continues from it",
    )


def run(args: argparse.Namespace) -> int:
    """Simulate what is missing, write and print. Returns 1 without Numba, 2 for bad input."""
    args.loads = args.loads or list(_QUICK_LOADS if args.quick else LOADS)
    args.seeds = (_QUICK_SEEDS if args.quick else SEEDS) if args.seeds is None else args.seeds
    args.topology = args.topology or (_QUICK_FABRIC if args.quick else None)
    ranges = [("loads", load, 0.05, 1.0) for load in args.loads]
    ranges += [("seeds", args.seeds, 1, MOST_SEEDS), ("jobs-a-gpu", args.jobs_a_gpu, 0.1, 100.0)]
    for name, value, least, most in ranges:
        if not least <= value <= most:
            return harness.refused(f"--{name}: {value:g}; legal: {least:g} to {most:g}")
    for name, values in (("loads", args.loads), ("trace", args.trace)):
        if len(set(values)) < len(values):
            return harness.refused(f"--{name}: {_words(values)}; legal: each once")
    try:
        specs = _specs(args)
        for spec in specs:
            workload(spec)
    except ValueError as error:
        return harness.refused(str(error))
    legal = {"workers": 1, "seed": 0}
    return harness.run("untuned", args, legal, partial(_experiment, args, specs), to_text)


def _specs(args: argparse.Namespace) -> list[UntunedSpec]:
    seeds = range(args.seed, args.seed + args.seeds)
    fabrics = {trace: args.topology or smallest_fabric(trace) for trace in args.trace}
    digests = {trace: digest_of(trace, fabrics[trace]) for trace in args.trace}
    return [
        UntunedSpec(trace, fabrics[trace], load, seed, args.jobs_a_gpu, digests[trace])
        for trace in args.trace
        for load in args.loads
        for seed in seeds
    ]


def _experiment(args: argparse.Namespace, specs: Sequence[UntunedSpec]) -> harness.ExperimentResult:
    # ECMP is the base of all ratios.
    policies = [p for p in POLICIES if p == POLICIES[0] or p in (args.policies or POLICIES)]
    keys = [(spec, policy) for spec in specs for policy in policies]
    path = args.out / _ROWS if args.out else None
    rows = collect(measure, [task_of(*key) for key in keys], args.workers, path, "untuned")
    runs = {(s.trace, s.load, p, s.seed): run_of(rows[task_of(s, p)]) for s, p in keys}
    report = {
        "calibrated": CALIBRATED,
        "ours": LABEL,
        "scheduler": SCHEDULER,
        "horizon_s": HORIZON_S,
        "jobs_a_gpu": args.jobs_a_gpu,
        "seeds": list(dict.fromkeys(spec.seed for spec in specs)),
        "not_run": {
            "policies": [p for p in POLICIES if p not in policies],
            "loads": [load for load in LOADS if load not in args.loads],
            "seeds": max(0, SEEDS - args.seeds),
        },
        "losses": losses(runs),
        "rows": table(runs),
        "spraying": spraying(runs),
        "workloads": [_described(trace, specs) for trace in args.trace],
    }
    return harness.ExperimentResult(report, partial(draw, report=report))


def _described(trace: str, specs: Sequence[UntunedSpec]) -> dict[str, Any]:
    """The source of a trace's jobs, their number, and the load that they offer."""
    mine = [spec for spec in specs if spec.trace == trace]
    found = [workload(spec) for spec in mine]
    source = f"generated with the statistics of {STATISTICS[trace].source}" if trace in STATISTICS else trace
    hosts = [
        sum(job.gpus > cluster(s.topology).servers[0].gpus for job in w.requests)
        for s, w in zip(mine, found, strict=True)
    ]
    return {
        "trace": trace,
        "source": source,
        "topology": mine[0].topology,
        "gpus": cluster(mine[0].topology).gpus,
        "jobs": [len(w.requests) for w in found],
        "jobs_larger_than_a_host": hosts,
        "load": [
            {"asked": s.load, "seed": s.seed, "offered": round(w.load, 3)}
            for s, w in zip(mine, found, strict=True)
        ],
    }


def draw(out: Path, report: Mapping[str, Any]) -> list[str]:
    """Draw the mean completion times over ECMP's; returns the file name."""
    rows = report["rows"]
    places = list(dict.fromkeys((row["trace"], row["load"]) for row in rows))
    bars = {
        policy: [r["jct_to_ecmp"] for r in rows if r["policy"] == policy]
        for policy in dict.fromkeys(row["policy"] for row in rows)
    }
    groups = [f"{Path(trace).name} {load:g}" for trace, load in places]
    figure = draw_bars("Untuned workloads", "mean completion time over ECMP's", groups, bars)
    (out / "untuned.svg").write_text(figure, encoding="utf-8")
    return ["untuned.svg"]


def to_text(report: Mapping[str, Any]) -> str:
    """The report as text: the losses first."""
    lost = report["losses"]
    lines = [f"where CRUX, CASSINI or the default policy lose in mean completion time: {len(lost)} places"]
    for row in lost[:_SHOWN]:
        sure = "" if row["certain"] else " (within the 95 % interval)"
        lines.append(
            f"  {Path(row['trace']).name} {row['load']:g}: {row['policy']} takes {row['ratio']:.3f} +- "
            f"{row['pm']:.3f} times as long as {row['against']}{sure}"
        )
    if len(lost) > _SHOWN:
        lines.append(f"  and {len(lost) - _SHOWN} smaller ones, in --json")
    lines.append(
        "trace, load, policy: mean JCT in s; GPU utilisation; JCT over ECMP's; worst job over ECMP's"
    )
    for r in report["rows"]:
        jct = f"{r['mean_jct_s']:9.1f} +- {r['mean_jct_s_pm']:<7.1f}"
        used = f"{r['gpu_utilisation']:.3f} +- {r['gpu_utilisation_pm']:.3f}"
        ratio = f"{r['jct_to_ecmp']:.3f} +- {r['jct_to_ecmp_pm']:.3f}"
        place = f"{Path(r['trace']).name} {r['load']:g} {r['policy']:15}"
        lines.append(f"  {place} {jct} {used}  {ratio}  {r['worst_job']:.2f}")
    for row in report["spraying"]:
        needless = "needless" if row["routing_needless"] else f"worth it ({row['best_routing']})"
        more = ", ".join(
            f"{p} {row['on_top'][p]['ratio']:.3f} +- {row['on_top'][p]['pm']:.3f}"
            for p in BEYOND_SPRAYING
            if p in row["on_top"]
        )
        lines.append(
            f"  {Path(row['trace']).name} {row['load']:g}: where packets are sprayed, routing is {needless}; "
            f"JCT over spraying's: {more}"
        )
    lines += [
        f"{w['trace']}: {w['source']}; {min(w['jobs'])} to {max(w['jobs'])} jobs on {w['gpus']} GPUs"
        for w in report["workloads"]
    ]
    left = report["not_run"]
    missing = [f"{name} {_words(left[name])}" for name in ("policies", "loads") if left[name]]
    missing += [f"{left['seeds']} of {SEEDS} seeds"] if left["seeds"] else []
    if missing:
        lines.append(f"not run: {', '.join(missing)}")
    lines.append(report["ours"])
    lines.append(f"calibrated {report['calibrated']}; scheduler {report['scheduler']}")
    return "\n".join(lines)


def _words(values: Sequence[object]) -> str:
    return " ".join(map(str, values))
