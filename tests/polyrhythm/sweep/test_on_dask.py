# SPDX-License-Identifier: Apache-2.0
"""Servers at the address of --cluster that are no Dask scheduler, and clusters that lose their parts."""

import http.server
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from polyrhythm.cli import main
from polyrhythm.sweep import on_dask
from polyrhythm.sweep.on_dask import check_address

PATIENCE_S = 240
"""How long a test waits for what must happen; it fails then."""
HEAD = [sys.executable, "-m"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sweep.json").write_text(json.dumps({"traces": ["two_vgg19"], "seeds": list(range(1, 9))}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(on_dask, "CONNECT_S", 1)
    return tmp_path


def refused(address: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says of an address, in one line."""
    assert main(["sweep", "sweep.json", "--cluster", address]) == 1
    said = capsys.readouterr()
    assert not said.out
    assert said.err.startswith(f"--cluster: {address}: ")
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.usefixtures("folder")
def test_a_server_that_says_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        said = refused(f"tcp://127.0.0.1:{server.getsockname()[1]}", capsys)
    assert "no Dask scheduler answers within 1 s" in said


@pytest.mark.usefixtures("folder")
def test_a_web_server_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        assert "no Dask scheduler answers" in refused(f"tcp://127.0.0.1:{server.server_port}", capsys)
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("folder")
def test_nobody_at_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert "no Dask scheduler" in refused(f"tcp://127.0.0.1:{unused.getsockname()[1]}", capsys)


@pytest.mark.usefixtures("folder")
def test_tls_without_keys_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "TLS configuration" in refused("tls://127.0.0.1:8786", capsys)


@pytest.mark.parametrize("address", ["tcp://here:0", "tcp://here:65536", "tls://[::1]:99999"])
def test_a_port_is_one_of_those_there_are(address: str) -> None:
    with pytest.raises(ValueError, match="legal: 1 to 65535"):
        check_address(address)


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a Dask scheduler, and its process."""
    place = tmp_path / "scheduler.json"
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(place)]
    process = subprocess.Popen(
        [*HEAD, "distributed.cli.dask_scheduler", *words], stderr=subprocess.DEVNULL, cwd=tmp_path
    )
    wait_for(lambda: place.exists() and place.read_text().endswith("}"))
    yield json.loads(place.read_text())["address"], process
    end(process)


def worker(address: str, folder: Path) -> subprocess.Popen[bytes]:
    words = ["--no-dashboard", "--no-nanny", "--nthreads", "1", "--local-directory", str(folder)]
    return subprocess.Popen(
        [*HEAD, "distributed.cli.dask_worker", address, *words], stderr=subprocess.DEVNULL, cwd=folder
    )


def sweep(address: str, folder: Path, errors: IO[str] | int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*HEAD, "polyrhythm", "sweep", "sweep.json", "--out", "out", "--json", "--cluster", address],
        cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True,
    )  # fmt: skip


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
def test_a_worker_is_no_scheduler(
    folder: Path, scheduler: tuple[str, subprocess.Popen[bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    from distributed import Client

    process = worker(scheduler[0], folder)
    try:
        with Client(scheduler[0], set_as_default=False) as client:
            client.wait_for_workers(1, timeout=PATIENCE_S)
            (address,) = client.nthreads()
        assert "a Dask worker; legal: the scheduler's address" in refused(address, capsys)
    finally:
        end(process)


@pytest.mark.slow
def test_a_cluster_without_a_worker_is_told_and_waited_for(
    folder: Path, scheduler: tuple[str, subprocess.Popen[bytes]]
) -> None:
    with (folder / "said").open("w") as errors:
        running = sweep(scheduler[0], folder, errors)
    wait_for(lambda: (folder / "said").read_text().endswith("\n"))
    assert (folder / "said").read_text() == f"--cluster: {scheduler[0]} has no worker; waiting for one ...\n"
    process = worker(scheduler[0], folder)
    try:
        running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 0
        assert len((folder / "out" / "rows.jsonl").read_text().splitlines()) == 8
    finally:
        end(process)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["scheduler", "command"])
def test_a_stop_is_one_line_and_a_lost_scheduler_another(
    folder: Path, scheduler: tuple[str, subprocess.Popen[bytes]], victim: str
) -> None:
    (folder / "sweep.json").write_text(json.dumps({"traces": ["two_vgg19"], "seeds": list(range(1, 900))}))
    process = worker(scheduler[0], folder)
    rows = folder / "out" / "rows.jsonl"
    try:
        running = sweep(scheduler[0], folder)
        wait_for(lambda: rows.exists() and b"\n" in rows.read_bytes())
        if victim == "scheduler":
            end(scheduler[1])
        else:
            running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=PATIENCE_S)
    finally:
        end(process)
    lines = [line for line in said.splitlines() if not line.startswith("sweep: ")]
    assert lines[0].startswith("stopped after ")
    assert lines[0].endswith(
        "of 899 simulations; out/rows.jsonl has them; the same command continues from there"
    )
    assert lines[1:] == (["--cluster: the cluster is gone"] if victim == "scheduler" else [])
    assert running.returncode == (1 if victim == "scheduler" else 130)
