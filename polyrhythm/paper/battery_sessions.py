# SPDX-License-Identifier: Apache-2.0
"""Run the sessions of the battery, several at once; a file keeps what each recorded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from polyrhythm.fabric.jobs import FIRST_START_NS
from polyrhythm.paper.battery_generator import BatteryScenario, with_start_offsets
from polyrhythm.paper.battery_metrics import BatteryJob
from polyrhythm.paper.battery_rows import ALONE, DRAWS, ECMP, POLICIES, draw_names
from polyrhythm.paper.resumable import append_row
from polyrhythm.run.figures import MeasuredIteration, job_figures
from polyrhythm.run.processes import RunError
from polyrhythm.run.session import SessionResult, SessionSpec, run_session
from polyrhythm.scenario import ALONE_ITERATIONS, ALONE_WARMUP, Scenario, load_scenario

PROGRAM = (
    "bmv2",
    "controller",
    "hostagent",
    "p4",
    "polyrhythm/fabric",
    "polyrhythm/paper/battery_generator.py",
    "polyrhythm/paper/battery_links.py",
    "polyrhythm/paper/battery_sessions.py",
    "polyrhythm/run",
    "polyrhythm/scenario",
    "topo",
)
"""The sources on which a session depends."""
SESSIONS: Mapping[str, tuple[str, int]] = {
    ALONE: ("routing", 0),
    **{
        session: (policy, k)
        for name, policy in ({ECMP: ECMP} | POLICIES).items()
        for k, session in enumerate(draw_names(name, DRAWS))
    },
}
"""The sessions of a scenario: the policy of each, and its draw. A job alone has the best paths: under ECMP
the flows of one ring may meet, and the profile would be that of one draw."""

Task = tuple[int, int, int, str]
"""Seed of the battery, most jobs of a scenario, number of the scenario, session."""
Row = dict[str, Any]
Profile = Mapping[str, Any]
"""A measured profile: `period_ns`, and `phases` of [start in ns, end in ns, rate in bit/s]."""


@dataclass(frozen=True, slots=True)
class FailedSession:
    """A session that could not be finished, and the reason in words."""

    scenario: str
    session: str
    error: str


@dataclass(slots=True)
class SessionRunner:
    """Runs the missing `sessions` of scenarios (keys of SESSIONS, ALONE among them), at most `lanes` at once.

    `rows` holds what the finished sessions recorded; each new row is appended to `path` at once. Sessions
    write their logs below `folder`, and the files of the scenarios are there too. `finished` is called after
    each session.
    """

    seed: int
    most_jobs: int
    lanes: int
    folder: Path
    path: Path | None
    rows: dict[Task, Row]
    finished: Callable[[], None]
    sessions: Sequence[str] = tuple(SESSIONS)
    failed: list[FailedSession] = field(default_factory=list)

    async def run(self, scenarios: Sequence[BatteryScenario]) -> None:
        """Run all missing sessions. A session that fails is noted in `failed`, and the others go on.

        Raises:
            OSError: a file could not be written; the message names the scenario.
        """
        sessions, scenes = asyncio.Semaphore(self.lanes), asyncio.Semaphore(self.lanes)

        async def scene(scenario: BatteryScenario) -> None:
            async with scenes:
                await self._scenario(scenario, sessions)

        await _together([scene(scenario) for scenario in scenarios])

    def task(self, scenario: BatteryScenario, session: str) -> Task:
        """The key of a session's row."""
        return self.seed, self.most_jobs, scenario.number, session

    async def _scenario(self, scenario: BatteryScenario, lanes: asyncio.Semaphore) -> None:
        if all(self.task(scenario, name) in self.rows for name in self.sessions):
            return
        folder = self.folder / scenario.name
        folder.mkdir(parents=True, exist_ok=True)
        for draw in {SESSIONS[name][1] for name in self.sessions}:
            text = scenario_text(with_start_offsets(scenario, draw))
            _file(folder, draw).write_text(text, encoding="utf-8")
        if not await self._session(scenario, ALONE, folder, lanes):
            return
        profiles = folder / "profiles.json"
        alone = self.rows[self.task(scenario, ALONE)]
        profiles.write_text(json.dumps(declared_profiles(scenario, alone["profiles"])), encoding="utf-8")
        await _together(
            [
                self._session(scenario, name, folder, lanes, profiles)
                for name in self.sessions
                if name != ALONE
            ]
        )

    async def _session(
        self,
        scenario: BatteryScenario,
        name: str,
        folder: Path,
        lanes: asyncio.Semaphore,
        profiles: Path | None = None,
    ) -> bool:
        """Run a session below `folder` if its row is missing. Returns whether its row is there now."""
        task = self.task(scenario, name)
        if task in self.rows:
            return True
        policy, draw = SESSIONS[name]
        spec = SessionSpec(
            scenario=_file(folder, draw),
            policy=policy,
            mode="alone" if name == ALONE else "together",
            seed=session_seed(self.seed, scenario.number, draw),
            workdir=folder / name,
            profiles=profiles,
            until_ms=0 if name == ALONE else scenario.spans[-1].end_ms + FIRST_START_NS // 1_000_000,
        )
        try:
            async with lanes:
                result = await run_session(spec, lambda fraction: None)
            row = record_alone(result) if name == ALONE else record(result, scenario)
            append_row(self.path, task, row, PROGRAM)
        except (RunError, ValueError) as error:
            # ValueError: a worker alone on the fabric has not finished its iterations.
            self.failed.append(FailedSession(scenario.name, name, str(error)))
            return False
        except OSError as error:
            words = f"{error.filename or self.path or folder}: {error.strerror or error}"
            raise OSError(f"{scenario.name}, session {name}: {words}") from None
        self.rows[task] = row
        self.finished()
        return True


