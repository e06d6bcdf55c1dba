# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm run` as a command: real processes, real sockets, and the printed figures."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from run_rig import PATIENCE_S, POLYRHYTHM, figures, run, shortened, uncounted

from polyrhythm.cli import main


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    folder = tmp_path_factory.mktemp("run")
    scenarios = [shortened(n, folder, warmup=3, iterations=7) for n in ("two_vgg19", "contend")]
    return figures(folder, *scenarios)


@pytest.mark.slow
def test_a_time_shift_brings_two_equal_jobs_to_their_own_pace(measured: tuple[dict[str, Any], str]) -> None:
    scenario = measured[0]["scenarios"]["two_vgg19"]
    assert scenario["deterministic"] is True
    assert scenario["speedup_mean"] >= 1.2
    shifts = []
    for job in scenario["jobs"]:
        ours, base = job["polyrhythm"], job["ecmp"]
        assert ours["mean_iteration_ms"] <= 1.05 * job["ideal_iteration_ms"]
        assert base["ecn_marks_per_iteration"] >= 5 * max(1, ours["ecn_marks_per_iteration"])
        shifts.append(job["shift_ms"])
    # Each Up phase is 121 ms of 262: the second job's lies in the first one's Down phase.
    assert 118 <= abs(shifts[0] - shifts[1]) <= 144


@pytest.mark.slow
def test_jobs_that_no_shift_separates_take_turns_and_none_loses(
    measured: tuple[dict[str, Any], str],
) -> None:
    scenario = measured[0]["scenarios"]["contend"]
    use = scenario["gpu_utilisation"]
    assert use["polyrhythm"] >= 1.15 * use["ecmp"]
    for job in scenario["jobs"]:
        assert job["period_ms"] > job["ideal_iteration_ms"]
        assert job["polyrhythm"]["mean_iteration_ms"] <= 1.05 * job["ecmp"]["mean_iteration_ms"]


@pytest.mark.slow
def test_the_table_shows_every_job_with_its_path_and_port(measured: tuple[dict[str, Any], str]) -> None:
    document, table = measured
    for scenario in document["scenarios"].values():
        for job in scenario["jobs"]:
            assert job["name"] in table
            for flow in job["flows"]:
                assert f"{'-'.join(flow['path'])} ({flow['source_port']})" in table
                assert 0xC000 <= flow["source_port"] <= 0xFFFF


@pytest.mark.slow
def test_routing_parts_what_ecmp_lets_collide(tmp_path: Path) -> None:
    # With this seed's source ports ECMP puts several of the four jobs on one spine.
    document, _ = figures(
        tmp_path,
        shortened("collide", tmp_path, warmup=1, iterations=4),
        "--policy",
        "routing",
        "--compare",
        "ecmp,spray",
    )
    scenario = document["scenarios"]["collide"]
    assert scenario["speedup_mean"] >= 1.1
    spines = {flow["path"][2] for job in scenario["jobs"] for flow in job["flows"]}
    assert spines == {"spine1", "spine2", "spine3", "spine4"}
    # All policies are measured over the same windows, so the figures of two of them stand there twice.
    ecmp, routing, spray = scenario["policies"]
    assert [row["policy"] for row in (ecmp, routing, spray)] == ["ecmp", "routing", "spray"]
    assert ecmp["gpu_utilisation"] == scenario["gpu_utilisation"]["ecmp"]
    assert routing["worst_job"] == scenario["worst_job"]
    assert ecmp["worst_job"] is None
    assert ecmp["slowest_job"]["ratio"] == max(
        own["mean_iteration_ms"] / job["ideal_iteration_ms"]
        for own, job in zip(ecmp["jobs"], scenario["jobs"], strict=True)
    )
    base = {job["name"]: job["mean_iteration_ms"] for job in ecmp["jobs"]}
    ratios = {job["name"]: job["mean_iteration_ms"] / base[job["name"]] for job in spray["jobs"]}
    assert spray["worst_job"] == {"name": max(ratios, key=ratios.__getitem__), "ratio": max(ratios.values())}
    # Two jobs share a spine under ECMP. Sprayed packets have all paths, and meet those of the other two jobs.
    assert sorted(ratios.values())[1] < 0.7
    assert max(ratios.values()) < 1.05


