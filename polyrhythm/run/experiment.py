# SPDX-License-Identifier: Apache-2.0
"""Measure a scenario: each job alone, then all jobs together under plain ECMP, the policy and its rivals."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from polyrhythm.emulation.slow_machine import MOST_RAISES, RAISE, larger_scale_helps, pace
from polyrhythm.run.attack import TRUST, AttackResult, attack_result
from polyrhythm.run.comparison import BASELINE, PolicyResult, RivalResult, ScenarioResult
from polyrhythm.run.figures import job_figures, pooled
from polyrhythm.run.processes import RunError
from polyrhythm.run.session import SessionResult, SessionSpec, run_session
from polyrhythm.run.windows import (
    SessionTimes,
    Window,
    common_windows,
    figures_in,
    session_times,
    utilisation_in,
)
from polyrhythm.scenario import ALONE_ITERATIONS, ALONE_WARMUP, LARGEST_SCALE, Scenario, load_scenario

log = logging.getLogger(__name__)

FEWEST_ITERATIONS = 15
"""The fewest iterations that one of several runs of the same kind measures. Chosen."""

MININET_WARMUP = 15
"""The fewest iterations of warm-up on the Mininet fabric. Chosen: a controller that has just started loads
its kernels beside the first jobs, in real time. On a busy machine it has slots after 10 to 13 iterations.
On the embedded fabric the jobs are profiled meanwhile, which does not count either."""

T = TypeVar("T")

_Tracked = tuple[SessionSpec, Callable[[float], None]]
"""A session and the callback for its progress."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Sessions that are compared with one another: one under the policy, one under each rival, and those
    under the baseline.
    """

    policy: _Tracked
    rivals: Sequence[_Tracked]
    baseline: Sequence[_Tracked]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run scenarios.

    `seed` decides the start jitter, the source ports of ECMP and the ECN marking. `policy_options` are
    options of `polyrhythm controller` for `policy`. `rivals` are further policies to measure, without those
    options. `offsets` is the number of additional runs from random start offsets; `lanes` is how many
    sessions run at once. `rpc_delay_ms` delays every RPC by host time, for tests. `fail` lists failures as in
    `--fail`. `fabric` is "embedded" or "mininet". `profile` is "measured", "declared", or "" for what the
    scenario says. `scale` replaces the scenarios' own; None: theirs, or a larger one on a machine that is too
    slow for it in real time. `warmup` replaces theirs too; None: theirs, on Mininet at least MININET_WARMUP.
    """

    seed: int = 1
    policy: str = "polyrhythm"
    policy_options: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    offsets: int = 0
    lanes: int = 2
    rpc_delay_ms: float = 0.0
    fail: tuple[str, ...] = ()
    fabric: str = "embedded"
    profile: str = ""
    scale: float | None = None
    warmup: int | None = None


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
        """Measure one scenario under the baseline, the policy and its rivals.

        Raises:
            RunError: a session could not be finished.
        """
        options = self._options
        if options.warmup is not None:
            scenario = replace(scenario, warmup=options.warmup)
        elif options.fabric == "mininet":
            scenario = replace(scenario, warmup=max(MININET_WARMUP, scenario.warmup))
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
            scale=options.scale,
            warmup=scenario.warmup,
        )
        asked = scenario.scale
        alone_step = self._progress.track(f"{scenario.name}/alone")
        alone = await self._alone(base, alone_step)
        if options.fabric == "mininet" and options.scale is None:
            base, scenario, alone = await self._carried(base, scenario, alone, alone_step)
        groups = self._together(base, scenario)
        profiles = base.workdir / "profiles.json"
        profiles.write_text(json.dumps(alone.profiles))
        # Where the controller measures the jobs, they announce the scenario's profile as a first guess.
        announced = None if base.profile == "measured" else profiles
        compared = await _all([self._compare(group, announced) for group in groups])
        windows, together = self._measured(scenario, compared[0])
        shifted = [self._measured(scenario, results)[1] for results in compared[1:]]
        attack = await self._attack(base, scenario, announced, compared[0][0]) if scenario.floods else None
        return ScenarioResult(
            scenario=scenario,
            alone={
                job: job_figures(records, ALONE_WARMUP, ALONE_ITERATIONS)
                for job, records in alone.iterations.items()
            },
            under_ecmp=together[-1],
            under_policy=together[0],
            windows=windows,
            random_offsets=tuple((runs[-1], runs[0]) for runs in shifted),
            rivals={
                name: RivalResult(together[k], tuple(runs[k] for runs in shifted))
                for k, name in enumerate(options.rivals, 1)
            },
            attack=attack,
            profiles=alone.profiles,
            asked_scale=asked,
            cpu_load=alone.load,
        )

    async def _alone(self, base: SessionSpec, step: Callable[[float], None]) -> SessionResult:
        """Each job alone, one after another."""
        folder = "alone" if base.scale is None else f"alone-{base.scale:g}"
        return await self._run(replace(base, mode="alone", fail=(), workdir=base.workdir / folder), step)

    async def _carried(
        self, base: SessionSpec, scenario: Scenario, alone: SessionResult, step: Callable[[float], None]
    ) -> tuple[SessionSpec, Scenario, SessionResult]:
        """The same at a larger scale, if the machine is too slow for this one and that helps."""
        here = pace(scenario, alone.profiles, alone.load or 0.0)
        for _ in range(MOST_RAISES):
            scale = RAISE * scenario.scale
            if not here.too_slow or scale > LARGEST_SCALE:
                break
            words = "%s: the machine is too slow for scale %g: %s; next: %g"
            log.warning(words, scenario.name, scenario.scale, here, scale)
            raised = replace(base, scale=scale)
            again = await self._alone(raised, step)
            larger = replace(load_scenario(base.scenario, scale), warmup=scenario.warmup)
            there = pace(larger, again.profiles, again.load or 0.0)
            if not larger_scale_helps(here, there):
                break
            base, scenario, alone, here = raised, larger, again, there
        return base, scenario, alone

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

    def _together(self, base: SessionSpec, scenario: Scenario) -> list[_Group]:
        """The sessions with all jobs: first those that start together, then a group for each offset."""
        policy, options = self._options.policy, self._options.policy_options

        def tracked(spec: SessionSpec, name: str) -> _Tracked:
            step = self._progress.track(f"{scenario.name}/{name}")
            return replace(spec, workdir=base.workdir / name), step

        each = self._iterations_of_each(scenario, scenario.draws)
        draws = [
            tracked(replace(base, seed=base.seed + 1000 * draw, iterations=each), f"{BASELINE}-{draw}")
            for draw in range(scenario.draws)
        ]
        ours = replace(base, policy=policy, policy_options=options)
        rivals = {name: replace(base, policy=name) for name in self._options.rivals}
        groups = []
        iterations = self._iterations_of_each(scenario, self._options.offsets)
        for k in range(self._options.offsets):

            def shifted(spec: SessionSpec, name: str, k: int = k) -> _Tracked:
                return tracked(_from_offsets(spec, k, iterations), f"{name}-offset-{k}")

            groups.append(
                _Group(
                    shifted(ours, policy),
                    [shifted(rival, name) for name, rival in rivals.items()],
                    [shifted(base, BASELINE)],
                )
            )
        together = [tracked(rival, name) for name, rival in rivals.items()]
        return [_Group(tracked(ours, policy), together, draws), *groups]

    def _iterations_of_each(self, scenario: Scenario, runs: int) -> int | None:
        """The iterations that each of `runs` runs measures, which differ in their draw of offsets or source
        ports; None: as the scenario says.

        All of them together measure as many as one run does. Where something happens during a session, each
        must last as long as that one, or it would miss that.
        """
        if runs <= 1 or not scenario.steady or self._options.fail:
            return None
        return min(scenario.iterations, max(FEWEST_ITERATIONS, -(-scenario.iterations // runs)))

    async def _compare(self, group: _Group, announced: Path | None) -> list[SessionResult]:
        """Run the policy, then its rivals, then ECMP: the results in this order.

        The iterations of each count from no earlier fabric time than those before it.
        """
        results: list[SessionResult] = []
        for part in ([group.policy], group.rivals, group.baseline):
            from_ns = max((_counts_from_ns(result) for result in results), default=0)
            results += await _all(
                [
                    self._run(replace(spec, profiles=announced, count_from_ns=from_ns), step)
                    for spec, step in part
                ]
            )
        return results

    async def _run(self, spec: SessionSpec, step: Callable[[float], None]) -> SessionResult:
        async with self._lanes:
            try:
                result = await run_session(spec, step)
            except RunError as error:
                if spec.policy in self._options.rivals:
                    raise RunError(f"under {spec.policy}: {error}") from None
                raise
        step(1.0)
        return result

    def _measured(
        self, scenario: Scenario, results: Sequence[SessionResult]
    ) -> tuple[tuple[Window, ...], list[PolicyResult]]:
        """The windows of the results of `_compare`, and the figures in them: under the policy, under each
        rival, and under ECMP.
        """
        times = [session_times(r.iterations, r.presence, r.ended_ns, scenario.warmup) for r in results]
        windows = common_windows(times)
        # The policy and each rival have one session, the others are ECMP's.
        ecmp = 1 + len(self._options.rivals)
        parts = [*([k] for k in range(ecmp)), range(ecmp, len(results))]
        return windows, [
            self._policy_result(scenario, [results[k] for k in part], [times[k] for k in part], windows)
            for part in parts
        ]

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
            pfc=tuple(draw.pfc for draw in draws if draw.pfc is not None),
        )


def _from_offsets(spec: SessionSpec, k: int, iterations: int | None) -> SessionSpec:
    """The session with the `k`-th random start offsets: the same ones for every policy."""
    return replace(spec, random_offsets=True, seed=spec.seed + 1000 * (k + 1), iterations=iterations)


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
