# SPDX-License-Identifier: Apache-2.0
"""Workers of jobs over the kernel's TCP: what a scenario may say of them, and two workers on loopback."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from agent_rig import PATIENCE_S, environment

from polyrhythm.emulation import tcp_worker, tcp_workers
from polyrhythm.emulation.tcp_workers import check_kernel
from polyrhythm.fabric.jobs import check_embedded
from polyrhythm.scenario import Scenario, load_scenario
from polyrhythm_files import ConfigError
from topo.mininet import MininetError

BYTES, ITERATIONS = 300_000, 3


def scenario(folder: Path, **job: Any) -> Scenario:
    file = folder / "tcp.json"
    fabric = {
        "kind": "leaf_spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 1, "host_gbps": 50, "fabric_gbps": 50,
    }  # fmt: skip
    usual = {
        "name": "a", "model": "VGG19", "gpus": 2, "hosts": ["h1", "h2"], "period_ms": 400, "sender": "kernel-tcp",
        "phases": [{"start_ms": 0, "end_ms": 120, "gbps": 50}],
    }  # fmt: skip
    file.write_text(json.dumps({"name": "tcp", "fabric": fabric, "jobs": [{**usual, **job}]}))
    return load_scenario(file)


def test_the_congestion_control_is_reno_unless_it_is_named(tmp_path: Path) -> None:
    assert scenario(tmp_path).workloads[0].congestion_control == "reno"
    assert scenario(tmp_path, congestion_control="cubic").workloads[0].congestion_control == "cubic"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sender", "kernel-udp"),
        ("congestion_control", "Reno; rm"),
        ("increase_timer", 2),
        ("silent", True),
        ("announces", "nothing"),
        ("pcie", {"link": "x", "gbps": 1}),
    ],
)
def test_what_does_not_go_with_it_is_refused(key: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"tcp\.json:\d+: jobs\[0\]\.{key}: .*legal"):
        scenario(tmp_path, **{key: value})


def test_a_congestion_control_means_nothing_to_a_nic(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="means nothing with sender reno; legal: kernel-tcp"):
        scenario(tmp_path, sender="reno", congestion_control="reno")


def test_other_fabrics_and_other_kernels_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="embedded fabric have no kernel; legal: --fabric mininet"):
        check_embedded(scenario(tmp_path))
    monkeypatch.setattr(tcp_workers, "BUILT_SOCKET_SHIM", tmp_path / "none")
    with pytest.raises(MininetError, match="make shim"):
        check_kernel(scenario(tmp_path))
    monkeypatch.setattr(tcp_workers, "BUILT_SOCKET_SHIM", Path(__file__))
    check_kernel(scenario(tmp_path))
    with pytest.raises(MininetError, match=r"no congestion control fast; legal: .*reno"):
        check_kernel(scenario(tmp_path, congestion_control="fast"))


def test_two_workers_exchange_what_the_job_says_and_record_it(tmp_path: Path) -> None:
    """Without shim and agent, as when both are gone."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    addresses = {"h1": "127.0.0.1", "h2": "127.0.0.2"}
    start = tmp_path / "start"
    running = []
    for rank, own in enumerate(addresses):
        job = {
            "name": "a", "model": "m", "gpus": 2, "hosts": list(addresses), "rank": rank, "own": own,
            "flows": [["h1", "h2"], ["h2", "h1"]], "addresses": addresses, "port": port, "flops": 8.0,
            "congestion_control": "reno", "bytes_per_flow": BYTES, "period_ms": 10.0, "phases_ms": [[0, 5]],
            "phases": [
                {"bytes": [BYTES, 2 * BYTES], "rate_bps": 0, "down_ns": 2_000_000},
                {"bytes": [0, 1], "rate_bps": 10**9, "down_ns": 0},
            ],
            "jitter": 0.1, "seed": 1, "start": str(start), "start_ns": 0, "stop_ns": 0,
            "iterations": ITERATIONS, "records": str(tmp_path / f"{own}.jsonl"),
        }  # fmt: skip
        file = tmp_path / f"{own}.json"
        file.write_text(json.dumps(job))
        running.append(
            subprocess.Popen(
                [sys.executable, tcp_worker.__file__, str(file)], stdout=subprocess.PIPE,
                env={**environment(), "POLYRHYTHM_AGENT": str(tmp_path / "none")},
            )
        )  # fmt: skip
    start.write_text(f"{time.monotonic_ns()}\n")
    for process in running:
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    for own, sent in (("h1", [BYTES, 0]), ("h2", [2 * BYTES, 1])):
        records = [json.loads(line) for line in (tmp_path / f"{own}.jsonl").read_text().splitlines()]
        assert [record["index"] for record in records] == list(range(ITERATIONS))
        for record, following in zip(records, [*records[1:], None], strict=True):
            assert record["wire_bytes"] == sent
            assert record["bytes_sent"] == sum(sent)
            assert record["flops"] == 4.0
            spans = record["phases"]
            assert 0 <= spans[0][0] < spans[0][1] <= spans[1][0] <= spans[1][1]
            assert record["compute_ns"] >= 1_800_000
            assert following is None or following["start_ns"] == record["end_ns"]
