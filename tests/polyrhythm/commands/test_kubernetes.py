# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm kubernetes`: a Kubernetes API and a controller on loopback, and the process between them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from scheduler_rig import FakeController, FakeKubeApi, fake_controller, fake_kube_api, pod

from polyrhythm.cli import main

MANIFEST = Path(__file__).parents[3] / "deploy" / "kubernetes" / "watcher.yaml"


def jobset(name: str, index: int, node: str = "", **rest) -> dict:
    """As the pods of a JobSet with one replicated job."""
    return pod(f"{name}-workers-0-{index}", {
        "jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        "jobset.sigs.k8s.io/job-index": "0", "batch.kubernetes.io/job-completion-index": str(index),
    }, node, **rest)  # fmt: skip


def kubeflow(name: str, role: str, index: int, node: str = "", **rest) -> dict:
    """As the pods of a PyTorchJob."""
    return pod(f"{name}-{role}-{index}", {
        "training.kubeflow.org/job-name": name, "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": str(index), "training.kubeflow.org/operator-name": "pytorchjob-controller",
    }, node, **rest)  # fmt: skip


def volcano(name: str, index: int, node: str = "", **rest) -> dict:
    """As the pods of a Volcano job."""
    labels = {
        "volcano.sh/job-name": name,
        "volcano.sh/task-spec": "worker",
        "volcano.sh/task-index": str(index),
    }
    return pod(f"{name}-worker-{index}", labels, node, **rest)


