# SPDX-License-Identifier: Apache-2.0
"""Figures of the papers beside ours, each with a verdict, from the reports of the experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from polyrhythm.paper.untuned_table import JUDGED, NEGLIGIBLE
from polyrhythm.paper.verdicts import compared, same_order


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the report. `paper` and `ours` are the figures that `verdict` compares, None where they are no
    numbers; then `paper_text` and `ours_text` hold them. `why` says what the verdict rests on."""

    source: str
    what: str
    paper: float | None
    ours: float | None
    verdict: str
    why: str = ""
    paper_text: str = ""
    ours_text: str = ""


def routing(report: Mapping[str, Any]) -> Iterator[Figure]:
    """The claims of the routing paper. It prints no numbers for its figures; those of two jobs are of its
    authors' code."""
    for claim in report["claims"]:
        if claim["paper"] is not None:
            yield Figure(
                "routing paper", claim["what"], None, None, claim["verdict"], claim.get("why", ""),
                _words(claim["paper"]), _words(claim["ours"]),
            )  # fmt: skip
    if not report["ilp_proven"]:
        yield Figure(
            "routing paper", "the integer program's optimum", None, None, "not run",
            "highspy (polyrhythm[ilp]) is not installed, or proved nothing in its time",
        )  # fmt: skip


def crux_microbench(report: Mapping[str, Any]) -> Iterator[Figure]:
    """Section 4.4: how near to the optimum each part of CRUX is."""
    for part, paper in report["paper_pct"].items():
        ours, error = report[f"{part}_pct"], report["interval_pct"][part]
        name = part.replace("_", " ")
        yield Figure(
            "CRUX, 4.4", f"{name}: % of the optimum, mean of {report['cases']} cases", paper, ours,
            compared(paper, ours, near=0.5, neutral=None, rising=True, error=error),
            f"ours +- {error:.2f}; tolerance 0.5 points; cases drawn by our rule, where a random choice "
            f"has {report[f'{part}_random_pct']:.1f} %",
        )  # fmt: skip


def crux_testbed(report: Mapping[str, Any]) -> Iterator[Figure]:
    """Figures 19 to 22: the change of each model's completion time."""
    for case in report["cases"]:
        for model, change in case["change"].items():
            paper, ours = change["paper_pct"], change["pct"]
            # Where it is slight, the paper's point is that this model hardly changes.
            slight = abs(paper) <= _SLIGHT_PCT
            near = _SLIGHT_PCT if slight else _NEAR_PCT
            verdict = compared(paper, ours, near=near, neutral=None if slight else 0.0, rising=False)
            yield Figure(
                f"CRUX, Figure {case['figure']}", f"{case['case']}: change of {model}'s completion time, %",
                paper, ours, "calibrated" if verdict in ("order only", "surpassed") else verdict,
                f"tolerance {near:g} points; CRUX does not publish what its jobs send, so the jobs were "
                "chosen for the sign of each figure, and the sign alone is no result",
            )  # fmt: skip


def crux_trace(report: Mapping[str, Any]) -> Iterator[Figure]:
    """Figure 23: GPU utilisation by fabric and policy, and the paper's claims about their order."""
    calibrated = report["calibration"] is not None
    for name, fabric in report["fabrics"].items():
        for policy, paper in fabric["paper"].items():
            if policy not in fabric["utilisation"]:
                continue
            ours = fabric["utilisation"][policy]
            level = fabric["paper"]["crux_full"]
            if calibrated and name == "clos" and policy == "crux_full":
                verdict, why = "calibrated", "the bytes of all jobs are scaled to give this figure"
            elif calibrated and name == "clos" and abs(paper - level) <= _NEAR_UTILISATION:
                verdict = "calibrated"
                why = "the paper's figure is that of crux_full, to which the bytes of all jobs are scaled"
            else:
                near = abs(paper - ours) <= _NEAR_UTILISATION
                below = (paper <= level) == (ours <= fabric["utilisation"]["crux_full"])
                verdict = "reproduced" if near else "calibrated" if below else "not reproduced"
                why = (
                    f"tolerance {100 * _NEAR_UTILISATION:g} points; the jobs were chosen for the order of "
                    "the policies, so the same side of CRUX is no result"
                )
            yield Figure("CRUX, Figure 23", f"{name}: GPU utilisation, {policy}", paper, ours, verdict, why)
        for claim, holds in fabric["order"].items():
            gain, error = fabric["margin"][claim]
            yield Figure(
                "CRUX, Figure 23", f"{name}: {claim}", None, None,
                "calibrated" if holds else "not reproduced", "the jobs were chosen for this order",
                "holds", f"{'holds' if holds else 'does not hold'}: {gain:+.4f} +- {error:.4f}",
            )  # fmt: skip
    yield from _schedulers(report)


