# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench plan`: groups are measured one by one."""

import json
from types import SimpleNamespace

import pytest

from polyrhythm.bench import plan
from polyrhythm.cli import main


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Replace the groups' modules; returns what they are asked for."""
    asked: list[tuple[str, int, int]] = []

    def module(path: str) -> SimpleNamespace:
        def measure(seed: int, runs: int) -> dict[str, float]:
            asked.append((path.rpartition(".")[2], seed, runs))
            return {path.rpartition(".")[2]: 1.0}

        return SimpleNamespace(measure=measure)

    monkeypatch.setattr(plan, "import_module", module)
    return asked


def test_all_groups_by_default(calls: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "plan", "--json"]) == 0
    assert [c[0] for c in calls] == [path.rpartition(".")[2] for path, _ in plan.GROUPS.values()]
    assert len(json.loads(capsys.readouterr().out)) == len(plan.GROUPS)


def test_chosen_groups_with_seed_and_runs(calls: list[tuple[str, int, int]]) -> None:
    assert main(["bench", "plan", "--group", "excess", "--seed", "3", "--runs", "2"]) == 0
    assert calls == [("excess", 3, 2)]
