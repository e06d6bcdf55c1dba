# SPDX-License-Identifier: Apache-2.0
"""Jobs that arrive and leave, jitter, failures and mice in one session: the complete example of docs/run.md."""

import asyncio
import re
from itertools import pairwise
from pathlib import Path

import pytest

from polyrhythm.run.session import SessionSpec, run_session
from polyrhythm.scenario import load_scenario

ROOT = Path(__file__).parents[2]
MS = 1_000_000


@pytest.fixture
def example(tmp_path: Path) -> Path:
    text = re.search(
        r"<!-- file: events.yaml -->\n```yaml\n(.*?)```", (ROOT / "docs/run.md").read_text(), re.DOTALL
    )
    assert text is not None
    path = tmp_path / "events.yaml"
    path.write_text(text[1])
    return path


def test_what_the_example_says_happens(example: Path, tmp_path: Path) -> None:
    scenario = load_scenario(example)
    spec = SessionSpec(example, "polyrhythm", "together", 1, tmp_path / "kept", profile="declared")
    result = asyncio.run(run_session(spec, lambda fraction: None))
    assert result.deterministic
    assert result.notes == ("at 2.5 s leaf1:spine2 was cut", "at 2.9 s leaf1:spine2 was repaired")
    presence = {name: result.presence[name] for name in ("always-a", "always-b", "visitor")}
    # A job computes until its first phase.
    assert [p.start_ns // MS for p in presence.values()] == [100, 250, 730]
    assert presence["always-a"].left_ns is presence["always-b"].left_ns is None
    left = presence["visitor"].left_ns
    assert left is not None
    for name, records in result.iterations.items():
        for rank in (0, 1):
            own = [r for r in records if r.rank == rank]
            if name == "visitor":
                assert [r.index for r in own] == list(range(20))
            else:
                assert len(own) >= scenario.warmup + scenario.iterations
            assert own[0].start_ns - presence[name].start_ns <= 1.5 * MS
            assert all(a.end_ns == b.start_ns for a, b in pairwise(own))
    assert max(r.end_ns for r in result.iterations["visitor"]) == left < result.ended_ns
    # The controller has seen the visitor join as any job, and leave.
    log = (tmp_path / "kept" / "controller.log").read_text()
    assert "job visitor has left" in log
    assert result.plan is not None
    assert [job["job"] for job in result.plan["jobs"]] == ["always-a", "always-b"]