def eventually(condition, what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture
def fakes() -> Iterator[tuple[FakeKubeApi, FakeController]]:
    with fake_kube_api() as kube, fake_controller() as controller:
        yield kube, controller


@pytest.fixture
def watcher(fakes, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    kube, controller = fakes
    (tmp_path / "hosts.yaml").write_text("node-a: h1\n")
    (tmp_path / "token").write_text("secret\n")
    for present in (jobset("bert", 2, "node-c"), jobset("bert", 10, "node-b"), jobset("bert", 0, "node-a")):
        kube.pods[present["metadata"]["uid"]] = present
    # Of an earlier watcher: one whose pods are gone, and one of somebody else.
    controller.jobs = {n: {"name": n, "hosts": ["h1", "h2"]} for n in ("k8s.ml.old", "mine")}
    started = subprocess.Popen(
        [
            sys.executable, "-m", "polyrhythm", "kubernetes", "--api", kube.url, "--api-token", str(tmp_path / "token"),
            "--hosts", str(tmp_path / "hosts.yaml"), "--controller", controller.url,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert started.stdout.readline() == '{"ready": true}\n'
    yield started
    if started.poll() is None:
        started.kill()
    started.communicate()


def test_jobs_come_change_and_go(fakes, watcher) -> None:
    kube, controller = fakes
    eventually(lambda: "k8s.ml.bert" in controller.jobs, "pods that were there are a job")
    found = controller.jobs["k8s.ml.bert"]
    # By rank, 10 after 2; a node's name in the fabric is another one.
    assert (found["hosts"], found["gpus"]) == (["h1", "node-c", "node-b"], 24)
    eventually(lambda: "k8s.ml.old" not in controller.jobs, "a job without pods is over")
    assert "mine" in controller.jobs

    # A gang is declared when all its pods have nodes, and with what its annotation says.
    said = {
        "polyrhythm/job": json.dumps({"model": "GPT", "traffic": {"collective": "ring", "data_bytes": 5}})
    }
    kube.send("ADDED", kubeflow("gpt", "worker", 0))
    kube.send("ADDED", kubeflow("gpt", "master", 0, "node-d", annotations=said))
    kube.send("ADDED", volcano("vgg", 0, "node-e"))
    kube.send("ADDED", volcano("vgg", 1, "node-f", phase="Running"))
    eventually(lambda: "k8s.ml.vgg" in controller.jobs, "a Volcano job")
    assert "k8s.ml.gpt" not in controller.jobs, "one of its pods has no node"
    kube.send("MODIFIED", kubeflow("gpt", "worker", 0, "node-a"))
    eventually(lambda: "k8s.ml.gpt" in controller.jobs, "a Kubeflow job")
    assert controller.jobs["k8s.ml.gpt"] == {
        "name": "k8s.ml.gpt", "gpus": 16, "hosts": ["node-d", "h1"], "model": "GPT",
        "traffic": {"collective": "ring", "data_bytes": 5},
    }  # fmt: skip

    # A pod is replaced on another node.
    kube.send("DELETED", volcano("vgg", 1, "node-f"))
    kube.send("ADDED", volcano("vgg", 1, "node-g"))
    eventually(
        lambda: controller.jobs.get("k8s.ml.vgg", {}).get("hosts") == ["node-e", "node-g"], "it has moved"
    )

    # The watches end, and their version is too old: the pods are listed again.
    kube.too_old = True
    kube.end_watches()
    for i in range(2):
        kube.send("MODIFIED", volcano("vgg", i, "node-e", phase="Succeeded"))
    eventually(lambda: "k8s.ml.vgg" not in controller.jobs, "it has ended")
    assert {"k8s.ml.bert", "k8s.ml.gpt", "mine"} == set(controller.jobs)

    watcher.send_signal(signal.SIGTERM)
    assert watcher.wait(60) == 0
    assert {"k8s.ml.bert", "k8s.ml.gpt", "mine"} == set(controller.jobs), "they go on"


def test_what_the_controller_refuses_is_said_once_and_harms_no_other(fakes, watcher) -> None:
    kube, controller = fakes
    controller.refuse = {"k8s.ml.bad": 409}
    for i in range(2):
        kube.send("ADDED", volcano("bad", i, f"node-{i}"))
        kube.send("ADDED", volcano("odd", i, f"node-{i}", annotations={"polyrhythm/job": "{"}))
        kube.send("ADDED", jobset("one", i, "node-a"))
    eventually(lambda: controller.log.count("POST /api/v1/jobs") >= 2, "bert and bad are asked for")
    for i in range(2):
        kube.send("ADDED", volcano("good", i, f"node-{i}"))
    eventually(lambda: "k8s.ml.good" in controller.jobs, "a later job")
    watcher.send_signal(signal.SIGTERM)
    said = watcher.communicate(timeout=60)[1]
    assert said.count("job k8s.ml.bad: not declared: the controller answers 409") == 1
    assert (
        said.count("job k8s.ml.odd: not declared: k8s.ml.odd: the annotation polyrhythm/job: not JSON") == 1
    )
    assert "k8s.ml.one" not in controller.jobs, "it sends nothing between hosts"
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "this process is no pod; legal: --api URL"),
        (["--api", "api.example"], "--api api.example: legal: http://HOST:PORT or https://HOST:PORT"),
        (
            ["--api", "http://x", "--api-ca", "/nonexistent"],
            "--api-ca /nonexistent: cannot be read; legal: a file",
        ),
        (
            ["--api", "http://x", "--hosts", "hosts.yaml"],
            "hosts.yaml:2: node-b: no name; legal: the host's name",
        ),
    ],
)
def test_bad_options_are_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: list[str],
    said: str,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.yaml").write_text("node-a: h1\nnode-b: 7\n")
    assert main(["kubernetes", *words]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"polyrhythm kubernetes: {said}")
    assert told.count("\n") == 1


def test_the_manifest_has_the_rights_that_the_watcher_uses(capsys: pytest.CaptureFixture[str]) -> None:
    parts = {part["kind"]: part for part in yaml.safe_load_all(MANIFEST.read_text())}
    assert parts["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
    ]
    spec = parts["Deployment"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["serviceAccountName"] == parts["ServiceAccount"]["metadata"]["name"]
    # Its options exist.
    with pytest.raises(SystemExit):
        main(["kubernetes", "--help"])
    shown = capsys.readouterr().out
    assert container["args"][0] == "kubernetes"
    assert all(word in shown for word in container["args"] if word.startswith("--"))
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert all(any(word.startswith(m) for m in mounted) for word in container["args"] if word.startswith("/"))
