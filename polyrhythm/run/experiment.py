# SPDX-License-Identifier: Apache-2.0
"""Measure a scenario: each job alone, then all jobs together under plain ECMP and under the policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from polyrhythm.run.figures import JobFigures, gpu_utilisation, job_figures, pooled, speedup
from polyrhythm.run.session import SessionResult, SessionSpec, run_session
from polyrhythm.scenario import ALONE_ITERATIONS, ALONE_WARMUP, Scenario

BASELINE = "ecmp"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run scenarios.

    `seed` decides the start jitter, the source ports of ECMP and the ECN marking. `policy_options` are
    options of `polyrhythm controller`. `offsets` is the number of additional runs from random start offsets;
    `lanes` is how many sessions run at once. `rpc_delay_ms` delays every RPC by host time, for tests. `fail`
    lists failures as in `--fail`. `fabric` is "embedded" or "mininet". `profile` is "measured", "declared",
    or "" for what the scenario says.
    """

    seed: int = 1
    policy: str = "polyrhythm"
    policy_options: tuple[str, ...] = ()
    offsets: int = 0
    lanes: int = 2
    rpc_delay_ms: float = 0.0
    fail: tuple[str, ...] = ()
    fabric: str = "embedded"
    profile: str = ""


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """The figures of a scenario under one policy.

    `jobs` maps the name of each job to its figures. `plan` is the last plan of the controller as JSON values
    (docs/api.md), or None if the controller could not be asked. `deterministic` is False if the run depended
    on host time: then another run with the same seed may give other figures. `notes` are events that a reader
    of the figures must know. `failovers` has one entry for each failure (docs/run.md).
    """

    jobs: Mapping[str, JobFigures]
    plan: Mapping[str, Any] | None
    deterministic: bool
    notes: tuple[str, ...]
    failovers: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The figures of a scenario under plain ECMP and under the policy.

    `alone` maps the name of each job to its figures alone on the fabric, without the other jobs.
    `random_offsets` holds a pair (under ECMP, under the policy) for each additional run from random start
    offsets.
    """

    scenario: Scenario
    alone: Mapping[str, JobFigures]
    under_ecmp: PolicyResult
    under_policy: PolicyResult
    random_offsets: tuple[tuple[PolicyResult, PolicyResult], ...] = ()

    @property
    def speedup_mean(self) -> float:
        """Mean over all jobs: the mean iteration time under ECMP over that under the policy."""
        return speedup(self.under_ecmp.jobs, self.under_policy.jobs, "mean_ms")

    @property
    def speedup_p99(self) -> float:
        """Mean over all jobs: the 99th percentile under ECMP over that under the policy."""
        return speedup(self.under_ecmp.jobs, self.under_policy.jobs, "p99_ms")

    def gpu_utilisation(self, result: PolicyResult) -> float:
        """GPU utilisation of this scenario's jobs in `result`, 0 to 1."""
        gpus = {w.job.name: w.job.gpus for w in self.scenario.workloads}
        compute = {w.job.name: w.compute_ns / 1e6 for w in self.scenario.workloads}
        return gpu_utilisation(gpus, compute, result.jobs)


@dataclass(slots=True)
class OverallProgress:
    """The finished fraction of each session. `changed` is called with the mean of all after each step."""

    changed: Callable[[float], None]
    fractions: dict[str, float] = field(default_factory=dict)

    def track(self, name: str) -> Callable[[float], None]:
        """The progress callback for one session. All sessions have the same weight."""
        self.fractions[name] = 0.0

        def step(fraction: float) -> None:
            self.fractions[name] = fraction
            self.changed(sum(self.fractions.values()) / len(self.fractions))

        return step


