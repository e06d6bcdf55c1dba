# SPDX-License-Identifier: Apache-2.0
"""Which sessions are run for a comparison, in which order, and what they have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from polyrhythm.fabric.presence import Presence
from polyrhythm.run import experiment
from polyrhythm.run.comparison import ScenarioResult, to_json
from polyrhythm.run.experiment import OverallProgress, RunOptions, ScenarioRunner
from polyrhythm.run.figures import MeasuredIteration
from polyrhythm.run.processes import RunError
from polyrhythm.run.report import blocks
from polyrhythm.run.session import SessionResult, SessionSpec
from polyrhythm.scenario import load_scenario, scenario_path

MS = 1_000_000
PERIOD_MS = {"ecmp": 400, "crux": 300, "spray": 350, "polyrhythm": 270}
FIRST = {"polyrhythm": 4, "crux": 6, "spray": 0, "ecmp": 0}
"""The iterations before those that count."""


class Sessions:
    """In the place of processes: a session whose jobs have equal iterations, as many as the policy profiles."""

    def __init__(self, broken: str = "") -> None:
        self.specs: list[SessionSpec] = []
        self._broken = broken

    async def run(self, spec: SessionSpec, step: Callable[[float], None]) -> SessionResult:
        self.specs.append(spec)
        if spec.policy == self._broken:
            raise RunError("nothing arrives any more")
        period, first = PERIOD_MS[spec.policy] * MS, FIRST[spec.policy]
        records = tuple(
            MeasuredIteration(0, index - first, index * period, (index + 1) * period, 0, 0, 0, period // 2)
            for index in range(120)
        )
        jobs = ("vgg19-a", "vgg19-b")
        return SessionResult(
            iterations=dict.fromkeys(jobs, records),
            profiles={},
            plan=None,
            deterministic=True,
            notes=(),
            presence=dict.fromkeys(jobs, Presence(0, None, None, first)),
            ended_ns=120 * period,
        )


def compare(folder: Path, sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> ScenarioResult:
    monkeypatch.setattr(experiment, "run_session", sessions.run)
    options = RunOptions(seed=3, rivals=("spray", "crux"), offsets=1, profile="measured")
    (folder / "two_vgg19").mkdir()
    path = scenario_path("two_vgg19")
    runner = ScenarioRunner(options, folder, OverallProgress(lambda fraction: None))
    return asyncio.run(runner.compare(path, load_scenario(path)))


def test_all_policies_have_the_same_offsets_and_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions()
    result = compare(tmp_path, sessions, monkeypatch)
    together = [spec for spec in sessions.specs if spec.mode == "together"]
    for shifted in (False, True):
        own = [spec for spec in together if spec.random_offsets is shifted]
        assert [spec.policy for spec in own] == ["polyrhythm", "spray", "crux", "ecmp"]
        assert {(spec.seed, spec.profile, spec.fail, spec.profiles) for spec in own} == {
            (1003 if shifted else 3, "measured", (), None)
        }
        # Rivals count from where the policy has profiled all jobs, ECMP from where every policy has.
        profiled = {name: FIRST[name] * PERIOD_MS[name] * MS for name in FIRST}
        assert [spec.count_from_ns for spec in own] == [
            0,
            profiled["polyrhythm"],
            profiled["polyrhythm"],
            profiled["crux"],
        ]
    assert len({spec.workdir for spec in sessions.specs}) == len(sessions.specs)
    assert set(result.rivals) == {"spray", "crux"}
    for name in result.rivals:
        for figures in (result.rival_together(name), result.rival_from_offsets(name)):
            assert figures is not None
            assert figures.speedup == pytest.approx(PERIOD_MS["ecmp"] / PERIOD_MS[name])
            assert figures.worst_ratio == pytest.approx(PERIOD_MS[name] / PERIOD_MS["ecmp"])
            # Alone it is as fast as under ECMP: here the mode makes no difference.
            assert figures.slowest_ratio == figures.worst_ratio
    assert result.start_together.speedup == pytest.approx(PERIOD_MS["ecmp"] / PERIOD_MS["polyrhythm"])


@pytest.mark.parametrize(("offsets", "fail", "iterations", "each"), [
    (1, (), 50, None),
    (3, (), 50, 17),
    (3, (), 10, 10),
    (10, (), 50, 15),
    (3, ("spine1@3000-3500",), 50, None),
])  # fmt: skip
def test_runs_of_one_kind_share_the_iterations(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    offsets: int,
    fail: tuple[str, ...],
    iterations: int,
    each: int | None,
) -> None:
    sessions = Sessions()
    monkeypatch.setattr(experiment, "run_session", sessions.run)
    (tmp_path / "two_vgg19").mkdir()
    path = scenario_path("two_vgg19")
    runner = ScenarioRunner(
        RunOptions(offsets=offsets, fail=fail), tmp_path, OverallProgress(lambda fraction: None)
    )
    scenario = replace(load_scenario(path), iterations=iterations, draws=offsets)
    asyncio.run(runner.compare(path, scenario))
    shifted = [spec for spec in sessions.specs if spec.random_offsets]
    assert {spec.policy for spec in shifted} == {"ecmp", "polyrhythm"}
    assert [spec.iterations for spec in shifted] == [each] * 2 * offsets
    whole = [spec.iterations for spec in sessions.specs if not spec.random_offsets]
    assert whole == [None, None] + [each] * offsets


def test_a_rival_that_cannot_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match=r"^under crux: nothing arrives any more$"):
        compare(tmp_path, Sessions(broken="crux"), monkeypatch)


@pytest.mark.parametrize(("fabric", "asked", "own", "measured"), [
    ("embedded", None, 5, 5), ("embedded", 9, 5, 9), ("mininet", None, 5, 15), ("mininet", None, 20, 20), ("mininet", 2, 5, 2),
])  # fmt: skip
def test_what_is_asked_for_is_the_warmup_of_all_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fabric: str, asked: int | None, own: int, measured: int
) -> None:
    sessions = Sessions()
    monkeypatch.setattr(experiment, "run_session", sessions.run)
    (tmp_path / "two_vgg19").mkdir()
    path = scenario_path("two_vgg19")
    options = RunOptions(fabric=fabric, warmup=asked)
    runner = ScenarioRunner(options, tmp_path, OverallProgress(lambda fraction: None))
    result = asyncio.run(runner.compare(path, replace(load_scenario(path), warmup=own)))
    assert {spec.warmup for spec in sessions.specs} == {result.scenario.warmup} == {measured}


class SlowMachine(Sessions):
    """Sessions of a machine that carries so many nominal bits per emulated bit. Below, a job alone takes so
    many times its period, and all jobs together so much of the machine's CPU time.
    """

    def __init__(self, carried: float, times: float, load: float) -> None:
        super().__init__()
        self._carried, self._times, self._load = carried, times, load

    async def run(self, spec: SessionSpec, step: Callable[[float], None]) -> SessionResult:
        found = await super().run(spec, step)
        slow = (spec.scale or 2000) < self._carried
        period = round(260 * MS * (self._times if slow else 1.03))
        load = self._load if slow else 0.4
        return replace(found, profiles={"vgg19-b": {"period_ns": period, "phases": []}}, load=load)


@pytest.mark.parametrize(("carried", "times", "load", "fabric", "scale", "alone", "measured"), [
    (0, 1.4, 0.9, "mininet", None, [None], None),
    (5000, 1.4, 0.4, "mininet", None, [None, 4000], None),
    (3000, 1.4, 0.4, "mininet", None, [None, 4000], 4000),
    (3000, 1.06, 0.4, "mininet", None, [None], None),
    (3000, 1.03, 0.9, "mininet", None, [None, 4000], 4000),
    (5000, 1.03, 0.9, "mininet", None, [None, 4000], None),
    (3000, 1.03, 0.55, "mininet", None, [None], None),
    (3000, 1.4, 0.9, "mininet", 2500, [2500], 2500),
    (3000, 1.4, 0.9, "embedded", None, [None], None),
], ids=["carries it", "larger does not help", "doubled", "headers", "busy", "busy with other work", "idle",
        "asked for", "embedded"])  # fmt: skip
def test_a_machine_that_is_too_slow_measures_at_a_larger_scale(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    carried: float,
    times: float,
    load: float,
    fabric: str,
    scale: float | None,
    alone: list[float | None],
    measured: float | None,
) -> None:
    sessions = SlowMachine(carried, times, load)
    monkeypatch.setattr(experiment, "run_session", sessions.run)
    (tmp_path / "two_vgg19").mkdir()
    path = scenario_path("two_vgg19")
    runner = ScenarioRunner(
        RunOptions(fabric=fabric, scale=scale), tmp_path, OverallProgress(lambda fraction: None)
    )
    result = asyncio.run(runner.compare(path, load_scenario(path, scale)))
    assert [spec.scale for spec in sessions.specs if spec.mode == "alone"] == alone
    assert {spec.scale for spec in sessions.specs if spec.mode == "together"} == {measured}
    assert result.scenario.scale == (measured or 2000)
    assert result.asked_scale == (scale or 2000)
    shown = " ".join(blocks({"s": to_json(result, "polyrhythm")}).plain.split())
    assert ("is too slow for scale 2000" in shown) == (measured == 4000)
