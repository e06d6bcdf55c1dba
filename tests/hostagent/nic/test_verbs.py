# SPDX-License-Identifier: Apache-2.0
"""The verbs driver by ctypes, in a process of its own over the tests' libibverbs and libmlx5."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from agent_rig import ROOT, config_text
from shim_rig import needs_compiler

from hostagent.clock import EventClock
from hostagent.config import Config, load_config
from hostagent.loop import AgentLoop
from hostagent.nic.choose import open_nic
from hostagent.nic.external import ExternalNic
from hostagent.nic.port_map import parse_port_map
from hostagent.nic.udp import NicError

# Creates a queue pair as its owner, drives it to RTS, then moves it by the driver.
OWNER = """
import ctypes, sys
from hostagent.nic.verbs import Verbs, VerbsError
verbs = Verbs()
print(verbs.devices())
library = ctypes.CDLL("libibverbs.so.1")
library.ibv_create_qp.restype = ctypes.c_void_p
library.ibv_modify_qp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
pair = library.ibv_create_qp(None, ctypes.byref(ctypes.c_int(2)))
for state in (1, 2, 3)[: int(sys.argv[1])]:
    attributes = (ctypes.c_int * 64)(state)
    assert library.ibv_modify_qp(pair, attributes, 1) == 0
for port in map(int, sys.argv[2:]):
    try:
        verbs.move(pair, port)
    except (VerbsError, ValueError) as error:
        print(error)
"""


def own(built: Path, log: Path, *arguments: str, **more: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(built), "FAKE_LOG": str(log)}
    done = subprocess.run(
        [sys.executable, "-c", OWNER, *arguments], env={**environment, **more}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_compiler
def test_a_queue_pair_of_this_process_is_moved(built: Path, tmp_path: Path) -> None:
    said = own(built, tmp_path / "log", "3", "50001", "65535")
    assert said == "['mlx5_0']\n"
    assert [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("port")] == [
        "port 1 50001",
        "port 1 65535",
    ]


@needs_compiler
def test_what_cannot_be_moved_says_why(built: Path, tmp_path: Path) -> None:
    assert "Invalid argument" in own(built, tmp_path / "log", "2", "50001")
    assert "source port 80 is outside 49152-65535" in own(built, tmp_path / "log", "3", "80")
    assert "not supported" in own(built, tmp_path / "log", "3", "50001", FAKE_REFUSES_MOVES="1")


def config_of(tmp_path: Path, nic: str, more: str = "") -> Config:
    file = tmp_path / "agent.toml"
    file.write_text(config_text("h1", "10.0.0.1", nic=nic, more=more))
    return load_config(file)


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    folder = tmp_path / "sysfs"
    (folder / "mlx5_0" / "ports" / "1").mkdir(parents=True)
    (folder / "mlx5_1" / "ports" / "1").mkdir(parents=True)
    return folder


def test_the_driver_is_chosen_by_what_the_host_can(tmp_path: Path, sysfs: Path) -> None:
    loop: EventClock = AgentLoop()
    assert isinstance(loop, AgentLoop)
    shim = tmp_path / "shim.so"
    more = f'[sources]\nsysfs = "{sysfs}"\n[nccl]\nshim = "{shim}"\n'
    assert open_nic(config_of(tmp_path, 'driver = "auto"', more), loop).pinning == "none"
    shim.touch()
    nic = f'driver = "auto"\nport_map = "{tmp_path}/ports"'
    assert open_nic(config_of(tmp_path, nic, more), loop).pinning == "shim"
    for wrong, why in (
        ('driver = "verbs"', "libibverbs.so.1 cannot be loaded"),
        ('driver = "auto"\ndevice = "mlx5_7"', "no RDMA device 'mlx5_7'; legal: mlx5_0, mlx5_1"),
        ('driver = "auto"\ndevice = "mlx5_1"\nport = 2', "mlx5_1 has no port 2"),
        ('driver = "udp"\ninterface = "eth77"', "interface eth77: No such device"),
        ('driver = "shim"\nport_map = "/nowhere/ports"', "no directory /nowhere"),
    ):
        with pytest.raises(NicError, match=why):
            open_nic(config_of(tmp_path, wrong, more), loop)
    loop.close()


class Heap:
    """A clock that runs what is due when told."""

    def __init__(self) -> None:
        self.now = 0
        self.due: list[object] = []

    def call_at(self, time_ns: int, callback: object, *args: object) -> None:
        self.due.append(callback)

    def run(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()  # type: ignore[operator]


def test_the_shims_map_follows_the_flows(tmp_path: Path) -> None:
    heap = Heap()
    nic = ExternalNic("shim", "10.0.0.1", heap, tmp_path / "ports")  # type: ignore[arg-type]
    a = nic.open_qp("a/h1>h2", "10.0.0.2", 50001, 26)
    b = nic.open_qp("b/h1>h2", "10.0.0.2", 50002, 26)
    nic.open_qp("a/h1>h3", "10.0.0.3", 50003, 26)
    heap.run()
    assert len(heap.due) == 0

    def ports() -> dict[tuple[str, str], tuple[int, ...]]:
        return dict(parse_port_map((tmp_path / "ports").read_text()))

    pairs = (("10.0.0.1", "10.0.0.2"), ("10.0.0.1", "10.0.0.3"))
    assert ports() == {pairs[0]: (50001, 50002), pairs[1]: (50003,)}
    a.repin(50009, 26)
    b.close()
    heap.run()
    assert ports() == {pairs[0]: (50009,), pairs[1]: (50003,)}
    with pytest.raises(ValueError, match="outside 49152-65535"):
        a.repin(80, 26)
    with pytest.raises(ValueError, match="is open already"):
        nic.open_qp("a/h1>h2", "10.0.0.2", 50001, 26)