class ScenarioRunner:
    """Runs the sessions of scenarios, at most `RunOptions.lanes` at once.

    A session is two processes: a fabric, which is busy, and a controller, which is mostly idle.
    """

    def __init__(self, options: RunOptions, workdir: Path, progress: OverallProgress) -> None:
        self._options = options
        self._workdir = workdir
        self._progress = progress
        self._lanes = asyncio.Semaphore(options.lanes)

    async def compare(self, path: Path, scenario: Scenario) -> ScenarioResult:
        """Measure one scenario under the baseline and under the policy.

        Raises:
            RunError: a session could not be finished.
        """
        options = self._options
        base = SessionSpec(
            scenario=path,
            policy=BASELINE,
            mode="together",
            seed=options.seed,
            workdir=self._workdir / scenario.name,
            rpc_delay_ms=options.rpc_delay_ms,
            fail=options.fail,
            fabric=options.fabric,
            profile=(options.profile or scenario.profile) if options.fabric == "embedded" else "declared",
        )
        together = self._together(base, scenario)
        alone_step = self._progress.track(f"{scenario.name}/alone")
        alone_spec = replace(base, mode="alone", fail=(), workdir=base.workdir / "alone")
        alone = await self._run(alone_spec, alone_step)
        profiles = base.workdir / "profiles.json"
        profiles.write_text(json.dumps(alone.profiles))
        # Where the controller measures the jobs, they announce the scenario's profile as a first guess.
        announced = None if base.profile == "measured" else profiles
        results = await _all([self._run(replace(spec, profiles=announced), step) for spec, step in together])
        draws, rest = results[: scenario.draws], results[scenario.draws + 1 :]
        under_policy = results[scenario.draws]
        return ScenarioResult(
            scenario=scenario,
            alone={
                job: job_figures(records, ALONE_WARMUP, ALONE_ITERATIONS)
                for job, records in alone.iterations.items()
            },
            under_ecmp=self._measured(scenario, draws),
            under_policy=self._measured(scenario, [under_policy]),
            random_offsets=tuple(
                (self._measured(scenario, [a]), self._measured(scenario, [b]))
                for a, b in zip(rest[::2], rest[1::2], strict=True)
            ),
        )

    def _together(
        self, base: SessionSpec, scenario: Scenario
    ) -> list[tuple[SessionSpec, Callable[[float], None]]]:
        """The sessions with all jobs: the draws of ECMP, the policy, then a pair for each random offset."""
        policy, options = self._options.policy, self._options.policy_options
        specs = [
            replace(base, seed=base.seed + 1000 * draw, workdir=base.workdir / f"{BASELINE}-{draw}")
            for draw in range(scenario.draws)
        ]
        specs.append(replace(base, policy=policy, policy_options=options, workdir=base.workdir / policy))
        for k in range(self._options.offsets):
            shifted = replace(base, random_offsets=True, seed=base.seed + 1000 * (k + 1))
            specs.append(replace(shifted, workdir=base.workdir / f"{BASELINE}-offset-{k}"))
            workdir = base.workdir / f"{policy}-offset-{k}"
            specs.append(replace(shifted, policy=policy, policy_options=options, workdir=workdir))
        return [(spec, self._progress.track(f"{scenario.name}/{spec.workdir.name}")) for spec in specs]

    async def _run(self, spec: SessionSpec, step: Callable[[float], None]) -> SessionResult:
        async with self._lanes:
            result = await run_session(spec, step)
        step(1.0)
        return result

    def _measured(self, scenario: Scenario, draws: Sequence[SessionResult]) -> PolicyResult:
        figures = [
            {job: job_figures(r, scenario.warmup, scenario.iterations) for job, r in draw.iterations.items()}
            for draw in draws
        ]
        return PolicyResult(
            jobs={job: pooled([f[job] for f in figures]) for job in figures[0]},
            plan=draws[-1].plan,
            deterministic=all(draw.deterministic for draw in draws),
            notes=tuple(dict.fromkeys(note for draw in draws for note in draw.notes)),
            failovers=tuple(outcome for draw in draws for outcome in draw.failovers),
        )


async def _all(work: Sequence[Coroutine[Any, Any, SessionResult]]) -> list[SessionResult]:
    """All results in order. The first failure cancels the other sessions and waits until they have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(session) for session in work]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def to_json(result: ScenarioResult) -> Mapping[str, Any]:
    """The figures of one scenario as in the JSON of `polyrhythm run` (docs/run.md)."""
    scenario, ecmp, policy = result.scenario, result.under_ecmp, result.under_policy
    plan = policy.plan or {"jobs": [], "flows": []}
    planned = {entry["job"]: entry for entry in plan["jobs"]}
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
                "ecmp": _figures_json(ecmp.jobs[job.name]),
                "polyrhythm": _figures_json(policy.jobs[job.name]),
                "speedup_mean": ecmp.jobs[job.name].mean_ms / policy.jobs[job.name].mean_ms,
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
        "deterministic": ecmp.deterministic and policy.deterministic,
        "notes": {"ecmp": list(ecmp.notes), "polyrhythm": list(policy.notes)},
        "failovers": {"ecmp": list(ecmp.failovers), "polyrhythm": list(policy.failovers)},
        "speedup_mean": result.speedup_mean,
        "speedup_p99": result.speedup_p99,
        "gpu_utilisation": {
            "ecmp": result.gpu_utilisation(ecmp),
            "polyrhythm": result.gpu_utilisation(policy),
        },
        "jobs": jobs,
        "scale": {
            "nominal_bits_per_emulated_bit": scenario.scale,
            "host_link_bps": scenario.topology.hosts[0].rate_bps,
            "packet_payload_bytes": scenario.packet_bytes,
        },
    }
    if result.random_offsets:
        speedups = [speedup(a.jobs, b.jobs, "mean_ms") for a, b in result.random_offsets]
        document["random_offsets"] = {
            "draws": len(speedups),
            "speedup_mean": sum(speedups) / len(speedups),
            "speedups": speedups,
        }
    return document


def _figures_json(figures: JobFigures) -> Mapping[str, float]:
    return {
        "mean_iteration_ms": figures.mean_ms,
        "p99_iteration_ms": figures.p99_ms,
        "ecn_marks_per_iteration": figures.ecn_marks_per_iteration,
        "retransmits_per_iteration": figures.retransmits_per_iteration,
    }
