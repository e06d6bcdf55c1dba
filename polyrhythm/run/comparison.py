# SPDX-License-Identifier: Apache-2.0
"""The figures of a scenario under plain ECMP, under the policy and under its rivals, and their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from polyrhythm.run.attack import AttackResult, attack_json
from polyrhythm.run.figures import JobFigures, geometric_speedup, jain_index, pooled, speedup, worst_job
from polyrhythm.run.windows import Window
from polyrhythm.scenario import Scenario

BASELINE = "ecmp"
"""The policy that all others are compared with."""
_SIDES = ("ecmp", "polyrhythm")
"""The keys of the JSON for plain ECMP and for the policy of the run, whatever its name."""


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """The figures of a scenario under one policy.

    `jobs` maps the name of each job to its figures. `gpu_utilisation` is 0 to 1. `plan` is the last plan of
    the controller as JSON values (docs/api.md), or None if the controller could not be asked. `deterministic`
    is False if the run depended on host time: then another run with the same seed may give other figures.
    `notes` are events that a reader of the figures must know. `failovers` has one entry for each failure
    (docs/run.md), `pfc` one for each run of a scenario with priority flow control.
    """

    jobs: Mapping[str, JobFigures]
    plan: Mapping[str, Any] | None
    deterministic: bool
    notes: tuple[str, ...]
    failovers: tuple[Mapping[str, Any], ...] = ()
    gpu_utilisation: float = 0.0
    pfc: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class RivalResult:
    """The figures of a scenario under one more policy: where all jobs start at their times, and for each
    additional run from random start offsets. They are the same offsets as for the other policies.
    """

    together: PolicyResult
    random_offsets: tuple[PolicyResult, ...] = ()


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The figures of a scenario under plain ECMP, under the policy and under its rivals.

    `alone` maps the name of each job to its figures alone on the fabric, without the other jobs, and
    `profiles` to the profile that was measured then (`SessionResult.profiles`).
    `random_offsets` holds a pair (under ECMP, under the policy) for each additional run from random start
    offsets. `start_together` compares the runs in which all jobs start at their times, `from_offsets` (None:
    there are none) the runs from random start offsets together. `windows` are the times over which the runs
    that start together are compared. `rivals` maps each further policy to its figures, over the same windows.
    `attack` says what the scenario's floods cost, None: it has none. `asked_scale` is the scale that was
    asked for: `scenario` has a larger one if the machine was too slow for it. `cpu_load` is the part of the
    machine's CPU time that all jobs together would take at this scale, None: time is not the machine's.
    """

    scenario: Scenario
    alone: Mapping[str, JobFigures]
    under_ecmp: PolicyResult
    under_policy: PolicyResult
    windows: tuple[Window, ...]
    random_offsets: tuple[tuple[PolicyResult, PolicyResult], ...] = ()
    rivals: Mapping[str, RivalResult] = field(default_factory=dict)
    attack: AttackResult | None = None
    profiles: Mapping[str, Any] = field(default_factory=dict)
    asked_scale: float | None = None
    cpu_load: float | None = None

    @property
    def speedup_mean(self) -> float:
        """Mean over all jobs: the mean iteration time under ECMP over that under the policy."""
        return speedup(self.under_ecmp.jobs, self.under_policy.jobs, "mean_ms")

    @property
    def speedup_p99(self) -> float:
        """Mean over all jobs: the 99th percentile under ECMP over that under the policy."""
        return speedup(self.under_ecmp.jobs, self.under_policy.jobs, "p99_ms")

    @property
    def start_together(self) -> Comparison:
        """The policy against ECMP where all jobs start at their times."""
        return Comparison.of(self.alone, [(self.under_ecmp, self.under_policy)])

    @property
    def from_offsets(self) -> Comparison | None:
        """The policy against ECMP over all runs from random start offsets; None: there are none."""
        return Comparison.of(self.alone, self.random_offsets) if self.random_offsets else None

    def rival_together(self, policy: str) -> Comparison:
        """A rival against ECMP where all jobs start at their times. Raises KeyError for another policy."""
        return Comparison.of(self.alone, [(self.under_ecmp, self.rivals[policy].together)])

    def rival_from_offsets(self, policy: str) -> Comparison | None:
        """A rival against ECMP over all runs from random start offsets; None: there are none. Raises KeyError
        for another policy.
        """
        runs = self.rivals[policy].random_offsets
        pairs = [(ecmp, run) for (ecmp, _), run in zip(self.random_offsets, runs, strict=True)]
        return Comparison.of(self.alone, pairs) if pairs else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A policy against ECMP, over one or several pairs of runs.

    `utilisation` and `jain` are pairs (under ECMP, under the policy): GPU utilisation, and Jain's index of
    the throughputs relative to alone. `speedup` is the geometric mean of the jobs' speed-ups. `worst` names
    the job that loses most, and `worst_ratio` is its mean iteration time over that under ECMP. `slowest`
    names the job that is farthest from its pace alone under the policy, and `slowest_ratio` is its mean
    iteration time over that alone. `jobs` maps each job to its figures under ECMP and under the policy.
    """

    utilisation: tuple[float, float]
    speedup: float
    worst: str
    worst_ratio: float
    slowest: str
    slowest_ratio: float
    jain: tuple[float, float]
    jobs: Mapping[str, tuple[JobFigures, JobFigures]]

    @classmethod
    def of(
        cls, alone: Mapping[str, JobFigures], pairs: Sequence[tuple[PolicyResult, PolicyResult]]
    ) -> Comparison:
        """Compare pairs of runs (under ECMP, under the policy). The iterations of all runs count alike."""
        ecmp = {name: pooled([a.jobs[name] for a, _ in pairs]) for name in alone}
        ours = {name: pooled([b.jobs[name] for _, b in pairs]) for name in alone}
        worst, ratio = worst_job(ecmp, ours)
        slowest, slowest_ratio = worst_job(alone, ours)
        return cls(
            utilisation=(
                sum(a.gpu_utilisation for a, _ in pairs) / len(pairs),
                sum(b.gpu_utilisation for _, b in pairs) / len(pairs),
            ),
            speedup=geometric_speedup(ecmp, ours),
            worst=worst,
            worst_ratio=ratio,
            slowest=slowest,
            slowest_ratio=slowest_ratio,
            jain=(jain_index(alone, ecmp), jain_index(alone, ours)),
            jobs={name: (ecmp[name], ours[name]) for name in alone},
        )


def to_json(result: ScenarioResult, policy_name: str) -> Mapping[str, Any]:
    """The figures of one scenario as in the JSON of `polyrhythm run` (docs/run.md)."""
    scenario, ecmp, policy = result.scenario, result.under_ecmp, result.under_policy
    plan = policy.plan or {"jobs": [], "flows": []}
    planned = {entry["job"]: entry for entry in plan["jobs"]}
    offsets = result.from_offsets
    jobs = []
    for workload in scenario.workloads:
        job = workload.job
        decided = planned.get(job.name, {})
        jobs.append(
            {
                "name": job.name,
                "model": job.model,
                "gpus": job.gpus,
                "hosts": list(job.hosts),
                "ideal_iteration_ms": result.alone[job.name].mean_ms,
                "profile": _profile_json(result.profiles.get(job.name)),
                **_pair_json(result.start_together, job.name),
                **({} if offsets is None else {"random_offsets": _pair_json(offsets, job.name)}),
                "level": decided.get("level"),
                "dscp": decided.get("dscp"),
                "shift_ms": decided.get("shift_ms"),
                "period_ms": decided.get("period_ms"),
                "why": decided.get("why"),
                "flows": [f for f in plan["flows"] if f["flow"].split("/", 1)[0] == job.name],
            }
        )
    document: dict[str, Any] = {
        "about": scenario.about,
        "deterministic": all(
            runs.deterministic for runs in (ecmp, policy, *(r.together for r in result.rivals.values()))
        ),
        "notes": {"ecmp": list(ecmp.notes), "polyrhythm": list(policy.notes)},
        "failovers": {"ecmp": list(ecmp.failovers), "polyrhythm": list(policy.failovers)},
        **_comparison_json(result.start_together),
        "windows": [
            {
                "start_ms": window.start_ns / 1e6,
                "end_ms": None if window.end_ns is None else window.end_ns / 1e6,
                "jobs": sorted(window.jobs),
                "warm": window.warm,
            }
            for window in result.windows
        ],
        "speedup_mean": result.speedup_mean,
        "speedup_p99": result.speedup_p99,
        "jobs": jobs,
        "scale": {
            "nominal_bits_per_emulated_bit": scenario.scale,
            "asked": result.asked_scale or scenario.scale,
            "cpu_load": result.cpu_load,
            "host_link_bps": scenario.topology.hosts[0].rate_bps,
            "packet_payload_bytes": scenario.packet_bytes,
        },
    }
    if ecmp.pfc:
        document["pfc"] = {"ecmp": list(ecmp.pfc), "polyrhythm": list(policy.pfc)}
    if result.rivals:
        document["policies"] = _policies_json(result, policy_name)
    if result.attack is not None:
        document["attack"] = {"jobs": attack_json(result.attack)}
    if offsets is not None:
        speedups = [speedup(a.jobs, b.jobs, "mean_ms") for a, b in result.random_offsets]
        document["random_offsets"] = {
            "draws": len(speedups),
            **_comparison_json(offsets),
            "speedup_mean": sum(speedups) / len(speedups),
            "speedups": speedups,
        }
    return document


def _policies_json(result: ScenarioResult, policy_name: str) -> list[dict[str, Any]]:
    """ECMP, the policy and its rivals, each with the same keys."""
    found = {
        BASELINE: RivalResult(result.under_ecmp, tuple(ecmp for ecmp, _ in result.random_offsets)),
        policy_name: RivalResult(result.under_policy, tuple(ours for _, ours in result.random_offsets)),
        **result.rivals,
    }
    whole = replace(result, rivals=found)
    rows = []
    for name, runs in found.items():
        offsets = whole.rival_from_offsets(name)
        rows.append(
            {
                "policy": name,
                "deterministic": runs.together.deterministic,
                "notes": list(runs.together.notes),
                "failovers": list(runs.together.failovers),
                **({"pfc": list(runs.together.pfc)} if runs.together.pfc else {}),
                **_row_json(whole.rival_together(name), name),
                **({} if offsets is None else {"random_offsets": _row_json(offsets, name)}),
            }
        )
    return rows


def _row_json(comparison: Comparison, policy_name: str) -> dict[str, Any]:
    """The figures of one policy alone, beside those that compare it with ECMP."""
    worst = {"name": comparison.worst, "ratio": comparison.worst_ratio}
    return {
        "gpu_utilisation": comparison.utilisation[1],
        "speedup_geometric_mean": comparison.speedup,
        "worst_job": None if policy_name == BASELINE else worst,
        "slowest_job": {"name": comparison.slowest, "ratio": comparison.slowest_ratio},
        "jain_index": comparison.jain[1],
        "jobs": [
            {"name": job, **_figures_json(ours), "speedup_mean": ecmp.mean_ms / ours.mean_ms}
            for job, (ecmp, ours) in comparison.jobs.items()
        ],
    }


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "gpu_utilisation": dict(zip(_SIDES, comparison.utilisation, strict=True)),
        "speedup_geometric_mean": comparison.speedup,
        "worst_job": {"name": comparison.worst, "ratio": comparison.worst_ratio},
        "jain_index": dict(zip(_SIDES, comparison.jain, strict=True)),
    }


def _profile_json(measured: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A profile that was measured alone. Rates are those of the emulated links."""
    return measured and {
        "period_ms": measured["period_ns"] / 1e6,
        "phases": [
            {"start_ms": start / 1e6, "end_ms": end / 1e6, "rate_mbps": rate / 1e6}
            for start, end, rate in measured["phases"]
        ],
    }


def _pair_json(comparison: Comparison, job: str) -> dict[str, Any]:
    ecmp, ours = comparison.jobs[job]
    return {
        "ecmp": _figures_json(ecmp),
        "polyrhythm": _figures_json(ours),
        "speedup_mean": ecmp.mean_ms / ours.mean_ms,
    }


def _figures_json(figures: JobFigures) -> Mapping[str, float]:
    return {
        "mean_iteration_ms": figures.mean_ms,
        "p99_iteration_ms": figures.p99_ms,
        "ecn_marks_per_iteration": figures.ecn_marks_per_iteration,
        "retransmits_per_iteration": figures.retransmits_per_iteration,
    }