def _schedulers(report: Mapping[str, Any]) -> Iterator[Figure]:
    """Figure 25: what CRUX adds to a job scheduler, in points of utilisation."""
    for name, row in report["schedulers"].items():
        paper = round(row["paper"][1] - row["paper"][0], 4)
        ours, error = row["gain"]
        yield Figure(
            "CRUX, Figure 25", f"job scheduler {name}: what CRUX adds to the GPU utilisation", paper, ours,
            compared(paper, ours, near=_NEAR_UTILISATION, neutral=0.0, rising=True, error=error),
            f"ours +- {error:.4f}; Clos, ECMP without; a rule of ours stands for the scheduler; "
            f"tolerance {100 * _NEAR_UTILISATION:g} points",
        )  # fmt: skip


def mltcp(report: Mapping[str, Any]) -> Iterator[Figure]:
    """Thesis, 1.2: how two identical jobs shift, and after how many iterations they take turns."""
    for n, (paper, ours) in enumerate(zip(_SHIFTS_MS, report["convergence_ms"], strict=False), start=1):
        yield Figure(
            "MLTCP", f"fluid model: offset after {n} iterations from 20 of 100 ms, ms", paper, ours,
            "reproduced" if abs(paper - ours) <= 0.1 else "not reproduced",
            "the paper's column is the thesis' closed form; the fluid model does not use it",
        )  # fmt: skip
    ours = report["iterations_to_interleave"]
    yield Figure(
        "MLTCP", "packets: iterations until two jobs take turns, the longest of "
        f"{report['starts']} start{'' if report['starts'] == 1 else 's'}", 30.0, ours,
        "not reproduced" if ours is None or ours > _TURNS_BY else "reproduced",
        f"within about 30 in the thesis; tolerance 3; {report['iterations']} iterations were run; "
        "the number depends on jobs and starts, so fewer is not better",
    )  # fmt: skip


def cassini_snapshots(report: Mapping[str, Any]) -> Iterator[Figure]:
    """Tables 3.1 and 4.3: the gain of jobs that share a link.

    A job of Table 4.3 has a profile that sends, alone, as long as the thesis' job in time. So a gain beyond
    the thesis' comes from a slower baseline and surpasses nothing, and a gain as large needs like times.
    The periods of the compatible groups of Table 3.1 were made of the thesis' two times.
    """
    for row in (*report["snapshots"], *report["groups"]):
        gain, times = row["verdict"], row["verdict"]["mean_ms"]
        kind = "communication" if row["table"] == "4.3" else "iteration"
        verdict = compared(gain["thesis_gain"], gain["gain"], near=0.05, neutral=1.0, rising=True)
        alike = all(abs(ours / thesis - 1) <= _ALIKE for ours, thesis in times.values())
        if verdict == "surpassed" or (verdict == "reproduced" and not alike):
            same = same_order(gain["thesis_gain"], gain["gain"], near=0.05, neutral=1.0)
            verdict = "order only" if same else "not reproduced"
        made = row["table"] == "3.1" and row["thesis_compatible"]
        yield Figure(
            f"CASSINI, Table {row['table']}", f"{row['case']}: {kind} time when fair over when in time",
            gain["thesis_gain"], gain["gain"],
            "calibrated" if made and verdict != "not reproduced" else verdict,
            "mean of the jobs, ours (thesis): "
            + ", ".join(f"{name} {ours:.0f} ({thesis:.0f}) ms" for name, (ours, thesis) in times.items())
            + f"; reproduced: a gain within 0.05 from times within {100 * _ALIKE:g} %. "
            + (
                "The jobs were made of these times of the thesis"
                if made
                else "A larger gain comes from a slower baseline, so it surpasses nothing; the profiles are "
                "ours where the thesis has none"
            ),
        )  # fmt: skip