@pytest.mark.slow
def test_slow_rpcs_change_no_figure(tmp_path: Path) -> None:
    scenario = shortened("snapshot2", tmp_path, warmup=1, iterations=3)
    prompt, _ = figures(tmp_path, scenario)
    slow, _ = figures(tmp_path, scenario, "--rpc-delay-ms", 20)
    assert slow == prompt
    assert prompt["scenarios"]["snapshot2"]["deterministic"] is True


@pytest.mark.slow
def test_a_dead_spine_is_routed_around(tmp_path: Path) -> None:
    scenario = shortened("collide", tmp_path, warmup=2, iterations=5)
    done = run(
        scenario,
        "--once",
        "--json",
        tmp_path / "f.json",
        "--fail",
        "spine2@900",
        "--keep",
        tmp_path / "k",
        counted=False,
    )
    assert done.returncode == 0, done.stderr
    collide = json.loads((tmp_path / "f.json").read_text())["scenarios"]["collide"]
    assert all("spine2" not in flow["path"] for job in collide["jobs"] for flow in job["flows"])
    assert collide["notes"]["polyrhythm"] == ["at 0.9 s spine2 was powered off"]
    log = (tmp_path / "k" / "collide" / "polyrhythm" / "controller.log").read_text()
    assert "spine2 is lost" in log


@pytest.mark.slow
def test_a_cut_cable_is_left_within_the_switch_before_the_controller_acts(tmp_path: Path) -> None:
    scenario = shortened("collide", tmp_path, warmup=2, iterations=6)
    # In the middle of everybody's fourth Up phase.
    document, table = figures(tmp_path, scenario, "--policy", "routing", "--fail", "leaf1:spine2@740-1100")
    collide = document["scenarios"]["collide"]
    assert collide["deterministic"] is True
    (outcome,) = collide["failovers"]["polyrhythm"]
    assert outcome["what"] == "leaf1:spine2"
    assert outcome["until_ms"] == 1100
    # Detection takes 0.1 ms, a frame on the wire 0.35 ms, the control channel 1 ms.
    assert 0.1 < outcome["backup_ms"] < 1 <= outcome["first_reassigned_ms"]
    assert outcome["packets_lost"] > 0
    assert "first packet on a backup path after" in " ".join(table.split())
    assert collide["notes"]["polyrhythm"] == [
        "at 0.7 s leaf1:spine2 was cut",
        "at 1.1 s leaf1:spine2 was repaired",
    ]


@pytest.mark.slow
def test_without_any_spine_the_run_ends_with_a_clear_error(tmp_path: Path) -> None:
    scenario = shortened("two_vgg19", tmp_path, warmup=1, iterations=6)
    done = run(scenario, "--once", "--fail", "spine1@600", counted=False)
    assert done.returncode == 1
    assert "two_vgg19: no bytes of any job have arrived for 10 s of fabric time" in done.stderr
    assert "Traceback" not in done.stderr


def children(pid: int) -> dict[str, int]:
    """The processes below a run by the name that `ps` shows: fabric, controller."""
    below = psutil.Process(pid).children(recursive=True)
    return {child.name(): child.pid for child in below if child.name() in ("fabric", "controller")}


