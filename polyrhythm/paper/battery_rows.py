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
    over_draws,
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
"""Sessions under ECMP and under OURS, each with other start offsets, source ports, marks and jitter."""


def scenario_row(
    scenario: BatteryScenario, jobs: Sequence[BatteryJob], sessions: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The figures of a scenario.

    `sessions` has what was recorded in each session (`battery_sessions.record`): "alone", "ecmp-0",
    "polyrhythm-0" and maybe other draws, and maybe other keys of POLICIES. All figures of ECMP and OURS are
    means of their draws. Utilisations are 0 to 1, gains in percent of ECMP's mean.
    """
    spans = scenario.spans
    draws = {name: _draws_of(name, sessions) for name in (ECMP, *POLICIES)}
    by_draw = {
        name: [span_figures(jobs, spans, session["ends_ms"]) for session in own]
        for name, own in draws.items()
        if own
    }
    found = {name: over_draws(figures) for name, figures in by_draw.items()}
    policies = [name for name in POLICIES if name in found]
    alone_ms = sessions[ALONE]["mean_ms"]
    alone = overall_utilisation(jobs, spans, [_used(jobs, span, alone_ms) for span in spans])
    used = {name: _overall(jobs, spans, figures) for name, figures in found.items()}
    ecmp = used[ECMP]
    interval = half_interval([_overall(jobs, spans, draw) for draw in by_draw[ECMP]])
    worst = {name: worst_ratio(found[ECMP], found[name]) for name in policies}
    ratio, loser = worst[OURS]
    best = max(value for name, value in used.items() if name != OURS)
    kept = max([ecmp, *(used[name] for name in policies if name != OURS and worst[name][0] <= IN_FLOOR)])
    plans = [session["plan"] for session in draws[OURS]]
    contended = _contended_in_all(scenario, plans)
    return {
        "number": scenario.number,
        "name": scenario.name,
        "kind": scenario.kind,
        "jobs": len(jobs),
        "spans": len(spans),
        "gpu_utilisation": {ALONE: alone, **used},
        "ecmp_interval": interval,
        "ecmp_loss_pct": 100 * (1 - ecmp / alone),
        "gain_pct": {name: 100 * (used[name] / ecmp - 1) for name in policies},
        "worse_than_ecmp": used[OURS] < ecmp * (1 - WORSE) and used[OURS] < ecmp - interval,
        "worse_than_best": used[OURS] < best * (1 - BELOW_BEST),
        "worse_than_best_in_floor": used[OURS] < kept * (1 - BELOW_BEST),
        "worst_job": {"job": loser, "ratio": ratio},
        "worst_ratio": {name: each for name, (each, _) in worst.items()},
        "twins_apart": [asdict(pair) for pair in twins_apart(jobs, found[OURS][-1], contended)],
        "judge": _judge(jobs, spans[-1], plans, [draw[-1].utilisation for draw in by_draw[OURS]]),
        "mean_iteration_ms": _means(jobs, found, alone_ms, plans),
        "notes": {name: session["notes"] for name, session in sessions.items() if session["notes"]},
        "deterministic": all(session["deterministic"] for session in sessions.values()),
    }


def draw_names(name: str, draws: int) -> list[str]:
    """The sessions of `name` (ECMP or a key of POLICIES): one for each draw of ECMP and OURS, else one."""
    return [f"{name}-{k}" for k in range(draws)] if name in (ECMP, OURS) else [name]


def _draws_of(name: str, sessions: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What was recorded in the sessions of `name`, by draw."""
    return [sessions[each] for each in draw_names(name, DRAWS) if each in sessions]


def _overall(jobs: Sequence[BatteryJob], spans: Sequence[Span], figures: Sequence[SpanFigures]) -> float:
    return overall_utilisation(jobs, spans, [each.utilisation for each in figures])


def _used(jobs: Sequence[BatteryJob], span: Span, mean_ms: Mapping[str, float]) -> float:
    return utilisation([j for j in jobs if j.name in span.jobs], mean_ms)


def _contended_in_all(
    scenario: BatteryScenario, plans: Sequence[Mapping[str, Any] | None]
) -> dict[str, tuple[frozenset[Link], ...]]:
    """The contended links of each job of the last span, under each plan."""
    each = [_contended(scenario, plan) for plan in plans]
    return {name: tuple(contended[name] for contended in each) for name in scenario.spans[-1].jobs}


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
    jobs: Sequence[BatteryJob],
    span: Span,
    plans: Sequence[Mapping[str, Any] | None],
    used: Sequence[float],
) -> dict[str, float | None]:
    """The GPU utilisation that the plans of the draws expect in the last span (mean), beside the measured
    one. `used` has that of each draw.

    None where a plan does not say what iteration it expects of a job.
    """
    measured, interval = fmean(used), half_interval(used)
    each = [_expected_ms(plan) for plan in plans]
    if any(name not in expected_ms for expected_ms in each for name in span.jobs):
        expected = error = None
    else:
        expected = fmean(_used(jobs, span, expected_ms) for expected_ms in each)
        error = 100 * (expected / measured - 1)
    return {"expected": expected, "measured": measured, "interval": interval, "error_pct": error}


def _expected_ms(plan: Mapping[str, Any] | None) -> dict[str, float]:
    """The iterations that the plan expects, of the jobs of which it says so."""
    entries = (plan or {"jobs": []})["jobs"]
    return {entry["job"]: entry["expected_ms"] for entry in entries if entry["expected_ms"] is not None}


def _means(
    jobs: Sequence[BatteryJob],
    found: Mapping[str, Sequence[SpanFigures]],
    alone_ms: Mapping[str, float],
    plans: Sequence[Mapping[str, Any] | None],
) -> dict[str, dict[str, Any]]:
    """For each job its mean iteration in ms: alone, in each span under ECMP and each policy, and expected by
    our last plans (mean of the draws).

    None: the job is not there in this span, or a plan does not say what it expects.
    """
    each = [_expected_ms(plan) for plan in plans]
    rows: dict[str, dict[str, Any]] = {}
    for job in jobs:
        measured = {name: [f.mean_ms.get(job.name) for f in figures] for name, figures in found.items()}
        known = all(job.name in expected_ms for expected_ms in each)
        expected = fmean(expected_ms[job.name] for expected_ms in each) if known else None
        rows[job.name] = {ALONE: alone_ms[job.name], **measured, "expected": expected}
    return rows
