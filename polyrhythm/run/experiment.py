# SPDX-License-Identifier: Apache-2.0
"""Measure a scenario: each job alone, then all jobs together under plain ECMP and under the policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from polyrhythm.run.attack import TRUST, AttackResult, attack_result
from polyrhythm.run.comparison import PolicyResult, ScenarioResult
from polyrhythm.run.figures import job_figures, pooled
from polyrhythm.run.session import SessionResult, SessionSpec, run_session
from polyrhythm.run.windows import (
    SessionTimes,
    Window,
    common_windows,
    figures_in,
    session_times,
    utilisation_in,
)
from polyrhythm.scenario import ALONE_ITERATIONS, ALONE_WARMUP, Scenario

BASELINE = "ecmp"


T = TypeVar("T")

_Tracked = tuple[SessionSpec, Callable[[float], None]]
"""A session and the callback for its progress."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Sessions that are compared with one another: one under the policy, and those under the baseline."""

    policy: _Tracked
    baseline: Sequence[_Tracked]


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
        draws, pairs = self._together(base, scenario)
        alone_step = self._progress.track(f"{scenario.name}/alone")
        alone_spec = replace(base, mode="alone", fail=(), workdir=base.workdir / "alone")
        alone = await self._run(alone_spec, alone_step)
        profiles = base.workdir / "profiles.json"
        profiles.write_text(json.dumps(alone.profiles))
        # Where the controller measures the jobs, they announce the scenario's profile as a first guess.
        announced = None if base.profile == "measured" else profiles
        compared = await _all([self._compare(group, announced) for group in (draws, *pairs)])
        windows, *together = self._measured(scenario, compared[0])
        attack = await self._attack(base, scenario, announced, compared[0][0]) if scenario.floods else None
        return ScenarioResult(
            scenario=scenario,
            alone={
                job: job_figures(records, ALONE_WARMUP, ALONE_ITERATIONS)
                for job, records in alone.iterations.items()
            },
            under_ecmp=together[0],
            under_policy=together[1],
            windows=windows,
            random_offsets=tuple(self._measured(scenario, results)[1:] for results in compared[1:]),
            attack=attack,
        )

    async def _attack(
        self, base: SessionSpec, scenario: Scenario, announced: Path | None, guarded: SessionResult
    ) -> AttackResult:
        """Run the policy without the floods, and with trusted hosts, beside the session that was guarded."""
        options = self._options
        ours = replace(
            base,
            policy=options.policy,
            policy_options=options.policy_options,
            profiles=announced,
            count_from_ns=_counts_from_ns(guarded),
        )
        specs = (
            replace(ours, floods=False, workdir=base.workdir / "without-floods"),
            replace(ours, strays=TRUST, workdir=base.workdir / "trusted"),
        )
        steps = [self._progress.track(f"{scenario.name}/{spec.workdir.name}") for spec in specs]
        without, trusted = await _all([self._run(s, step) for s, step in zip(specs, steps, strict=True)])
        return attack_result((without, guarded, trusted), scenario.warmup)

    def _together(self, base: SessionSpec, scenario: Scenario) -> tuple[_Group, list[_Group]]:
        """The sessions with all jobs: the policy with the draws of ECMP, and a pair for each offset."""
        policy, options = self._options.policy, self._options.policy_options

        def tracked(spec: SessionSpec, name: str) -> _Tracked:
            step = self._progress.track(f"{scenario.name}/{name}")
            return replace(spec, workdir=base.workdir / name), step

        draws = [
            tracked(replace(base, seed=base.seed + 1000 * draw), f"{BASELINE}-{draw}")
            for draw in range(scenario.draws)
        ]
        ours = replace(base, policy=policy, policy_options=options)
        pairs = []
        for k in range(self._options.offsets):
            seed = base.seed + 1000 * (k + 1)
            shifted, plain = (replace(spec, random_offsets=True, seed=seed) for spec in (ours, base))
            pairs.append(
                _Group(tracked(shifted, f"{policy}-offset-{k}"), [tracked(plain, f"{BASELINE}-offset-{k}")])
            )
        return _Group(tracked(ours, policy), draws), pairs

    async def _compare(self, group: _Group, announced: Path | None) -> list[SessionResult]:
        """Run the policy, then ECMP, whose iterations count from the same fabric time on."""
        spec, step = group.policy
        ours = await self._run(replace(spec, profiles=announced), step)
        return [
            ours,
            *await _all(
                [
                    self._run(replace(spec, profiles=announced, count_from_ns=_counts_from_ns(ours)), step)
                    for spec, step in group.baseline
                ]
            ),
        ]

    async def _run(self, spec: SessionSpec, step: Callable[[float], None]) -> SessionResult:
        async with self._lanes:
            result = await run_session(spec, step)
        step(1.0)
        return result

    def _measured(
        self, scenario: Scenario, results: Sequence[SessionResult]
    ) -> tuple[tuple[Window, ...], PolicyResult, PolicyResult]:
        """The windows, and the figures under ECMP and under the policy, whose session is the first one."""
        times = [session_times(r.iterations, r.presence, r.ended_ns, scenario.warmup) for r in results]
        windows = common_windows(times)
        ours = self._policy_result(scenario, results[:1], times[:1], windows)
        return windows, self._policy_result(scenario, results[1:], times[1:], windows), ours

    def _policy_result(
        self,
        scenario: Scenario,
        draws: Sequence[SessionResult],
        times: Sequence[SessionTimes],
        windows: Sequence[Window],
    ) -> PolicyResult:
        gpus = {w.job.name: w.job.gpus for w in scenario.workloads}
        return PolicyResult(
            jobs={job: pooled([figures_in(t, windows, job) for t in times]) for job in gpus},
            gpu_utilisation=sum(utilisation_in(t, windows, gpus) for t in times) / len(times),
            plan=draws[-1].plan,
            deterministic=all(draw.deterministic for draw in draws),
            notes=tuple(dict.fromkeys(note for draw in draws for note in draw.notes)),
            failovers=tuple(outcome for draw in draws for outcome in draw.failovers),
        )


def _counts_from_ns(result: SessionResult) -> int:
    """The fabric time from which the iterations of the jobs without an end count."""
    from_ns = 0
    for name, records in result.iterations.items():
        presence = result.presence[name]
        if presence.left_ns is None:
            from_ns = max([from_ns, *(r.end_ns for r in records if r.index == -1)])
    return from_ns


async def _all(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order. The first failure cancels the other sessions and waits until they have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(session) for session in work]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