@pytest.mark.slow
def test_a_killed_fabric_is_told_in_one_line(tmp_path: Path) -> None:
    scenario = shortened("two_vgg19", tmp_path, warmup=5, iterations=500)
    process = subprocess.Popen(
        [*POLYRHYTHM, "run", str(scenario), "--once", "--offsets", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + PATIENCE_S
    while "controller" not in (found := children(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(found["fabric"], signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "the fabric was killed by signal 9" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_on_a_terminal_the_live_fabric_is_served_until_interrupted(tmp_path: Path) -> None:
    scenario = shortened("two_vgg19", tmp_path, warmup=1, iterations=2)
    pid, terminal = pty.fork()
    if pid == 0:
        # The tests may run in the background of a shell, which ignores Ctrl-C there.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        own = dict(uncounted(), COLUMNS="160")
        os.execve(sys.executable, [*POLYRHYTHM, "run", str(scenario), "--offsets", "0", "--port", "0"], own)
    shown = b""
    deadline = time.monotonic() + PATIENCE_S
    while b"Press Ctrl-C" not in shown and time.monotonic() < deadline:
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65536)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    address = re.search(r"The live fabric: (http://\S+)", text)
    assert address is not None, text
    assert "two_vgg19" in text
    with urllib.request.urlopen(f"{address[1]}/api/v1/jobs", timeout=300) as answer:
        jobs = json.load(answer)["jobs"]
    assert {job["name"] for job in jobs} == {"vgg19-a", "vgg19-b"}
    family = children(pid)
    below = psutil.Process(pid).children(recursive=True)
    os.write(terminal, b"\x03")
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                os.read(terminal, 65536)
            except OSError:  # the terminal closes with its last process
                time.sleep(0.1)
    assert done == pid
    assert os.waitstatus_to_exitcode(status) == 130
    assert set(family) == {"fabric", "controller"}
    assert not any(Path(f"/proc/{child}").exists() for child in family.values())
    # Those that waited for the children end after them.
    _, left = psutil.wait_procs(below, timeout=PATIENCE_S)
    assert left == []


@pytest.mark.slow
def test_a_live_controller_that_dies_ends_the_run_with_a_word(tmp_path: Path) -> None:
    scenario = shortened("two_vgg19", tmp_path, warmup=1, iterations=2)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            [*POLYRHYTHM, "run", str(scenario), "--offsets", "0", "--port", "0", "--profile", "declared"],
            uncounted(),
        )
    shown, killed = b"", False
    # Reading a terminal whose last process has gone is an error.
    with suppress(OSError):
        while chunk := os.read(terminal, 65536):
            shown += chunk
            if b"Press Ctrl-C" in shown and not killed:
                killed = True
                os.kill(children(pid)["controller"], signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert b"polyrhythm run: the controller was killed by signal 9" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["no_such"],
            "no_such: no such scenario; legal: a file, or one of those that we ship: cluster, collide",
        ),
        (["missing.yaml"], "missing.yaml: cannot be read: No such file or directory"),
        (
            ["two_vgg19", "--fail", "spine9@1"],
            "'spine9' is no switch of two_vgg19; legal: leaf1, leaf2, spine1",
        ),
        (["two_vgg19", "--fail", "spine1"], "--fail spine1: not a failure; legal: NODE@MS"),
        (
            ["two_vgg19", "--fail", "leaf1:leaf2@5"],
            "no cable joins leaf1 and leaf2; leaf1 is joined to spine1",
        ),
        (["two_vgg19", "--fail", "leaf1:spine1@5-5"], "must be later than the first"),
        (
            ["two_vgg19", "--fail", "leaf1:spine1@5-x"],
            "--fail leaf1:spine1@5-x: not a failure; legal: NODE@MS",
        ),
        (["two_vgg19", "--fail", "spine1@9-5"], "the second time must be later than the first"),
        (["two_vgg19", "two_vgg19"], "names must be unique"),
        (["two_vgg19", "--json", "/no/such/folder/f.json"], "the folder of this file does not exist"),
        (["two_vgg19", "--json", "/"], "/: this is a folder; a file is needed"),
        (["two_vgg19", "--topology", "missing.json"], "missing.json: cannot be read: No such file"),
        (["two_vgg19", "--port", "65536"], "must be 65535 or less"),
        (["two_vgg19", "--seed", "-1"], "must be 0 or more"),
        (["two_vgg19", "--policy", "magic"], "'magic' is no policy; legal: "),
        (["two_vgg19", "--compare", "spray,magic"], "'magic' is no policy; legal: "),
        (
            ["two_vgg19", "--compare", "spray,,dlb"],
            "'spray,,dlb' has an empty name; legal: names of policies",
        ),
        (["two_vgg19", "--compare", "dlb,spray,dlb"], "names dlb twice; legal: names of policies, each once"),
        (["two_vgg19", "--compare", "mltcp-square"], "policy mltcp-square runs in the simulator only"),
    ],
)
def test_bad_input_is_told_in_a_line_with_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["run", *arguments])
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_bad_input_as_a_process() -> None:
    for arguments in (["no_such"], ["two_vgg19", "--port", "65536"]):
        done = run(*arguments)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.endswith("\n")
        assert "Traceback" not in done.stderr


def test_a_scenario_that_does_not_fit_a_topology_names_both_files(tmp_path: Path) -> None:
    small = tmp_path / "small.json"
    small.write_text(
        json.dumps(
            {"kind": "leaf_spine", "leaves": 1, "spines": 0, "hosts_per_leaf": 2}
            | {"host_gbps": 10, "fabric_gbps": 10}
        )
    )
    done = run("two_vgg19", "--topology", small)
    assert done.returncode == 2
    assert re.fullmatch(
        rf"\S*two_vgg19.yaml on {small}: jobs\[0\]\.hosts\[1\]: 'h3' is no host of the fabric; legal: h1, h2\n",
        done.stderr,
    )