def _file(folder: Path, draw: int) -> Path:
    """The scenario file of a draw."""
    return folder / (f"scenario-{draw}.json" if draw else "scenario.json")


async def _together(work: Sequence[Coroutine[Any, Any, object]]) -> None:
    """Wait for all. The first error cancels the others and waits until they have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


def session_seed(seed: int, number: int, draw: int) -> int:
    """The seed of a session: of jitter, marks and source ports. Draws differ in it, policies do not."""
    return 100_000 * seed + 10 * number + draw


def scenario_text(scenario: BatteryScenario) -> str:
    """The scenario file."""
    return json.dumps(scenario.document, indent=2) + "\n"


def record(result: SessionResult, scenario: BatteryScenario) -> Row:
    """What the report needs of a session: when each iteration ended, the plan, and what was odd.

    Times are in ms after the start of the first jobs.
    """
    plan = result.plan
    return {
        "ends_ms": {
            job["name"]: iteration_ends_ms(result.iterations.get(job["name"], ()), len(job["hosts"]))
            for job in scenario.document["jobs"]
        },
        "plan": None
        if plan is None
        else {
            "jobs": plan["jobs"],
            "flows": [{"flow": flow["flow"], "path": flow["path"]} for flow in plan["flows"]],
        },
        "notes": list(result.notes),
        "deterministic": result.deterministic,
    }


def record_alone(result: SessionResult) -> Row:
    """What the report and the other sessions need of the jobs alone: mean iterations in ms, and profiles."""
    return {
        "mean_ms": {
            job: job_figures(records, ALONE_WARMUP, ALONE_ITERATIONS).mean_ms
            for job, records in result.iterations.items()
        },
        "profiles": result.profiles,
        "notes": list(result.notes),
        "deterministic": result.deterministic,
    }


def declared_profiles(scenario: BatteryScenario, measured: Mapping[str, Profile]) -> dict[str, Profile]:
    """The profile that each job announces: the median of those that were measured alone of the jobs with the
    same phases, GPUs and number of hosts.

    A user declares what is known of a model, not what one of its runs happened to take: under jitter the
    profiles of a few iterations of equal jobs differ by several percent. Values as in `record_alone`.
    """
    alike: dict[tuple[object, ...], list[str]] = {}
    for job in scenario.document["jobs"]:
        if job["name"] in measured:
            shape = job["gpus"], len(job["hosts"]), job["period_ms"], json.dumps(job["phases"])
            phases = len(measured[job["name"]]["phases"])
            alike.setdefault((*shape, phases), []).append(job["name"])
    found: dict[str, Profile] = {}
    for names in alike.values():
        found |= dict.fromkeys(names, _median_profile([measured[name] for name in names]))
    return {name: found[name] for name in measured}


def _median_profile(profiles: Sequence[Profile]) -> Profile:
    """The median of profiles with as many phases: of periods, starts, lengths and rates."""
    period = round(median(profile["period_ns"] for profile in profiles))
    phases: list[list[int]] = []
    for each in zip(*(reversed(profile["phases"]) for profile in profiles), strict=True):
        start, length, rate = (
            round(median(values)) for values in zip(*((a, b - a, bps) for a, b, bps in each), strict=True)
        )
        # The medians of one phase may come from other jobs than those of the next one.
        until = phases[0][0] if phases else period
        phases.insert(0, [start, min(start + length, until), rate])
    return {"period_ns": period, "phases": phases}


def iteration_ends_ms(records: Sequence[MeasuredIteration], workers: int) -> list[float]:
    """When the last of a job's workers ended each iteration, in ms after the start of the first jobs.

    An iteration that some workers have not ended is left out.
    """
    ends: dict[int, list[int]] = {}
    for r in records:
        ends.setdefault(r.index, []).append(r.end_ns)
    return sorted((max(at) - FIRST_START_NS) / 1e6 for at in ends.values() if len(at) == workers)


def battery_jobs(scenario: BatteryScenario, folder: Path) -> tuple[BatteryJob, ...]:
    """The jobs of a scenario as the figures need them. The file of the scenario is written into `folder`."""
    file = folder / f"{scenario.name}.json"
    file.write_text(scenario_text(scenario), encoding="utf-8")
    loaded: Scenario = load_scenario(file)
    shapes = {job["name"]: (job["period_ms"], json.dumps(job["phases"])) for job in scenario.document["jobs"]}
    return tuple(
        BatteryJob(w.job.name, w.job.gpus, w.compute_ns / 1e6, (w.job.sender, *shapes[w.job.name]))
        for w in loaded.workloads
    )
