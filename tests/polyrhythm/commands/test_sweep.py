# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm sweep` as a command: real Dask workers, some of which are killed."""

import argparse
import errno
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow.parquet
import pytest

from polyrhythm.commands import sweep as sweep_command

FABRIC = {
    "kind": "leaf_spine", "leaves": 4, "spines": 2, "hosts_per_leaf": 2, "host_gbps": 100, "fabric_gbps": 50,
}  # fmt: skip
PATIENCE_S = 240
"""How long a test waits for what must happen; it fails then."""
SWEEP = """
traces: [batch:12, poisson:12]
topologies: [fabric.json]
policies: [ecmp, polyrhythm]
schedulers: [fifo, dally]
seeds: [1, 2, 3]
hours: 1
lease_s: 600
"""
POINTS = 2 * 2 * 2 * 3


def command(*words: str) -> int:
    parser = argparse.ArgumentParser()
    sweep_command.add_arguments(parser)
    code: int = sweep_command.run(parser.parse_args(words))
    return code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fabric.json").write_text(json.dumps(FABRIC))
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return tmp_path


def test_a_bad_trace_is_named_by_row_and_column_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    head = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n"
    for text, words in (
        (head + "1,8,0,10,vgg19,100\n2,8,-5,10,vgg19,100\n", "row 3, column submit_time"),
        (head + "1,9999,0,10,vgg19,100\n", "row 2, column num_gpu"),
        (head.replace("num_gpu,", "") + "1,0,10,vgg19,100\n", "row 1: no column num_gpu"),
    ):
        (folder / "jobs.csv").write_text(text)
        (folder / "bad.yaml").write_text("traces: [two_vgg19, jobs.csv]\ntopologies: [fabric.json]\n")
        assert command("bad.yaml") == 2
        error = capsys.readouterr().err
        assert words in error
        assert "jobs.csv" in error
        assert error.count("\n") == 1
    assert not (folder / "bad.results").exists()


@pytest.mark.parametrize("address", ["", "scheduler", "bad://x:1", "tcp://scheduler", "tcp://:8786"])
def test_a_cluster_needs_an_address(folder: Path, capsys: pytest.CaptureFixture[str], address: str) -> None:
    assert command(str(folder / "sweep.yaml"), "--cluster", address) == 2
    assert "legal: tcp://HOST:PORT" in capsys.readouterr().err


def test_an_output_folder_that_is_a_file_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(str(folder / "sweep.yaml"), "--out", str(folder / "sweep.yaml")) == 2
    assert capsys.readouterr().err == (
        f"--out: {folder / 'sweep.yaml'}: File exists; legal: a folder that can be written\n"
    )


def test_a_full_disk_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sweep_command, "write_rows", full)
    assert command(str(folder / "sweep.yaml"), "--out", str(folder / "out")) == 1
    said = capsys.readouterr().err
    assert (
        said == f"--out: {folder}/out: No space left on device; make space, and give the same command again\n"
    )


def test_a_job_that_cannot_end_is_named_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time"
    (folder / "long.csv").write_text(f"{header}\n1,2,0,1e15,vgg16,100\n")
    (folder / "long.yaml").write_text("traces: [long.csv]\ntopologies: [fabric.json]\n")
    assert command(str(folder / "long.yaml")) == 2
    assert "long.csv: row 2: job job-1: its 1000000000000000 iterations" in capsys.readouterr().err


def start(folder: Path, out: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "polyrhythm", "sweep", "sweep.yaml", "--out", out, "--json", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def rows(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def tables(out: Path) -> list[bytes]:
    return [(out / f"{name}.parquet").read_bytes() for name in ("points", "jobs")]


@pytest.mark.slow
def test_a_killed_worker_and_a_killed_command_change_no_result(folder: Path) -> None:
    code, out, err = ended(start(folder, "whole", "--workers", "1"))
    assert code == 0, err
    report = json.loads(out)
    assert report["measured"] == report["points"] == POINTS
    table = pyarrow.parquet.read_table(folder / "whole" / "points.parquet")
    assert table.num_rows == POINTS
    assert set(table["policy"].to_pylist()) == {"ecmp", "polyrhythm"}
    assert pyarrow.parquet.read_table(folder / "whole" / "jobs.parquet").num_rows == 12 * POINTS

    # A worker dies while it simulates; the other goes on, and the lost simulations are run again.
    running = start(folder, "worker", "--workers", "2")
    wait_for(lambda: len(rows(folder / "worker" / "rows.jsonl")) >= 1)
    workers = [
        child for child in psutil.Process(running.pid).children() if "spawn_main" in " ".join(child.cmdline())
    ]
    assert len(workers) == 2
    workers[0].kill()
    assert len(rows(folder / "worker" / "rows.jsonl")) < POINTS
    code, _, err = ended(running)
    assert code == 0, err
    assert tables(folder / "worker") == tables(folder / "whole")

    # The whole command dies. The same command continues: the rows that are there stay.
    running = start(folder, "command", "--workers", "2")
    wait_for(lambda: len(rows(folder / "command" / "rows.jsonl")) >= 2)
    running.send_signal(signal.SIGKILL)
    ended(running)
    kept = rows(folder / "command" / "rows.jsonl")
    assert 2 <= len(kept) < POINTS
    assert not (folder / "command" / "points.parquet").exists()
    code, _, err = ended(start(folder, "command", "--workers", "2"))
    assert code == 0, err
    assert set(kept) <= set(rows(folder / "command" / "rows.jsonl"))
    assert tables(folder / "command") == tables(folder / "whole")


@pytest.mark.slow
def test_a_cluster_that_runs_already(folder: Path) -> None:
    (folder / "sweep.yaml").write_text("traces: [two_vgg19]\npolicies: [ecmp, polyrhythm]\n")
    place = folder / "scheduler.json"
    scheduler = subprocess.Popen(
        [
            sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
            "--no-dashboard", "--scheduler-file", str(place),
        ],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    worker = None
    try:
        wait_for(place.exists)
        address = json.loads(place.read_text())["address"]
        worker = subprocess.Popen(
            [
                sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-dashboard", "--no-nanny",
                "--nthreads", "1", "--local-directory", str(folder),
            ],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        code, out, err = ended(start(folder, "out", "--cluster", address))
        assert code == 0, err
        ecmp, ours = json.loads(out)["results"]
        assert ours["mean_slowdown"]["mean"] < 1.05 < ecmp["mean_slowdown"]["mean"]
    finally:
        for process in (worker, scheduler):
            if process is not None:
                process.kill()
                process.wait()
    code, _, err = ended(start(folder, "none", "--cluster", address))
    assert code == 1
    assert f"{address}: no Dask scheduler answers" in err
    assert "Traceback" not in err
