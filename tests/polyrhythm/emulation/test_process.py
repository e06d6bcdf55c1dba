# SPDX-License-Identifier: Apache-2.0
"""When a session of the Mininet fabric ends, with agents and switches that only count."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from polyrhythm.emulation import process
from polyrhythm.emulation.process import Emulation
from polyrhythm.scenario import load_scenario, scenario_path
from topo.mininet import MininetError


class Counting:
    """Stands for the agents, the switches and the failures: each poll may finish an iteration of a job.

    `every` says how many polls each job takes for an iteration; 0: it never finishes one.
    """

    def __init__(self, every: Mapping[str, int], stops_ns: Mapping[str, int] | None = None) -> None:
        self._every = every
        self._stops = stops_ns or {}
        self._polls = 0

    def check(self) -> None:
        pass

    def poll(self) -> int:
        self._polls += 1
        return sum(self.finished(job) for job in self._every)

    def finished(self, job: str) -> int:
        return self._polls // self._every[job] if self._every[job] else 0

    def begins_ns(self, job: str) -> int:
        return 0

    def stops_ns(self, job: str) -> int | None:
        return self._stops.get(job)

    def progress(self, job: str, target: int, now_ns: int) -> float:
        stop = self.stops_ns(job)
        return float(now_ns >= stop) if stop is not None else min(1.0, self.finished(job) / target)


class Clock:
    """Stands for the module `time`: it stands still but for 1 ms at each look for input."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self.now_ns / 1e9

    def select(self, *_: object) -> tuple[list[int], list[int], list[int]]:
        self.now_ns += 1_000_000
        return [], [], []


def follow(
    folder: Path, agents: Counting, monkeypatch: pytest.MonkeyPatch, targets: dict[str, int]
) -> list[str]:
    plain = yaml.safe_load(scenario_path("two_vgg19").read_text())
    for job in plain["jobs"]:
        job.update(period_ms=1, phases=[{"start_ms": 0, "end_ms": 0.5, "gbps": 50}])
    path = folder / "s.json"
    path.write_text(json.dumps(plain))
    clock = Clock()
    monkeypatch.setattr(process, "time", clock)
    monkeypatch.setattr(process, "select", clock)
    monkeypatch.setattr(process, "_send", lambda _: None)
    nothing: Any = Counting(dict.fromkeys(targets, 0))
    emulation = Emulation(
        nothing, load_scenario(path), nothing, nothing,
        folder=folder, sockets=folder, controller="", web="", profiles={}, seed=1,
    )  # fmt: skip
    anything: Any = agents
    return emulation._follow(anything, targets, 0, 1)


def test_a_session_ends_when_every_job_is_done_or_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = Counting({"vgg19-a": 2, "vgg19-b": 0}, {"vgg19-b": 4_000_000})
    assert follow(tmp_path, agents, monkeypatch, {"vgg19-a": 3, "vgg19-b": 9}) == []
    assert agents.finished("vgg19-a") == 3
    agents = Counting({"vgg19-a": 1, "vgg19-b": 0}, {"vgg19-b": 9_000_000})
    assert follow(tmp_path, agents, monkeypatch, {"vgg19-a": 3, "vgg19-b": 9}) == []
    assert agents.finished("vgg19-a") == 9


def test_a_job_that_starves_is_given_up_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agents = Counting({"vgg19-a": 1, "vgg19-b": 0})
    (note,) = follow(tmp_path, agents, monkeypatch, {"vgg19-a": 3, "vgg19-b": 2})
    assert note == "job vgg19-b starved: in 20 times the time that 2 iterations take alone it finished 0"


def test_jobs_that_never_end_an_iteration_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "STALL_FLOOR_NS", 0)
    agents = Counting({"vgg19-a": 0, "vgg19-b": 1})
    agents.poll = lambda: 1  # type: ignore[method-assign]
    with pytest.raises(MininetError, match=r"no iteration has ended for 0\.03 s; not done: vgg19-a, vgg19-b"):
        follow(tmp_path, agents, monkeypatch, {"vgg19-a": 3000, "vgg19-b": 3000})
