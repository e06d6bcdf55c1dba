# SPDX-License-Identifier: Apache-2.0
"""Figures of the papers beside ours, each with a verdict, from the reports of the experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

VERDICTS = ("surpassed", "reproduced", "order only", "not reproduced", "calibrated", "not run")
"""surpassed: better than the paper's by more than the tolerance. reproduced: within it. order only: on the
same side of the baseline as in the paper. calibrated: our workload was chosen to give this figure."""


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


def compared(paper: float, ours: float, *, near: float, neutral: float | None, rising: bool) -> str:
    """The verdict on a number. `near` is the tolerance, in the unit of both. `neutral` is the value of "no
    effect"; None: there is none. `rising`: larger is better."""
    gain = (ours - paper) if rising else (paper - ours)
    if abs(gain) <= near:
        return "reproduced"
    if gain > 0:
        return "surpassed"
    if neutral is not None and (paper - neutral) * (ours - neutral) > 0:
        return "order only"
    return "not reproduced"


def routing(report: Mapping[str, Any]) -> Iterator[Figure]:
    """The claims of the routing paper. It prints no numbers for its figures; those of two jobs are of its
    authors' code."""
    for claim in report["claims"]:
        if claim["paper"] is not None:
            yield Figure(
                "routing paper", claim["what"], None, None, claim["verdict"], claim.get("why", ""),
                _words(claim["paper"]), _words(claim["ours"]),
            )  # fmt: skip


def crux_microbench(report: Mapping[str, Any]) -> Iterator[Figure]:
    """Section 4.4: how near to the optimum each part of CRUX is."""
    for part, paper in report["paper_pct"].items():
        ours = report[f"{part}_pct"]
        name = part.replace("_", " ")
        yield Figure(
            "CRUX, 4.4", f"{name}: % of the optimum, mean of {report['cases']} cases", paper, ours,
            compared(paper, ours, near=0.5, neutral=None, rising=True),
            f"tolerance 0.5 points; a random choice has {report[f'{part}_random_pct']:.1f} %",
        )  # fmt: skip


def crux_testbed(report: Mapping[str, Any]) -> Iterator[Figure]:
    """Figures 19 to 22: the change of each model's completion time."""
    for case in report["cases"]:
        for model, change in case["change"].items():
            paper, ours = change["paper_pct"], change["pct"]
            if paper < -_SLIGHT_PCT:
                verdict = compared(paper, ours, near=_NEAR_PCT, neutral=0.0, rising=False)
            else:
                # The paper's point is that this model hardly changes.
                verdict = compared(paper, ours, near=_NEAR_PCT, neutral=None, rising=False)
            yield Figure(
                f"CRUX, Figure {case['figure']}", f"{case['case']}: change of {model}'s completion time, %",
                paper, ours, verdict,
                f"tolerance {_NEAR_PCT:g} points; CRUX does not publish what its jobs send",
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
            else:
                near = abs(paper - ours) <= _NEAR_UTILISATION
                below = (paper <= level) == (ours <= fabric["utilisation"]["crux_full"])
                verdict = "reproduced" if near else "order only" if below else "not reproduced"
                why = f"tolerance {100 * _NEAR_UTILISATION:g} points; order: the same side of CRUX"
            yield Figure("CRUX, Figure 23", f"{name}: GPU utilisation, {policy}", paper, ours, verdict, why)
        for claim, holds in fabric["order"].items():
            gain, error = fabric["margin"][claim]
            yield Figure(
                "CRUX, Figure 23", f"{name}: {claim}", None, None,
                "order only" if holds else "not reproduced", "a claim about the order",
                "holds", f"{'holds' if holds else 'does not hold'}: {gain:+.4f} +- {error:.4f}",
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
        "MLTCP", f"packets: iterations until {report['starts']} starts of two jobs take turns", 30.0, ours,
        "not reproduced" if ours is None else compared(30.0, ours, near=3, neutral=None, rising=False),
        "about 30 in the thesis; tolerance 3",
    )  # fmt: skip


def cassini_snapshots(report: Mapping[str, Any]) -> Iterator[Figure]:
    """Tables 3.1 and 4.3: the gain of jobs that share a link."""
    for row in (*report["snapshots"], *report["groups"]):
        verdict = row["verdict"]
        kind = "communication" if row["table"] == "4.3" else "iteration"
        yield Figure(
            f"CASSINI, Table {row['table']}", f"{row['case']}: {kind} time when fair over when in time",
            verdict["thesis_gain"], verdict["gain"],
            compared(verdict["thesis_gain"], verdict["gain"], near=0.05, neutral=1.0, rising=True),
            "tolerance 0.05; the profiles are ours where the thesis has none",
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
    "interleave": interleave,
    "crux-microbench": crux_microbench,
    "crux-testbed": crux_testbed,
    "crux-trace": crux_trace,
    "dally": dally,
}
"""By experiment of `polyrhythm paper`: its report -> rows."""

ABSENT = (
    Figure("CASSINI, testbed", "Poisson and dynamic traces under Themis and Pollux, beside CASSINI", None,
           None, "not run", "there is no such experiment yet"),
    Figure("CRUX, Figure 25", "CRUX beside job schedulers (none, Muri, HiveD)", None, None,
           "not run", "there is no such experiment yet"),
    Figure("Dally, shared links", "Dally's placements with paths, levels and time", None, None,
           "not run", "the paper has no such figure; polyrhythm paper dally --model shared measures ours"),
    Figure("routing paper, Figure 7", "time to assign paths beside the rivals'", None, None,
           "not run", "the paper's figure times process start and file polling of the rivals, too"),
)  # fmt: skip
"""Tables and figures for which there is no experiment."""
_SLIGHT_PCT, _NEAR_PCT = 3.0, 5.0
_NEAR_UTILISATION = 0.03
_SHIFTS_MS = (66.7, 94.1, 99.2, 99.9)


def _words(value: object) -> str:
    """A claim's value as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
