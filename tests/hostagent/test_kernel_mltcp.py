# SPDX-License-Identifier: Apache-2.0
"""MLTCP for the kernel's TCP: its eBPF program is compiled, and loaded where the kernel allows it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from agent_rig import command

from hostagent import kernel_mltcp
from hostagent.kernel_mltcp import NAME, KernelMltcpError
from hostagent.nic.mltcp import INTERCEPT, SLOPE
from polyrhythm.cli import main

SOURCES = Path(kernel_mltcp.__file__).parent / "mltcp_bpf"
BURST_BYTES, BURSTS = 100_000, 5
PAUSE_S = 0.05
"""Longer than the gap that separates iterations, however busy the machine is."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("clang") is None or not Path("/usr/include/bpf/bpf_helpers.h").is_file():
        pytest.skip("needs clang and libbpf's headers (apt-get install clang libbpf-dev)")
    folder = tmp_path_factory.mktemp("mltcp")
    done = subprocess.run(
        ["make", "-s", "-C", str(SOURCES), f"BUILD={folder}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / f"{NAME}.bpf.o"


def test_it_compiles_without_a_warning_and_has_the_constants_of_the_nic(program: Path) -> None:
    assert program.read_bytes()[:4] == b"\x7fELF"
    source = (SOURCES / "mltcp_reno.bpf.c").read_text()
    found = {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)\b", source)}
    assert found["SLOPE"] / found["UNIT"] == SLOPE
    assert found["INTERCEPT"] / found["UNIT"] == INTERCEPT


@pytest.mark.slow
@pytest.mark.alone
def test_the_kernel_takes_it_and_a_socket_counts_its_iterations(program: Path) -> None:
    try:
        kernel_mltcp.needs(program)
    except KernelMltcpError as error:
        pytest.skip(str(error))
    if kernel_mltcp.is_loaded():
        pytest.skip(f"{NAME} is in use on this machine")
    with kernel_mltcp.loaded(program):
        assert kernel_mltcp.status() == {"loaded": True, "connections": 0, "iterations": 0}
        # Whoever comes second leaves it to the first.
        with kernel_mltcp.loaded(program):
            pass
        assert kernel_mltcp.is_loaded()
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as made:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAME.encode())
            made.connect(listener.getsockname())
            with listener.accept()[0] as other:
                for _ in range(BURSTS):
                    made.sendall(bytes(BURST_BYTES))
                    left = BURST_BYTES
                    while left:
                        left -= len(other.recv(left))
                    time.sleep(PAUSE_S)
        found = kernel_mltcp.status()
        assert found["connections"] == 1
        assert 1 <= found["iterations"] <= BURSTS
    assert kernel_mltcp.status() == {"loaded": False, "connections": None, "iterations": None}


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(kernel_mltcp, "_BTF", tmp_path / "none")
    with pytest.raises(KernelMltcpError, match="without BTF"):
        kernel_mltcp.needs()
    monkeypatch.setattr(kernel_mltcp, "_BTF", Path(__file__))
    monkeypatch.setattr(kernel_mltcp, "_bpftool", lambda: None)
    with pytest.raises(KernelMltcpError, match="apt-get install bpftool"):
        kernel_mltcp.needs()
    monkeypatch.setattr(kernel_mltcp, "_bpftool", lambda: "bpftool")
    with pytest.raises(KernelMltcpError, match="make mltcp builds it"):
        kernel_mltcp.needs(tmp_path / "none")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(KernelMltcpError, match="root"):
        kernel_mltcp.needs()


def test_a_program_that_the_kernel_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if kernel_mltcp.is_loaded():
        pytest.skip(f"{NAME} is in use on this machine")
    tool = tmp_path / "bpftool"
    tool.write_text(
        "#!/bin/sh\necho 'libbpf: a long log' >&2\necho 'libbpf: it is not allowed' >&2\nexit 1\n"
    )
    tool.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(kernel_mltcp, "_BTF", Path(__file__))
    monkeypatch.setattr(kernel_mltcp, "_bpftool", lambda: str(tool))
    with pytest.raises(KernelMltcpError, match=r"^bpftool struct_ops register: libbpf: it is not allowed$"):
        kernel_mltcp.load(Path(__file__))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["agent", "mltcp", "load"]) == 1
    assert capsys.readouterr().err == (
        "polyrhythm agent mltcp: only root may load an eBPF program; run it as root\n"
    )


def test_the_state_is_shown_to_anybody_and_other_words_are_refused() -> None:
    done = command("mltcp", "status")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["loaded"] is kernel_mltcp.is_loaded()
    done = command("mltcp", "frob")
    assert done.returncode == 2
    assert "mltcp load|unload|status" in done.stderr
