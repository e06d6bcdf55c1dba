# SPDX-License-Identifier: Apache-2.0
"""Whether BMv2 takes a program that our server refuses."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterable

import grpc

from polyrhythm.bench.conformance.programs import Program
from polyrhythm.bench.conformance.session import DEVICE_ID, RefusedError, Session

_START_S = 30.0


def bmv2_accepts(binary: str, programs: Iterable[Program]) -> set[str]:
    """The names of the programs that simple_switch_grpc takes; a fresh process for each, for it may end."""
    return {program.name for program in programs if _accepts(binary, program)}


def _accepts(binary: str, program: Program) -> bool:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [binary, "--no-p4", "--device-id", str(DEVICE_ID), "-L", "off"]
    command += ["--", "--grpc-server-addr", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"127.0.0.1:{port}"
        if not _listens(port):
            return False
        with Session(address) as session:
            session.push(program)
    except (RefusedError, grpc.RpcError):
        return False
    finally:
        process.kill()
        process.wait()
    return True


def _listens(port: int) -> bool:
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.1)
    return False
