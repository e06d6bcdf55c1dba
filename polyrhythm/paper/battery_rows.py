# SPDX-License-Identifier: Apache-2.0
"""One scenario of the battery as a row of the report, from what its sessions recorded. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from polyrhythm.paper.battery_generator import BatteryScenario, Span
from polyrhythm.paper.battery_links import Link, RoutedFlow, contended_links
from polyrhythm.paper.battery_metrics import (
    BELOW_BEST,
    IN_FLOOR,
    WORSE,
    BatteryJob,
    SpanFigures,
    half_interval,
    overall_utilisation,
    span_figures,
    twins_apart,
    utilisation,
    worst_ratio,
)

ALONE, ECMP = "alone", "ecmp"
OURS = "polyrhythm"
POLICIES = {"crux": "crux", "cassini": "cassini", "mltcp-dcqcn": "mltcp", OURS: OURS}
"""The columns of the report after ECMP, and the policy of each."""
DRAWS = 3
"""Sessions under ECMP, each with other source ports."""


def scenario_row(
    scenario: BatteryScenario, jobs: Sequence[BatteryJob], sessions: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The figures of a scenario.

    `sessions` has what was recorded in each session (`battery_sessions.record`): "alone", "ecmp-0" and maybe
    other draws, OURS, and maybe other keys of POLICIES. Utilisations are 0 to 1, gains in percent of ECMP's
    mean.
    """
    spans = scenario.spans
    found = {
        name: span_figures(jobs, spans, session["ends_ms"])
        for name, session in sessions.items()
        if name != ALONE
    }
    draws = [figures for name, figures in found.items() if name.startswith(f"{ECMP}-")]
    policies = [name for name in POLICIES if name in found]
    alone_ms = sessions[ALONE]["mean_ms"]
    alone = overall_utilisation(jobs, spans, [_used(jobs, span, alone_ms) for span in spans])
    ecmp_draws = [overall_utilisation(jobs, spans, [f.utilisation for f in draw]) for draw in draws]
    ecmp, interval = fmean(ecmp_draws), half_interval(ecmp_draws)
    used = {name: overall_utilisation(jobs, spans, [f.utilisation for f in found[name]]) for name in policies}
    best = max([ecmp, *(value for name, value in used.items() if name != OURS)])
    worst = {name: worst_ratio(draws, found[name]) for name in policies}
    ratio, loser = worst[OURS]
    kept = max([ecmp, *(used[name] for name in policies if name != OURS and worst[name][0] <= IN_FLOOR)])
    plan, last = sessions[OURS]["plan"], found[OURS][-1]
    contended = _contended(scenario, plan)
    return {
        "number": scenario.number,
        "name": scenario.name,
        "kind": scenario.kind,
        "jobs": len(jobs),
        "spans": len(spans),
        "gpu_utilisation": {ALONE: alone, ECMP: ecmp, **used},
        "ecmp_interval": interval,
        "ecmp_loss_pct": 100 * (1 - ecmp / alone),
        "gain_pct": {name: 100 * (value / ecmp - 1) for name, value in used.items()},
        "worse_than_ecmp": used[OURS] < ecmp * (1 - WORSE) and used[OURS] < ecmp - interval,
        "worse_than_best": used[OURS] < best * (1 - BELOW_BEST),
        "worse_than_best_in_floor": used[OURS] < kept * (1 - BELOW_BEST),
        "worst_job": {"job": loser, "ratio": ratio},
        "worst_ratio": {name: each for name, (each, _) in worst.items()},
        "twins_apart": [asdict(pair) for pair in twins_apart(jobs, last, contended)],
        "judge": _judge(jobs, spans[-1], plan, last.utilisation),
        "mean_iteration_ms": _means(jobs, draws, found, alone_ms, plan),
        "notes": {name: session["notes"] for name, session in sessions.items() if session["notes"]},
        "deterministic": all(session["deterministic"] for session in sessions.values()),
    }


def _used(jobs: Sequence[BatteryJob], span: Span, mean_ms: Mapping[str, float]) -> float:
    return utilisation([j for j in jobs if j.name in span.jobs], mean_ms)


def _contended(scenario: BatteryScenario, plan: Mapping[str, Any] | None) -> dict[str, frozenset[Link]]:
    """The contended links of each job of the last span, on the paths of the plan.

    A flow that the plan leaves to ECMP has no known path and counts on its NICs only.
    """
    document, present = scenario.document, scenario.spans[-1].jobs
    gbps: dict[Link, float] = {}
    for cable in document["fabric"]["links"]:
        gbps[cable["a"], cable["b"]] = gbps[cable["b"], cable["a"]] = cable["gbps"]
    leaf = {}
    for host in document["fabric"]["hosts"]:
        leaf[host["name"]] = host["leaf"]
        gbps[host["name"], host["leaf"]] = gbps[host["leaf"], host["name"]] = host["gbps"]
    planned = {flow["flow"]: flow["path"] for flow in (plan or {"flows": []})["flows"]}
    flows = []
    for job in document["jobs"]:
        hosts, rate = job["hosts"], job["phases"][0]["gbps"]
        for source, sink in zip(hosts, (*hosts[1:], hosts[0]), strict=True) if job["name"] in present else ():
            path = planned.get(f"{job['name']}/{source}>{sink}")
            ends = [(source, leaf[source]), (leaf[sink], sink)]
            flows += [RoutedFlow(job["name"], tuple(part), rate) for part in ([path] if path else ends)]
    found: dict[str, frozenset[Link]] = dict.fromkeys(present, frozenset())
    for link, names in contended_links(flows, gbps).items():
        for name in names:
            found[name] |= {link}
    return found


def _judge(
    jobs: Sequence[BatteryJob], span: Span, plan: Mapping[str, Any] | None, measured: float
) -> dict[str, float | None]:
    """The GPU utilisation that the plan expects in the last span, beside the measured one.

    None where the plan does not say what iteration it expects of a job.
    """
    expected_ms = _expected_ms(plan)
    if any(name not in expected_ms for name in span.jobs):
        return {"expected": None, "measured": measured, "error_pct": None}
    expected = _used(jobs, span, expected_ms)
    return {"expected": expected, "measured": measured, "error_pct": 100 * (expected / measured - 1)}


def _expected_ms(plan: Mapping[str, Any] | None) -> dict[str, float]:
    """The iterations that the plan expects, of the jobs of which it says so."""
    entries = (plan or {"jobs": []})["jobs"]
    return {entry["job"]: entry["expected_ms"] for entry in entries if entry["expected_ms"] is not None}


def _means(
    jobs: Sequence[BatteryJob],
    draws: Sequence[Sequence[SpanFigures]],
    found: Mapping[str, Sequence[SpanFigures]],
    alone_ms: Mapping[str, float],
    plan: Mapping[str, Any] | None,
) -> dict[str, dict[str, Any]]:
    """For each job its mean iteration in ms: alone, in each span under ECMP and each policy, and expected by
    our last plan.

    None: the job is not there in this span, or the plan does not say what it expects.
    """
    expected_ms = _expected_ms(plan)
    rows: dict[str, dict[str, Any]] = {}
    for job in jobs:
        name = job.name
        ecmp = [
            fmean(f.mean_ms[name] for f in each) if name in each[0].mean_ms else None
            for each in zip(*draws, strict=True)
        ]
        by_policy = {
            policy: [f.mean_ms.get(name) for f in found[policy]] for policy in POLICIES if policy in found
        }
        rows[name] = {ALONE: alone_ms[name], ECMP: ecmp, **by_policy, "expected": expected_ms.get(name)}
    return rows
