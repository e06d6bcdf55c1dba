# SPDX-License-Identifier: Apache-2.0
"""Programs of others train on a Mininet fabric, steered by the socket shim: root, torch and tcpdump are needed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from agent_rig import ROOT, environment
from shim_rig import SHIM, needs_compiler

from polyrhythm.emulation.folder import own_folder
from polyrhythm.paper.real_training import check_needs
from polyrhythm.paper.real_training.cluster import TrainingCluster
from polyrhythm.paper.real_training.parts import PARTS, RATES_BPS
from polyrhythm.paper.real_training.runs import run_jobs
from topo.mininet import MininetError

pytestmark = [pytest.mark.slow, pytest.mark.alone, needs_compiler]

RATE_BPS = RATES_BPS[-1]


@pytest.fixture(autouse=True)
def built() -> None:
    subprocess.run(["make", "-s", "-C", str(SHIM)], check=True, cwd=SHIM)
    try:
        check_needs()
    except MininetError as error:
        pytest.skip(str(error))


def test_gloo_takes_the_planned_paths_and_trains_the_same_with_us_and_without() -> None:
    """In mid-training all agents and the controller are killed, and no step fails."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "polyrhythm", "paper", "real-training", "--json", "--parts", "collide"),
            *("--repeats", "1", "--iterations", "5", "--link-mbps", str(RATE_BPS / 1e6)),
        ],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["losses_equal"] is True
    assert report["bytes_on_planned_tuples"] >= 0.99
    runs = report["parts"]["collide"]["runs"]
    assert [(run["way"], run["control_killed"]) for run in runs] == [
        ("ecmp", False),
        ("ours", False),
        ("ours", True),
    ]
    assert all(len(ms) == 5 for run in runs for ms in run["iterations_ms"].values())


def test_where_the_hash_is_unknown_switches_pin_the_connections() -> None:
    jobs = PARTS[0].jobs(RATE_BPS)
    with own_folder() as folder:
        cluster = TrainingCluster(folder, spines=2, rate_bps=RATE_BPS, policy="routing", hash_known=False)
        try:
            cluster.start()
            run = run_jobs(cluster, jobs, 8, ours=True)
        finally:
            cluster.close()
    assert run.on_planned is not None
    assert run.on_planned >= 0.9