def cassini_testbed(report: Mapping[str, Any]) -> Iterator[Figure]:
    """Sections 4.5.2 and 4.5.3: schedulers with CASSINI over the same without, and ours over CASSINI."""
    for row in report["rows"]:
        where = f"{row['trace']} trace, {row['scheduler']}"
        why = "tolerance 0.1; jobs drawn from Table 4.2"
        if row["bound"]:
            why += f"; if each job is alone on its servers the mean is {row['bound']:.2f} x shorter"
        if row["trace"] == "snapshot":
            why += "; the thesis prints these two for model-parallel jobs"
        for figure, paper in (row["paper"] or {}).items():
            ours = row["shorter"]["CASSINI"][figure]
            verdict = compared(paper, ours, near=0.1, neutral=1.0, rising=True)
            yield Figure(
                "CASSINI, 4.5", f"{where}: {figure} iteration time shorter with CASSINI, x", paper, ours,
                verdict, why,
            )  # fmt: skip
        marks = row.get("dlrm_marks")
        if marks and marks["paper"]:
            ours = marks["fewer"]
            verdict = (
                "not reproduced"
                if ours is None
                else compared(marks["paper"], ours, near=3, neutral=1.0, rising=True)
            )
            counts = marks["by_method"]
            yield Figure(
                "CASSINI, 4.5.3", f"{where}: fewer ECN marks of DLRM with CASSINI, x", marks["paper"], ours,
                verdict, "tolerance 3; marks are the simulator's estimate; an iteration of DLRM has "
                f"{counts['plain']:g} without CASSINI and {counts['CASSINI']:g} with it",
            )  # fmt: skip
        hard = row["ours_over_cassini_where_hard"]
        if hard:
            draws, beyond = row["hard_draws"], hard["mean"] > 1.005
            yield Figure(
                "ours beyond CASSINI",
                f"{where}: mean iteration shorter where there are loops or misfits "
                f"({draws} draw{'' if draws == 1 else 's'}), x",
                None, None, ("surpassed" if draws > 1 else "order only") if beyond else "not reproduced",
                "our aim, no figure of the thesis: 0.005 beyond CASSINI's, in two draws or more; "
                f"p99 {hard['p99']:.3f} x",
                "1", f"{hard['mean']:.3f}",
            )  # fmt: skip


def interleave(report: Mapping[str, Any]) -> Iterator[Figure]:
    """What the thesis says of CASSINI and MLTCP against their baselines, beside our policy against ECMP."""
    for name, mean, p99 in (("cassini", 1.6, 2.5), ("mltcp", 1.9, 2.7)):
        row = report["against_ecmp"].get(name)
        if row is None:
            continue
        for what, paper, ours in (
            ("mean", mean, row["mean_speedup_up_to"]),
            ("p99", p99, row["p99_speedup_up_to"]),
        ):
            yield Figure(
                "CASSINI thesis, summary", f"{name}: {what} iteration time shorter by up to, x", paper, ours,
                compared(paper, ours, near=0.1, neutral=1.0, rising=True),
                "tolerance 0.1; other jobs and another baseline (ECMP) than in the thesis",
            )  # fmt: skip


