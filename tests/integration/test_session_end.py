# SPDX-License-Identifier: Apache-2.0
"""A session on the embedded fabric that ends at a fabric time, whatever its jobs have done."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from polyrhythm.run.session import SessionSpec, run_session


@pytest.mark.slow
def test_a_session_ends_at_its_time(tmp_path: Path) -> None:
    quick = {"period_ms": 100, "phases": [{"start_ms": 0, "end_ms": 20, "gbps": 50}]}
    slow = {"period_ms": 20_000, "phases": [{"start_ms": 0, "end_ms": 20, "gbps": 50}]}
    document = {
        "name": "ends",
        "fabric": {"kind": "leaf_spine", "leaves": 1, "spines": 0, "hosts_per_leaf": 4}
        | {"host_gbps": 50, "fabric_gbps": 50},
        "jobs": [
            {"name": name, "model": "m", "gpus": 2, "hosts": hosts, **shape}
            for name, hosts, shape in (("quick", ["h1", "h2"], quick), ("slow", ["h3", "h4"], slow))
        ],
    }
    file = tmp_path / "ends.json"
    file.write_text(json.dumps(document))
    spec = SessionSpec(file, "ecmp", "together", 1, tmp_path / "logs", until_ms=1500)
    seen: list[float] = []
    result = asyncio.run(run_session(spec, seen.append))
    ends = [r.end_ns for r in result.iterations["quick"]]
    assert 1_380_000_000 < max(ends) <= 1_500_000_000
    # A job that has finished no iteration has no profile; the session reports it nevertheless.
    assert result.iterations["slow"] == ()
    assert list(result.profiles) == ["quick"]
    assert all(0 <= fraction <= 1 for fraction in seen)
