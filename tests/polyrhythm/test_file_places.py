# SPDX-License-Identifier: Apache-2.0
"""`config check` looks for the sockets, folders and files that a configuration names; `--keys-only` does not."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from polyrhythm.cli import main
from topo.generate import leaf_spine
from topo.jsonio import topology_to_json

Said = pytest.CaptureFixture[str]


def agent_file(folder: Path, **keys: str) -> Path:
    """A legal agent.toml; `keys` are lines of its sections."""
    sections = {
        "agent": f'host = "h1"\nip = "10.0.0.1"\nsocket = "{folder}/agent.sock"',
        "nic": 'driver = "none"',
    }
    for name, lines in keys.items():
        sections[name] = f"{sections.get(name, '')}\n{lines}"
    path = folder / "agent.toml"
    path.write_text("\n".join(f"[{name}]\n{lines}" for name, lines in sections.items()) + "\n")
    return path


def mistakes(path: Path, capsys: Said) -> list[str]:
    """What `config check` says is missing; it agrees with its exit code, and --keys-only finds nothing."""
    assert main(["config", "check", "--keys-only", str(path)]) == 0
    capsys.readouterr()
    code = main(["config", "check", str(path)])
    out, err = capsys.readouterr()
    assert (code == 2) is bool(err) is (not out)
    return err.splitlines()


def test_all_that_is_missing_is_named_with_its_line(tmp_path: Path, capsys: Said) -> None:
    path = agent_file(
        tmp_path,
        agent=f'hosts_file = "{tmp_path}/hosts"\ncontroller = "unix:{tmp_path}/none.sock"',
        nic='interface = "eth99"\ndevice = "mlx5_99"',
        nccl=f'shim = "{tmp_path}/shim.so"',
        sources=f'inspector_dir = "{tmp_path}/inspector"',
        tls=f'ca = "{tmp_path}/ca.pem"',
        training=f'records = "{tmp_path}/none/h1.jsonl"',
    )
    said = mistakes(path, capsys)
    found = [line.removeprefix(f"{path}:").split(": ")[1] for line in said]
    assert found == [
        "agent.controller", "agent.hosts_file", "nic.interface", "nic.device", "nccl.shim",
        "sources.inspector_dir", "training.records", "tls.ca",
    ]  # fmt: skip
    assert said[0] == (
        f"{path}:6: agent.controller: {tmp_path}/none.sock: No such file or directory; legal: a Unix socket "
        "(start the controller)"
    )
    assert "lo" in said[2].partition("legal: ")[2]


def test_what_is_there_is_legal(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "hosts").write_text("10.0.0.2 h2\n")
    with socket.socket(socket.AF_UNIX) as controller:
        controller.bind(str(tmp_path / "c.sock"))
        told = f'hosts_file = "{tmp_path}/hosts"\ncontroller = "unix:{tmp_path}/c.sock"'
        assert mistakes(agent_file(tmp_path, agent=told, nic='interface = "lo"'), capsys) == []


def test_a_folder_that_is_a_file_or_not_writable(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "file").touch()
    path = agent_file(tmp_path)
    path.write_text(path.read_text().replace("/agent.sock", "/file/agent.sock"))
    assert "is no folder" in mistakes(path, capsys)[0]
    path.write_text(path.read_text().replace(f"{tmp_path}/file", "/proc"))
    if os.getuid() != 0:
        assert "may not write to /proc" in mistakes(path, capsys)[0]


def test_sockets_of_switches_and_certificates_of_a_fabric(tmp_path: Path, capsys: Said) -> None:
    topology = leaf_spine(1, 1, 1, host_bps=10**8, fabric_bps=10**8)
    description = {
        "name": "x", "clock": "host", "control_delay_ns": 0, "topology": topology_to_json(topology),
        "switches": {
            s.name: {"address": f"unix:{tmp_path}/{s.name}.sock", "device_id": s.device_id}
            for s in topology.switches
        },
        "ecn": {"kmin": 5, "kmax": 50, "pmax": 0.1},
    }  # fmt: skip
    path = tmp_path / "fabric.json"
    path.write_text(json.dumps(description, indent=1))
    assert len(mistakes(path, capsys)) == 2
    (tmp_path / "leaf1.sock").touch()
    with socket.socket(socket.AF_UNIX) as switch:
        switch.bind(str(tmp_path / "spine1.sock"))
        (said,) = mistakes(path, capsys)
    assert "switches.leaf1.address: " in said
    assert "is no socket" in said
