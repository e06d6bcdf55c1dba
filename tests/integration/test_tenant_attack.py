# SPDX-License-Identifier: Apache-2.0
"""A host of another tenant floods every DSCP, from the scenario file to the figures of the jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyrhythm.cli import main
from polyrhythm.scenario import scenario_path

# Issue 18's bounds, as parts of the run without the flood.
MOST_LOSS = 0.03
LEAST_LOSS_WITH_TRUSTED_HOSTS = 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"iterations: 10": "iterations: 3"},
        # At 400 Gbit/s such a flood leaves nothing to the jobs of trusted hosts, and that run never ends.
        {
            "iterations: 10": "iterations: 2",
            "dst: h6}": "dst: h6, frames: answers}",
            "h3, leaf: leaf1, gbps: 400": "h3, leaf: leaf1, gbps: 60",
        },
    ],
    ids=["all", "answers"],
)
def test_jobs_do_not_notice_the_flood_where_ports_to_hosts_are_guarded(
    changes: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shipped scenario at a fifth of its emulated rates and with fewer iterations, which takes less
    time; and with a flood of nothing but acknowledgements and CNPs."""
    text = scenario_path("tenant_attack").read_text(encoding="utf-8")
    small = text.replace("warmup: 3", "warmup: 1")
    for old, new in changes.items():
        assert old in small
        small = small.replace(old, new)
    path, figures = tmp_path / "small.yaml", tmp_path / "figures.json"
    path.write_text(small + "scale: 10000\n", encoding="utf-8")
    arguments = [
        "run",
        str(path),
        "--once",
        "--offsets",
        "0",
        "--profile",
        "declared",
        "--json",
        str(figures),
    ]
    assert main(arguments) == 0
    scenario = json.loads(figures.read_text())["scenarios"]["tenant_attack"]
    assert scenario["deterministic"]
    jobs = scenario["attack"]["jobs"]
    assert [job["name"] for job in jobs] == ["bert", "roberta"]
    for job in jobs:
        for key in ("mean", "p99"):
            assert job[f"guarded_{key}_loss"] < MOST_LOSS
            assert job[f"trusted_{key}_loss"] > LEAST_LOSS_WITH_TRUSTED_HOSTS
    assert "bert beside the floods: mean +" in " ".join(capsys.readouterr().out.split())
