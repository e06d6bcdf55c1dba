# SPDX-License-Identifier: Apache-2.0
"""MLTCP for the kernel's TCP: `polyrhythm agent mltcp` loads and unloads the eBPF congestion control.

The program is hostagent/mltcp_bpf/mltcp_reno.bpf.c; `make mltcp` builds it. bpftool loads it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAME = "mltcp_reno"
BUILT = Path(__file__).parent / "mltcp_bpf" / "build" / f"{NAME}.bpf.o"
BPFTOOL = "bpftool"
_BTF = Path("/sys/kernel/btf/vmlinux")
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_SUMS = "mltcp_sums"


class KernelMltcpError(RuntimeError):
    """It cannot be loaded or unloaded here. The message is one line and says why."""


def needs(program: Path = BUILT) -> None:
    """Check that this machine and this user can load `program`.

    Raises:
        KernelMltcpError: they cannot; the message says what is missing.
    """
    if os.geteuid() != 0:
        raise KernelMltcpError("only root may load an eBPF program; run it as root")
    if not _BTF.is_file():
        raise KernelMltcpError(f"no {_BTF}: the kernel was built without BTF (CONFIG_DEBUG_INFO_BTF)")
    if _bpftool() is None:
        raise KernelMltcpError(f"not on PATH: {BPFTOOL}; on Debian: apt-get install {BPFTOOL}")
    if not program.is_file():
        raise KernelMltcpError(
            f"no {program}: make mltcp builds it, with clang and libbpf's headers; on Debian: apt-get "
            "install clang libbpf-dev"
        )


def is_loaded() -> bool:
    """Whether sockets may choose it."""
    return NAME in _AVAILABLE.read_text(encoding="ascii").split()


def load(program: Path = BUILT) -> None:
    """Load it, if it is not loaded. It stays until `unload`.

    Raises:
        KernelMltcpError: the kernel refuses it, or something is missing.
    """
    needs(program)
    if not is_loaded():
        _run("struct_ops", "register", str(program))
        if not is_loaded():
            raise KernelMltcpError(f"{BPFTOOL} has loaded {program}, and the kernel does not offer {NAME}")


def unload() -> None:
    """Unload it, if it is loaded. Connections that use it keep it to their end.

    Raises:
        KernelMltcpError: the kernel refuses, or bpftool is missing.
    """
    if is_loaded():
        _run("struct_ops", "unregister", "name", NAME)


@contextmanager
def loaded(program: Path = BUILT) -> Iterator[None]:
    """Load it for a while, unless somebody else has."""
    there = is_loaded()
    load(program)
    try:
        yield
    finally:
        if not there:
            unload()


def status() -> dict[str, Any]:
    """Whether it is loaded; and the connections that have begun with it and their iterations, None where the
    kernel does not tell this user.
    """
    found: dict[str, Any] = {"loaded": is_loaded(), "connections": None, "iterations": None}
    if found["loaded"] and os.geteuid() == 0 and _bpftool() is not None:
        cells = json.loads(_run("-j", "map", "dump", "name", _SUMS))
        values = [cell["formatted"]["value"] for cell in cells]
        found["connections"], found["iterations"] = values[:2]
    return found


def _bpftool() -> str | None:
    # Debian has it in /usr/sbin, which is not on the PATH of every user.
    return shutil.which(BPFTOOL) or shutil.which(BPFTOOL, path="/usr/sbin:/sbin")


def _run(*words: str) -> str:
    tool = _bpftool()
    if tool is None:
        raise KernelMltcpError(f"not on PATH: {BPFTOOL}; on Debian: apt-get install {BPFTOOL}")
    done = subprocess.run([tool, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).strip().splitlines() if line.strip()]
        raise KernelMltcpError(f"{BPFTOOL} {' '.join(words[:2])}: {lines[-1] if lines else 'it failed'}")
    return done.stdout
