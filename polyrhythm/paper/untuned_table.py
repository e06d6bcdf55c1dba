# SPDX-License-Identifier: Apache-2.0
"""Figures on untuned workloads: means over seeds with 95 % intervals, and who loses where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any

from polyrhythm.paper.battery_metrics import half_interval

BASE = "ecmp"
JUDGED = ("crux", "cassini", "polyrhythm")
"""The policies whose losses are named first: those of the two papers, and the default."""
NEGLIGIBLE = 0.001
"""Mean completion times within a thousandth are equal. Chosen: below what a report shows."""
ROUTING_ONLY = ("ecmp", "routing", "dlb")
"""The policies that choose paths only."""
BEYOND_SPRAYING = ("spray-priority", "spray-time")
"""Spraying with CRUX's priorities, and with time-shifts."""


@dataclass(frozen=True, slots=True)
class UntunedRun:
    """A workload under a policy: the completion time of each job in s (from its arrival), the GPU-seconds
    computed and allocated."""

    completion_s: tuple[float, ...]
    computed: float
    allocated: float

    @property
    def mean_s(self) -> float:
        """The mean completion time in s."""
        return fmean(self.completion_s)


Runs = Mapping[tuple[str, float, str, int], UntunedRun]
"""By trace, load, policy and seed."""


def table(runs: Runs) -> list[dict[str, Any]]:
    """A row for each trace, load and policy.

    `mean_jct_s` and `gpu_utilisation` (computed over allocated GPU-seconds) are means over the seeds;
    `jct_to_ecmp` compares the mean completion time with ECMP's on the same jobs; each has `..._pm`, half of
    its 95 % interval over the seeds (0 with one seed). `worst_job` is the largest ratio of a job's
    completion time to the same job's under ECMP, over all seeds.
    """
    rows = []
    for trace, load, policy in dict.fromkeys((t, b, p) for t, b, p, _ in runs):
        seeds = sorted(s for t, b, p, s in runs if (t, b, p) == (trace, load, policy))
        mine = [runs[trace, load, policy, s] for s in seeds]
        base = [runs[trace, load, BASE, s] for s in seeds]
        figures = {
            "mean_jct_s": [m.mean_s for m in mine],
            "gpu_utilisation": [m.computed / m.allocated for m in mine],
            "jct_to_ecmp": [m.mean_s / b.mean_s for m, b in zip(mine, base, strict=True)],
        }
        row: dict[str, Any] = {"trace": trace, "load": load, "policy": policy, "seeds": len(seeds)}
        for name, values in figures.items():
            row[name], row[f"{name}_pm"] = round(fmean(values), 4), round(half_interval(values), 4)
        row["worst_job"] = round(
            max(
                own / other
                for m, b in zip(mine, base, strict=True)
                for own, other in zip(m.completion_s, b.completion_s, strict=True)
            ),
            3,
        )
        rows.append(row)
    return rows


def losses(runs: Runs) -> list[dict[str, Any]]:
    """Where a policy of JUDGED has a longer mean completion time than another, the largest loss first.

    `ratio` is the mean over the seeds of the quotient on the same jobs, `pm` half of its 95 % interval.
    `certain`: the interval is wholly above 1 (never with one seed).
    """
    found = []
    places = dict.fromkeys((trace, load) for trace, load, _, _ in runs)
    policies = tuple(dict.fromkeys(policy for _, _, policy, _ in runs))
    for (trace, load), judged, rival in product(places, JUDGED, policies):
        seeds = sorted(s for t, b, p, s in runs if (t, b, p) == (trace, load, judged))
        if judged == rival or not seeds:
            continue
        ratios = [runs[trace, load, judged, s].mean_s / runs[trace, load, rival, s].mean_s for s in seeds]
        ratio, half = fmean(ratios), half_interval(ratios)
        if ratio > 1 + NEGLIGIBLE:
            found.append(
                {
                    "trace": trace,
                    "load": load,
                    "policy": judged,
                    "against": rival,
                    "ratio": round(ratio, 4),
                    "pm": round(half, 4),
                    "certain": len(seeds) > 1 and ratio - half > 1,
                }
            )
    return sorted(found, key=lambda row: -row["ratio"])


def spraying(runs: Runs) -> list[dict[str, Any]]:
    """For each trace and load: whether spraying makes routing needless, and what can be added to it.

    `routing` is the least mean completion time of ROUTING_ONLY over spraying's: routing is needless where its
    interval reaches 1. `on_top` has that of the policies BEYOND_SPRAYING over spraying's. Both are means over
    the seeds of quotients on the same jobs, with `pm`, half of the 95 % interval.
    """
    found = []
    for trace, load in dict.fromkeys((trace, load) for trace, load, _, _ in runs):
        seeds = sorted(s for t, b, p, s in runs if (t, b, p) == (trace, load, "spray"))
        if not seeds:
            continue
        to_spray: dict[str, dict[str, float]] = {}
        for policy in (*ROUTING_ONLY, *BEYOND_SPRAYING):
            if (trace, load, policy, seeds[0]) in runs:
                ratios = [
                    runs[trace, load, policy, s].mean_s / runs[trace, load, "spray", s].mean_s for s in seeds
                ]
                to_spray[policy] = {"ratio": round(fmean(ratios), 4), "pm": round(half_interval(ratios), 4)}
        best = min((p for p in ROUTING_ONLY if p in to_spray), key=lambda p: to_spray[p]["ratio"])
        found.append(
            {
                "trace": trace,
                "load": load,
                "best_routing": best,
                "routing": to_spray[best],
                "routing_needless": sum(to_spray[best].values()) >= 1 - NEGLIGIBLE,
                "on_top": {p: to_spray[p] for p in BEYOND_SPRAYING if p in to_spray},
            }
        )
    return found
