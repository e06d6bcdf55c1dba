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


STARVING = """
name: starving
fabric: {kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 2, host_gbps: 50, fabric_gbps: 50}
warmup: 1
iterations: 1
failures: [{what: "leaf1:spine1", at_ms: 125}]
jobs:
  - {name: cut, model: m, gpus: 2, hosts: [h1, h3], period_ms: 40, phases: [{start_ms: 0, end_ms: 10, gbps: 50}]}
  - {name: local, model: m, gpus: 2, hosts: [h2, h1], period_ms: 40, phases: [{start_ms: 0, end_ms: 10, gbps: 50}]}
"""


@pytest.mark.slow
def test_a_session_does_not_wait_for_a_job_that_starves(tmp_path: Path) -> None:
    path = tmp_path / "starving.yaml"
    path.write_text(STARVING)
    spec = SessionSpec(path, "ecmp", "together", 1, tmp_path / "kept")
    result = asyncio.run(run_session(spec, lambda fraction: None))
    # It may need 20 times its two iterations of 40 ms, from the end of the first iteration on.
    starved = [note for note in result.notes if "starved" in note]
    assert len(starved) == 1
    assert starved[0].startswith(
        "at 1.7 s job cut starved: in 20 times the time that 2 iterations take alone"
    )
    assert 1700 * MS <= result.ended_ns <= 1760 * MS
    assert len(result.iterations["local"]) >= 2 * 38


CYCLE = """
name: cycle
fabric: {kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 2, host_gbps: 50, fabric_gbps: 50}
warmup: 1
iterations: 14
failures: [{what: spine2, at_ms: 500, repair_ms: 1000}]
jobs:
  - {name: a, model: m, gpus: 2, hosts: [h1, h3], period_ms: 120, phases: [{start_ms: 0, end_ms: 80, gbps: 50}]}
  - {name: b, model: m, gpus: 2, hosts: [h2, h4], period_ms: 120, phases: [{start_ms: 0, end_ms: 80, gbps: 50}]}
"""


@pytest.mark.slow
def test_a_switch_that_is_powered_on_again_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "cycle.yaml"
    path.write_text(CYCLE)
    results = []
    for delay_ms in (0, 15):
        spec = SessionSpec(path, "routing", "together", 1, tmp_path / f"{delay_ms}", rpc_delay_ms=delay_ms)
        results.append(asyncio.run(run_session(spec, lambda fraction: None)))
    result = results[0]
    assert result.notes == ("at 0.5 s spine2 was powered off", "at 1.0 s spine2 was powered on")
    assert result.plan is not None
    # On one spine both jobs send for 80 of 120 ms.
    spines = {flow["flow"].split("/")[0]: flow["path"][2] for flow in result.plan["flows"]}
    assert set(spines.values()) == {"spine1", "spine2"}
    ends = sorted(r.end_ns for r in result.iterations["a"] if r.rank == 0)
    lengths = [(b - a) / MS for a, b in pairwise(ends)]
    assert max(lengths) > 140
    assert lengths[-1] < 125
    # Neither the loss of the session nor the new one depends on the speed of the machine.
    assert results[1] == result


@pytest.mark.slow
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
