# SPDX-License-Identifier: Apache-2.0
"""Jobs of Slurm and Kubernetes on a real controller."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from control_rig import eventually
from scheduler_rig import fake_kube_api, pod

from polyrhythm.cli import main


@pytest.mark.slow
def test_the_controller_plans_what_schedulers_declare(fabric, start_controller, monkeypatch, tmp_path):
    description = fabric.description(profile="declared", verify=False)
    controller = start_controller(description, f"--state={tmp_path / 'state'}")

    def planned() -> set[str]:
        plan = controller.api("plan")
        return {j["job"] for j in plan["jobs"]} if plan else set()

    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "h[1,3]")
    assert main(["slurm", "prolog", "--controller", controller.web]) == 0
    # The same again, as for a job that is requeued.
    assert main(["slurm", "prolog", "--controller", controller.web]) == 0
    eventually(lambda: planned() == {"slurm-12"}, "Slurm's job is planned")
    with fake_kube_api() as kube:
        words = ["kubernetes", "--api", kube.url, "--controller", controller.web]
        watcher = subprocess.Popen([sys.executable, "-m", "polyrhythm", *words], stdout=subprocess.DEVNULL)
        try:
            for i, node in enumerate(("h2", "h4")):
                kube.send(
                    "ADDED", pod(f"p{i}", {"volcano.sh/job-name": "v", "volcano.sh/task-index": str(i)}, node)
                )
            eventually(lambda: planned() == {"slurm-12", "k8s.ml.v"}, "both are planned")
            assert main(["slurm", "epilog", "--controller", controller.web]) == 0
            for i, node in enumerate(("h2", "h4")):
                kube.send("DELETED", pod(f"p{i}", {"volcano.sh/job-name": "v"}, node))
            eventually(lambda: not controller.api("jobs")["jobs"], "both have ended")
        finally:
            watcher.send_signal(signal.SIGTERM)
            assert watcher.wait(60) == 0
