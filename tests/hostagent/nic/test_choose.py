# SPDX-License-Identifier: Apache-2.0
"""The choice of the NIC driver. Which libraries the test machine has makes no difference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import config_text

from hostagent.config import Config, load_config
from hostagent.loop import AgentLoop
from hostagent.nic.choose import open_nics
from polyrhythm_job.verbs import VerbsError


def config_of(tmp_path: Path, nic: str, more: str = "") -> Config:
    file = tmp_path / "agent.toml"
    file.write_text(config_text("h1", "10.0.0.1", nic=nic, more=more))
    return load_config(file)


def no_library() -> list[str]:
    raise VerbsError("libibverbs.so.1 cannot be loaded")


def two_devices() -> list[str]:
    return ["mlx5_0", "mlx5_1"]


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    folder = tmp_path / "sysfs"
    (folder / "mlx5_0" / "ports" / "1").mkdir(parents=True)
    (folder / "mlx5_1" / "ports" / "1").mkdir(parents=True)
    return folder


@pytest.fixture
def loop() -> Iterator[AgentLoop]:
    made = AgentLoop()
    yield made
    made.close()


def test_the_driver_is_chosen_by_what_the_host_can(tmp_path: Path, sysfs: Path, loop: AgentLoop) -> None:
    shim = tmp_path / "shim.so"
    more = f'[sources]\nsysfs = "{sysfs}"\n[nccl]\nshim = "{shim}"\n'
    auto = config_of(tmp_path, 'driver = "auto"', more)
    assert open_nics(auto, loop, no_library)[0].pinning == "none"
    assert open_nics(auto, loop, list)[0].pinning == "none"
    assert open_nics(auto, loop, two_devices)[0].pinning == "verbs"
    shim.touch()
    nic = f'driver = "auto"\nport_map = "{tmp_path}/ports"'
    assert open_nics(config_of(tmp_path, nic, more), loop, two_devices)[0].pinning == "shim"
    for wrong, why in (
        ('driver = "verbs"', "libibverbs.so.1 cannot be loaded"),
        ('driver = "auto"\ndevice = "mlx5_7"', "no RDMA device 'mlx5_7'; legal: mlx5_0, mlx5_1"),
        ('driver = "auto"\ndevice = "mlx5_1"\nport = 2', "mlx5_1 has no port 2"),
        ('driver = "udp"\ninterface = "eth77"', "interface eth77: No such device"),
        ('driver = "shim"\nport_map = "/nowhere/ports"', "no directory /nowhere"),
    ):
        with pytest.raises(ValueError, match=why):
            open_nics(config_of(tmp_path, wrong, more), loop, no_library)


@pytest.mark.parametrize(
    ("device", "devices", "why"),
    [("", [], "finds no RDMA device"), ("mlx5_1", ["mlx5_0"], "finds mlx5_0, not mlx5_1")],
)
def test_verbs_without_the_device_says_why(
    tmp_path: Path, sysfs: Path, loop: AgentLoop, device: str, devices: list[str], why: str
) -> None:
    nic = f'driver = "verbs"\ndevice = "{device}"'
    config = config_of(tmp_path, nic, f'[sources]\nsysfs = "{sysfs}"\n')
    with pytest.raises(ValueError, match=why):
        open_nics(config, loop, lambda: devices)