def untuned(report: Mapping[str, Any]) -> Iterator[Figure]:
    """Untuned workloads: whether CRUX, CASSINI and the default policy beat ECMP, and who beats them."""
    lost: dict[tuple[str, float, str], list[str]] = {}
    for row in report["losses"]:
        place = row["trace"], row["load"], row["policy"]
        lost.setdefault(place, []).append(f"{row['against']} by {100 * (row['ratio'] - 1):.1f} %")
    for row in report["rows"]:
        if row["policy"] not in JUDGED:
            continue
        ratio, half = row["jct_to_ecmp"], row["jct_to_ecmp_pm"]
        worse = lost.get((row["trace"], row["load"], row["policy"]), ["none"])
        yield Figure(
            "Untuned workloads",
            f"{row['trace']}, load {row['load']:g}: {row['policy']} has a shorter mean JCT than ECMP",
            None, None, "order only" if ratio + half < 1 - NEGLIGIBLE else "not reproduced",
            ("" if row["policy"] != "polyrhythm" else "our aim, no figure of a paper; ")
            + f"tolerance {NEGLIGIBLE:g}; calibrated on nothing; worst job {row['worst_job']:.2f} times "
            f"ECMP's; loses to: {', '.join(worse)}",
            "below 1", f"{ratio:.3f} +- {half:.3f}",
        )  # fmt: skip


def dally(report: Mapping[str, Any]) -> Iterator[Figure]:
    """Tables II and III: job completion times on 8 racks, as ratios to Tiresias."""
    table = {"batch": "II", "poisson": "III"}
    for row in report["rows"]:
        for figure, found in row["paper"].items():
            yield Figure(
                f"Dally, Table {table[row['arrivals']]}", f"{row['scheduler']}: {figure} over Tiresias'",
                found["ratio"], row["to_tiresias"][figure], found["verdict"],
                "tolerance 10 points; the latency of other sizes than Table I's is not published",
            )  # fmt: skip


EXTRACTORS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Figure]]] = {
    "routing": routing,
    "mltcp": mltcp,
    "cassini-snapshots": cassini_snapshots,
    "cassini-testbed": cassini_testbed,
    "interleave": interleave,
    "crux-microbench": crux_microbench,
    "crux-testbed": crux_testbed,
    "crux-trace": crux_trace,
    "untuned": untuned,
    "dally": dally,
}
"""By experiment of `polyrhythm paper`: its report -> rows."""

ABSENT = (
    Figure("CASSINI, Figures 4.12 and 4.15", "traces of model-parallel jobs only", None, None,
           "not run", "the thesis prints no profile of such jobs from which one could be made"),
    Figure("Dally, shared links", "Dally's placements with paths, levels and time", None, None,
           "not run", "the paper has no such figure; polyrhythm paper dally --model shared measures ours"),
    Figure("routing paper, Figure 7", "time to assign paths beside the rivals'", None, None,
           "not run", "the paper's figure times process start and file polling of the rivals, too"),
    Figure("MLTCP", "TCP senders of the kernel", None, None,
           "not run", "needs root and a compiler for eBPF: polyrhythm paper mltcp --kernel"),
    Figure("CASSINI and CRUX, testbeds", "unchanged PyTorch and Open MPI jobs", None, None,
           "not run", "needs root, PyTorch and Open MPI: polyrhythm paper real-training"),
)  # fmt: skip
"""Tables and figures for which there is no experiment, or that no command without root can measure."""

LEFT_OUT = (
    Figure("CASSINI, Table 3.1", "groups of jobs that are compatible, or not", None, None,
           "not run", "left out by --quick; polyrhythm paper cassini-snapshots has it"),
    Figure("CRUX, Figure 23", "our policy beside CRUX", None, None,
           "not run", "left out by --quick; polyrhythm paper crux-trace has it"),
    Figure("Dally, Figures for 2, 4 and 16 racks", "all schedulers", None, None,
           "not run", "left out by --quick; polyrhythm paper dally has them"),
)  # fmt: skip
"""What --quick leaves out."""
_SLIGHT_PCT, _NEAR_PCT = 3.0, 5.0
_NEAR_UTILISATION = 0.03
_ALIKE = 0.1
"""Mean times that differ by less than this part are alike. Chosen."""
_TURNS_BY = 33
_SHIFTS_MS = (66.7, 94.1, 99.2, 99.9)


def _words(value: object) -> str:
    """A claim's value as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
