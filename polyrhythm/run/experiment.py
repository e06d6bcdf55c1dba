# SPDX-License-Identifier: Apache-2.0
"""A scenario measured: each job alone, then all together under ECMP and under Polyrhythm."""

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
    """What the command line asks for beside the scenarios."""

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
class Measured:
    """One policy over a scenario: the jobs' figures and the plan that made them."""

    jobs: Mapping[str, JobFigures]
    plan: Mapping[str, Any] | None
    deterministic: bool
    notes: tuple[str, ...]
    failovers: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """A scenario's whole outcome."""

    scenario: Scenario
    alone: Mapping[str, JobFigures]
    baseline: Measured
    ours: Measured
    offsets: tuple[tuple[Measured, Measured], ...] = ()

    def utilisation(self, measured: Measured) -> float:
        """GPU utilisation under `measured`."""
        gpus = {w.job.name: w.job.gpus for w in self.scenario.workloads}
        compute = {w.job.name: w.compute_ns / 1e6 for w in self.scenario.workloads}
        return gpu_utilisation(gpus, compute, measured.jobs)


@dataclass(slots=True)
class OverallProgress:
    """Finished fraction of every session of a run; `changed` is told after each step."""

    changed: Callable[[float], None]
    fractions: dict[str, float] = field(default_factory=dict)

    def track(self, name: str) -> Callable[[float], None]:
        """A callback for one session, which counts as one part of the whole."""
        self.fractions[name] = 0.0

        def step(fraction: float) -> None:
            self.fractions[name] = fraction
            self.changed(sum(self.fractions.values()) / len(self.fractions))

        return step


class ScenarioRunner:
    """Runs sessions over a bounded number of lanes (each is a busy fabric and a mostly idle controller)."""

    def __init__(self, options: RunOptions, workdir: Path, progress: OverallProgress) -> None:
        self._options = options
        self._workdir = workdir
        self._progress = progress
        self._lanes = asyncio.Semaphore(options.lanes)

    async def compare(self, path: Path, scenario: Scenario) -> Comparison:
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
        # Where the controller measures, jobs announce what the scenario declares: a first guess.
        announced = None if base.profile == "measured" else profiles
        results = await _all([self._run(replace(spec, profiles=announced), step) for spec, step in together])
        draws, ours, rest = results[: scenario.draws], results[scenario.draws], results[scenario.draws + 1 :]
        return Comparison(
            scenario=scenario,
            alone={
                job: job_figures(records, ALONE_WARMUP, ALONE_ITERATIONS)
                for job, records in alone.iterations.items()
            },
            baseline=self._measured(scenario, draws),
            ours=self._measured(scenario, [ours]),
            offsets=tuple(
                (self._measured(scenario, [a]), self._measured(scenario, [b]))
                for a, b in zip(rest[::2], rest[1::2], strict=True)
            ),
        )

    def _together(
        self, base: SessionSpec, scenario: Scenario
    ) -> list[tuple[SessionSpec, Callable[[float], None]]]:
        """The sessions with all jobs: the baseline's draws, ours, then pairs from random offsets."""
        policy, options = self._options.policy, self._options.policy_options
        specs = [
            replace(base, seed=base.seed + 1000 * draw, workdir=base.workdir / f"{BASELINE}-{draw}")
            for draw in range(scenario.draws)
        ]
        specs.append(replace(base, policy=policy, policy_options=options, workdir=base.workdir / policy))
        for k in range(self._options.offsets):
            shifted = replace(base, random_offsets=True, seed=base.seed + 1000 * (k + 1))
            specs.append(replace(shifted, workdir=base.workdir / f"{BASELINE}-offset-{k}"))
            ours = base.workdir / f"{policy}-offset-{k}"
            specs.append(replace(shifted, policy=policy, policy_options=options, workdir=ours))
        return [(spec, self._progress.track(f"{scenario.name}/{spec.workdir.name}")) for spec in specs]

    async def _run(self, spec: SessionSpec, step: Callable[[float], None]) -> SessionResult:
        async with self._lanes:
            result = await run_session(spec, step)
        step(1.0)
        return result

    def _measured(self, scenario: Scenario, draws: Sequence[SessionResult]) -> Measured:
        figures = [
            {job: job_figures(r, scenario.warmup, scenario.iterations) for job, r in draw.iterations.items()}
            for draw in draws
        ]
        return Measured(
            jobs={job: pooled([f[job] for f in figures]) for job in figures[0]},
            plan=draws[-1].plan,
            deterministic=all(draw.deterministic for draw in draws),
            notes=tuple(dict.fromkeys(note for draw in draws for note in draw.notes)),
            failovers=tuple(outcome for draw in draws for outcome in draw.failovers),
        )


async def _all(work: Sequence[Coroutine[Any, Any, SessionResult]]) -> list[SessionResult]:
    """All results in order; with the first failure the others are ended, and waited for."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(session) for session in work]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def to_json(comparison: Comparison) -> Mapping[str, Any]:
    """The figures of one scenario as they go into RUN_JSON. Times in ms, marks in packets."""
    scenario, base, ours = comparison.scenario, comparison.baseline, comparison.ours
    plan = ours.plan or {"jobs": [], "flows": []}
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
                "ideal_iteration_ms": comparison.alone[job.name].mean_ms,
                "ecmp": _figures_json(base.jobs[job.name]),
                "polyrhythm": _figures_json(ours.jobs[job.name]),
                "speedup_mean": base.jobs[job.name].mean_ms / ours.jobs[job.name].mean_ms,
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
        "deterministic": base.deterministic and ours.deterministic,
        "notes": {"ecmp": list(base.notes), "polyrhythm": list(ours.notes)},
        "failovers": {"ecmp": list(base.failovers), "polyrhythm": list(ours.failovers)},
        "speedup_mean": speedup(base.jobs, ours.jobs, "mean_ms"),
        "speedup_p99": speedup(base.jobs, ours.jobs, "p99_ms"),
        "gpu_utilisation": {
            "ecmp": comparison.utilisation(base),
            "polyrhythm": comparison.utilisation(ours),
        },
        "jobs": jobs,
        "scale": {
            "nominal_bits_per_emulated_bit": scenario.scale,
            "host_link_bps": scenario.topology.hosts[0].rate_bps,
            "packet_payload_bytes": scenario.packet_bytes,
        },
    }
    if comparison.offsets:
        speedups = [speedup(a.jobs, b.jobs, "mean_ms") for a, b in comparison.offsets]
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
