# SPDX-License-Identifier: Apache-2.0
"""A job that measures below its floor in a real session: a new plan, then one level for those that contend."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from polyrhythm.run.session import FabricSession, SessionResult, SessionSpec

# The GPUs of "slow" need 210 ms instead of 30 from its fourth iteration on, and no profile says so.
SCENARIO: dict[str, Any] = {
    "name": "below-floor",
    "fabric": {
        "kind": "leaf_spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 4, "host_gbps": 50, "fabric_gbps": 50,
    },
    "scale": 20_000,
    "warmup": 2,
    "iterations": 26,
    "profile": "declared",
    "jobs": [
        {
            "name": "slow", "model": "m", "gpus": 2, "hosts": ["h1", "h5"], "period_ms": 130,
            "phases": [{"start_ms": 0, "end_ms": 100, "gbps": 50}],
            "changes": [
                {"iteration": 3, "period_ms": 310, "phases": [{"start_ms": 0, "end_ms": 100, "gbps": 50}]}
            ],
        },
        {
            "name": "other", "model": "n", "gpus": 2, "hosts": ["h2", "h6"], "period_ms": 100,
            "phases": [{"start_ms": 0, "end_ms": 70, "gbps": 50}],
        },
        {
            "name": "apart", "model": "n", "gpus": 2, "hosts": ["h3", "h4"], "period_ms": 100,
            "phases": [{"start_ms": 0, "end_ms": 70, "gbps": 50}],
        },
    ],
}  # fmt: skip


async def session(spec: SessionSpec) -> tuple[SessionResult, list[dict[str, Any]]]:
    """The result of a session, and the jobs that the API shows at its end."""
    run = FabricSession(spec)
    try:
        await run.start()
        result = await run.result(lambda _: None)

        def jobs() -> list[dict[str, Any]]:
            with urllib.request.urlopen(f"{run.web}/api/v1/jobs", timeout=120) as answer:
                found: list[dict[str, Any]] = json.load(answer)["jobs"]
                return found

        return result, await asyncio.to_thread(jobs)
    finally:
        await run.stop()


@pytest.mark.slow
def test_a_job_below_its_floor_gets_a_new_plan_and_then_shares_one_level(tmp_path: Path) -> None:
    file = tmp_path / "below-floor.json"
    file.write_text(json.dumps(SCENARIO))
    # Under a higher limit both jobs get slots, and the period of "slow" is corrected before ten iterations.
    spec = SessionSpec(
        scenario=file,
        policy="polyrhythm",
        mode="together",
        seed=1,
        workdir=tmp_path,
        policy_options=("--max-slowdown", "1"),
    )
    result, jobs = asyncio.run(session(spec))
    log = (tmp_path / "controller.log").read_text()
    first, again = (log.find(words) for words in ("job slow is below its floor: ", "below its floor again: "))
    # A new plan follows either breach.
    assert 0 < first < log.find("is in force", first) < again < log.find("is in force", again)
    assert "it now shares one level with other, until one of them changes" in log
    assert result.plan is not None
    planned = {j["job"]: j for j in result.plan["jobs"]}
    assert planned["slow"]["level"] == planned["other"]["level"]
    assert planned["slow"]["period_ms"] is None
    for one, partner in (("slow", "other"), ("other", "slow")):
        words = f"shared with {partner} until one of them changes: slow was below its floor twice: "
        assert words in planned[one]["why"]
    shown = {j["name"]: j for j in jobs}
    assert {n: j["floor_breaches"] for n, j in shown.items()} == {"slow": 2, "other": 0, "apart": 0}
    assert {n: j["shares_level_with"] for n, j in shown.items()} == {
        "slow": ["other"], "other": ["slow"], "apart": [],
    }  # fmt: skip
    assert shown["slow"]["why"] == planned["slow"]["why"]
