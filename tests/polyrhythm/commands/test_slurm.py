# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm slurm` and Slurm's scripts, against a controller's REST API on loopback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scheduler_rig import FakeController, fake_controller

from polyrhythm.cli import main

SCRIPTS = Path(__file__).parents[3] / "deploy" / "slurm"
# As Slurm 23.11 sets it for PrologSlurmctld, of a job on four nodes.
RECORDED = {
    "SLURM_CLUSTER_NAME": "gpu", "SLURM_JOB_ID": "4711", "SLURM_JOBID": "4711", "SLURM_JOB_NAME": "train.sh",
    "SLURM_JOB_NODELIST": "gpu[01-03],big7", "SLURM_JOB_PARTITION": "main", "SLURM_JOB_UID": "1000",
    "SLURM_JOB_USER": "ada", "SLURM_JOB_COMMENT": "run 7 polyrhythm:" + json.dumps(
        {"model": "BERT", "traffic": {"collective": "ring", "data_bytes": 1000}}
    ),
}  # fmt: skip
HOSTS = ["gpu01", "gpu02", "gpu03", "big7"]


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in RECORDED.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("slurm")
def test_a_job_is_declared_and_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_controller() as fake:
        assert main(["slurm", "prolog", "--controller", fake.url]) == 0
        assert fake.jobs == {
            "slurm-4711": {
                "name": "slurm-4711", "gpus": 32, "hosts": HOSTS, "model": "BERT",
                "traffic": {"collective": "ring", "data_bytes": 1000},
            }
        }  # fmt: skip
        # The job is requeued, and Slurm calls the prolog again.
        assert main(["slurm", "prolog", "--controller", fake.url, "--json"]) == 0
        assert main(["slurm", "epilog", "--controller", fake.url]) == 0
        assert not fake.jobs
        assert main(["slurm", "epilog", "--controller", fake.url, "--wait", "0"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "job slurm-4711 is declared"
    assert json.loads(out[1]) == {"declared": ["slurm-4711"], "ended": []}
    assert out[2:] == ["job slurm-4711 is ended", "nothing to do"]


@pytest.mark.usefixtures("slurm")
def test_an_epilog_waits_for_a_late_prolog() -> None:
    with fake_controller() as fake:
        words = [sys.executable, "-m", "polyrhythm", "slurm", "epilog", "--controller", fake.url]
        epilog = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        fake.asked.wait(60)
        assert main(["slurm", "prolog", "--controller", fake.url]) == 0
        assert epilog.communicate(timeout=60)[0] == "job slurm-4711 is ended\n"
        assert not fake.jobs


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"SLURM_JOB_ID": ""},
            "SLURM_JOB_ID is not set; legal: a call from PrologSlurmctld or EpilogSlurmctld",
        ),
        ({"SLURM_JOB_NODELIST": "gpu[1"}, "SLURM_JOB_NODELIST: 'gpu[1' is no list of names"),
        (
            {"SLURM_JOB_COMMENT": "polyrhythm:{"},
            "slurm-4711: the comment after polyrhythm:: not JSON; legal: an object",
        ),
        ({"SLURM_JOB_COMMENT": 'polyrhythm:{"hosts": []}'}, "'hosts': unknown key; legal: model, gpus"),
    ],
)
@pytest.mark.usefixtures("slurm")
def test_what_is_wrong_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], change: dict[str, str], said: str
) -> None:
    for name, value in change.items():
        monkeypatch.setenv(name, value)
    assert main(["slurm", "prolog"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("polyrhythm slurm prolog: ")
    assert said in told
    assert told.count("\n") == 1


@pytest.mark.usefixtures("slurm")
def test_a_job_on_one_node_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu01")
    with fake_controller() as fake:
        assert main(["slurm", "prolog", "--controller", fake.url]) == 0
        assert not fake.log


def test_sync_ends_the_jobs_that_are_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_controller() as fake:
        fake.jobs = {name: {"name": name} for name in ("slurm-1", "slurm-2", "slurm-x", "mine")}
        monkeypatch.setattr(sys, "stdin", io.StringIO("2\n3\n"))
        assert main(["slurm", "sync", "--controller", fake.url]) == 0
        assert set(fake.jobs) == {"slurm-2", "slurm-x", "mine"}
        # squeue failed: nothing is ended.
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        assert main(["slurm", "sync", "--controller", fake.url]) == 2
        assert set(fake.jobs) == {"slurm-2", "slurm-x", "mine"}
    assert "no job on standard input" in capsys.readouterr().err


def script(
    name: str, tmp_path: Path, fake: FakeController | None, **changed: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a script as slurmctld does: in a group of its own, which is killed when the script has ended."""
    program = Path(sys.executable).with_name("polyrhythm")
    settings = tmp_path / "slurm.env"
    settings.write_text(f"POLYRHYTHM_LOG={tmp_path}/log\n")
    environment = {
        "PATH": os.environ["PATH"], **RECORDED, "POLYRHYTHM": str(program), "POLYRHYTHM_SETTINGS": str(settings),
        "POLYRHYTHM_CONTROLLER": fake.url if fake else "http://127.0.0.1:9", **changed,
    }  # fmt: skip
    started = subprocess.Popen(
        [str(SCRIPTS / name)], env=environment, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    out, _ = started.communicate(timeout=60)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, 9)
    return subprocess.CompletedProcess(name, started.returncode, out)


def eventually(condition, what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_the_scripts_declare_and_end_after_slurm_went_on(tmp_path: Path) -> None:
    # The controller answers only when the script has ended: Slurm does not wait for it.
    with fake_controller(silent=True) as fake:
        done = script("prolog.sh", tmp_path, fake)
        assert (done.returncode, done.stdout) == (0, b"")
        assert not fake.jobs
        fake.asked.wait(60)
        fake.answers.set()
        eventually(lambda: "slurm-4711" in fake.jobs, "the job is declared")
        assert script("epilog.sh", tmp_path, fake).returncode == 0
        eventually(lambda: not fake.jobs, "the job is ended")
        eventually(lambda: (tmp_path / "log").read_text().endswith("is ended\n"), "the log says so")


@pytest.mark.parametrize("name", ["prolog.sh", "epilog.sh"])
@pytest.mark.parametrize(
    "changed",
    [
        {"POLYRHYTHM": "/nonexistent"},
        {"POLYRHYTHM_OPTIONS": "--no-such-option"},
        {"POLYRHYTHM_OPTIONS": "--wait 0"},
        {
            "POLYRHYTHM_LOG": "/nonexistent/log",
            "POLYRHYTHM_SETTINGS": "/nonexistent",
            "POLYRHYTHM_OPTIONS": "--wait 0",
        },
        {"PATH": "/nonexistent"},
    ],
    ids=["no program", "wrong option", "no controller", "no log", "no setsid"],
)
def test_a_job_never_fails_because_of_us(tmp_path: Path, name: str, changed: dict[str, str]) -> None:
    done = script(name, tmp_path, None, **changed)
    assert (done.returncode, done.stdout) == (0, b"")


def test_settings_with_a_mistake_cost_no_job(tmp_path: Path) -> None:
    broken = tmp_path / "broken.env"
    broken.write_text("if then fi (\n")
    assert script("prolog.sh", tmp_path, None, POLYRHYTHM_SETTINGS=str(broken)).returncode == 0
