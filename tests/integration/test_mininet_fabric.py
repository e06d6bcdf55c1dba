# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm run` on a Mininet fabric, with real namespaces and processes: root and Mininet are needed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tutorial_rig import POD

from bmv2.launcher import speaks_thrift
from polyrhythm.run.session import SessionSpec, run_session
from topo.mininet import MininetError, check_host

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SCENARIO = {
    "name": "pair",
    "fabric": {"kind": "leaf_spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 2, "host_gbps": 50, "fabric_gbps": 50},
    "scale": 4000,
    "warmup": 3,
    "iterations": 20,
    "jobs": [
        {
            "name": name, "model": "VGG19", "gpus": 2, "hosts": hosts, "period_ms": 260,
            "phases": [{"start_ms": 0, "end_ms": 120, "gbps": 50}],
        }
        for name, hosts in (("a", ["h1", "h3"]), ("b", ["h2", "h4"]))
    ],
}  # fmt: skip

TWO_SPINES = {
    "kind": "leaf_spine",
    "leaves": 2,
    "spines": 2,
    "hosts_per_leaf": 2,
    "host_gbps": 50,
    "fabric_gbps": 50,
}


@pytest.fixture(autouse=True)
def _possible() -> None:
    try:
        check_host()
    except MininetError as error:
        pytest.skip(str(error))


def polyrhythm(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "polyrhythm", *arguments]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "pair.json"
    path.write_text(json.dumps(SCENARIO))
    return path


def test_a_job_sends_over_ipv6(tmp_path: Path) -> None:
    """Each host has both families, and its job uses the first."""
    fabric = {**SCENARIO["fabric"], "hosts_per_leaf": 1, "addresses": "ipv6+ipv4"}
    pair = {**SCENARIO["jobs"][0], "hosts": ["h1", "h2"]}
    path, out = tmp_path / "six.json", tmp_path / "run.json"
    path.write_text(json.dumps({**SCENARIO, "fabric": fabric, "jobs": [pair], "warmup": 1, "iterations": 4}))
    done = subprocess.run(
        polyrhythm("run", str(path), "--fabric", "mininet", "--once", "--json", str(out)),
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())["scenarios"]["pair"]
    (job,) = found["jobs"]
    assert job["ideal_iteration_ms"] > 260
    assert 0 < found["scale"]["cpu_load"] <= 1


def test_a_scenario_gains_on_real_processes_and_sockets(scenario: Path, tmp_path: Path) -> None:
    """The fabric's time is the machine's, so a machine that pauses has more than one try."""
    out = tmp_path / "run.json"
    speedups: list[float] = []
    while len(speedups) < 3 and max(speedups, default=0.0) < 1.15:
        done = subprocess.run(
            polyrhythm("run", str(scenario), "--fabric", "mininet", "--scale", "4000", "--once", "--json", str(out)),
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = json.loads(out.read_text())["scenarios"]["pair"]
        speedups.append(found["speedup_mean"])
    assert max(speedups) >= 1.15, speedups
    assert found["scale"]["nominal_bits_per_emulated_bit"] == 4000
    assert {job["shift_ms"] is not None for job in found["jobs"]} == {True}
    bmv2 = shutil.which("simple_switch_grpc")
    embedded = bmv2 is None
    # Queues fill, and are marked, where they have a rate: in the embedded switch, and in BMv2 by Thrift.
    if bmv2 is None or speaks_thrift(bmv2):
        assert all(job["ecmp"]["ecn_marks_per_iteration"] > 0 for job in found["jobs"])
    assert any("no port scheduler" in note for note in found["notes"]["ecmp"]) != embedded


def test_a_cable_that_is_cut_is_noticed_and_reported_and_jobs_go_on(tmp_path: Path) -> None:
    path, out = tmp_path / "cut.json", tmp_path / "run.json"
    path.write_text(json.dumps({**SCENARIO, "name": "cut", "scale": 8000, "draws": 1, "fabric": TWO_SPINES}))
    done = subprocess.run(
        polyrhythm(
            "run", str(path), "--fabric", "mininet", "--once", "--json", str(out), "--keep", str(tmp_path / "kept"),
            "--fail", "leaf1:spine1@1500-3000",
        ),
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())["scenarios"]["cut"]
    (outcome,) = found["failovers"]["polyrhythm"]
    assert (outcome["what"], outcome["at_ms"], outcome["until_ms"]) == ("leaf1:spine1", 1500.0, 3000.0)
    assert outcome["backup_ms"] > 0
    log = (tmp_path / "kept" / "cut" / "polyrhythm" / "controller.log").read_text()
    assert "(to spine1) is down" in log
    assert "(to spine1) is up" in log


def test_jobs_leave_and_a_switch_returns_while_another_job_goes_on(tmp_path: Path) -> None:
    jobs = [
        {
            "name": name, "model": "VGG19", "gpus": 2, "hosts": hosts, "period_ms": 200,
            "phases": [{"start_ms": 150, "end_ms": 190, "gbps": 50}], **more,
        }
        for name, hosts, more in (
            ("stays", ["h1", "h4"], {"increase_timer": 0.5}),
            ("counts", ["h2", "h5"], {"iterations": 2, "silent": True}),
            ("stops", ["h3", "h6"], {"start_ms": 300, "stop_ms": 1000, "jitter_pct": 20, "sender": "mltcp-cubic"}),
        )
    ]  # fmt: skip
    path = tmp_path / "events.json"
    document = {
        **SCENARIO, "fabric": {**TWO_SPINES, "hosts_per_leaf": 3}, "scale": 8000, "warmup": 2, "iterations": 60,
        "jobs": jobs, "failures": [{"what": "spine2", "at_ms": 600, "repair_ms": 1500}],
    }  # fmt: skip
    path.write_text(json.dumps(document))
    spec = SessionSpec(
        scenario=path,
        policy="polyrhythm",
        mode="together",
        seed=1,
        workdir=tmp_path / "run",
        fabric="mininet",
    )
    result = asyncio.run(run_session(spec, lambda _: None))
    begun = {name: own.start_ns - result.presence["stays"].start_ns for name, own in result.presence.items()}
    left = {name: own.left_ns for name, own in result.presence.items()}
    # The first of the jobs arrives at 0 ms and computes for 150 ms; the third arrives at 300 ms.
    assert begun["stops"] >= 290_000_000
    assert left["stays"] is None
    assert left["counts"] == max(r.end_ns for r in result.iterations["counts"])
    assert sorted(r.index for r in result.iterations["counts"]) == [0, 0, 1, 1]
    assert left["stops"] is not None
    assert abs(left["stops"] - result.presence["stays"].start_ns + 150_000_000 - 1_000_000_000) < 10_000_000
    assert max(r.index for r in result.iterations["stays"]) >= 61
    assert "spine2 came up again" in result.notes
    log = (tmp_path / "run" / "controller.log").read_text()
    assert log.count("switch spine2 is in service") == 2


def test_pingall_on_a_tutorials_topology(scenario: Path, tmp_path: Path) -> None:
    topology = tmp_path / "topology.json"
    topology.write_text(json.dumps({**POD, "links": [link[:2] for link in POD["links"]]}))
    done = subprocess.run(
        polyrhythm(
            "run", str(scenario), "--fabric", "mininet", "--cli", "--topology", str(topology), "--port", "0"
        ),
        input="pingall\nexit\n", capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "0% dropped (12/12 received)" in done.stdout + done.stderr


def test_pingall_on_a_triangle_without_a_scenario(tmp_path: Path) -> None:
    topology = tmp_path / "topology.json"
    nodes = {f"h{i}": {} for i in (1, 2, 3)}, {f"s{i}": {} for i in (1, 2, 3)}
    cables = [["s1-p2", "s2-p2"], ["s1-p3", "s3-p2"], ["s2-p3", "s3-p3"]]
    links = [*([f"h{i}", f"s{i}-p1"] for i in (1, 2, 3)), *cables]
    topology.write_text(json.dumps({"hosts": nodes[0], "switches": nodes[1], "links": links}))
    done = subprocess.run(
        polyrhythm("run", "--fabric", "mininet", "--cli", "--topology", str(topology), "--port", "0"),
        input="pingall\nexit\n", capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "0% dropped (6/6 received)" in done.stdout + done.stderr


def descendants(pid: int) -> set[int]:
    """All processes below one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found.update(below)
        todo += below
    return found


def alive(pids: set[int]) -> set[int]:
    return {p for p in pids if Path(f"/proc/{p}").exists() and _state(p) != "Z"}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, None])
def test_nothing_is_left_however_it_ends(how: signal.Signals | None, scenario: Path) -> None:
    before = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    process = subprocess.Popen(
        # A shell starts background processes, as this test may be one, with Ctrl-C ignored.
        ["env", "--default-signal=INT", *polyrhythm("emulation", str(scenario))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    ready = json.loads(process.stdout.readline())
    folder = Path(ready["agents"].removeprefix("unix:")).parent
    below = descendants(process.pid)
    # Three switches, and a shell in each of seven namespaces.
    assert len(below) >= 10
    assert subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout == before
    if how is None:
        process.stdin.close()
    else:
        os.kill(process.pid, how)
    process.wait(timeout=300)
    process.stdin.close()
    process.stdout.close()
    deadline = time.monotonic() + 120
    while alive(below) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(below)
    if how is signal.SIGKILL:
        assert folder.exists()
        later = subprocess.run(
            polyrhythm("emulation", str(scenario)),
            input="",
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert later.returncode == 0
    assert not folder.exists()
