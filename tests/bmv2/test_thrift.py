# SPDX-License-Identifier: Apache-2.0
"""BMv2's queue rates by Thrift: what goes on the wire, what comes back, and a real switch where there is one."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmv2.launcher import BMV2, speaks_thrift
from bmv2.thrift import QueueControl, ThriftError

# set_egress_priority_queue_rate(port=3, priority=6, rate=2888), sequence 1, by Thrift's specification of its strict
# binary protocol; the method's name behind its service's, as multiplexed servers want it.
RATE_CALL = (
    struct.pack(">Ii", 0x80010001, 44)
    + b"simple_switch:set_egress_priority_queue_rate"
    + bytes.fromhex("00000001 08 0001 00000003 08 0002 00000006 0a 0003 0000000000000b48 00".replace(" ", ""))
)
NAME = struct.pack(">i", 4) + b"name"


def reply(kind: int, body: bytes, sequence: int = 1) -> bytes:
    return struct.pack(">I", 0x80010000 | kind) + NAME + struct.pack(">i", sequence) + body


def asked(answer: bytes) -> tuple[QueueControl, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    theirs.sendall(answer)
    theirs.shutdown(socket.SHUT_WR)
    return QueueControl(ours), theirs


def test_a_rate_goes_out_as_thrift_has_it() -> None:
    control, theirs = asked(reply(2, struct.pack(">bhi", 8, 0, 0) + b"\0"))
    control.set_rate(3, 6, 2888)
    assert theirs.recv(1000) == RATE_CALL
    control.close()
    theirs.close()


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (reply(2, struct.pack(">bhi", 8, 0, 7) + b"\0"), "refused with 7"),
        (
            reply(3, struct.pack(">bhi", 11, 1, 5) + b"no go\x08\0\x02\0\0\0\x01\0"),
            "set_egress_queue_depth: no go",
        ),
        (reply(2, struct.pack(">bhi", 8, 0, 0) + b"\0", sequence=9), "none of this call"),
        (b"", "ended the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is none of this service"),
    ],
)
def test_an_answer_that_is_no_yes_is_told(answer: bytes, complaint: str) -> None:
    control, theirs = asked(answer)
    with pytest.raises(ThriftError, match=complaint):
        control.set_depth(1, 256)
    control.close()
    theirs.close()


@pytest.fixture
def real(tmp_path: Path) -> Iterator[int]:
    """The Thrift port of a real simple_switch_grpc."""
    bmv2 = shutil.which(BMV2)
    if bmv2 is None or not speaks_thrift(bmv2):
        pytest.skip("no simple_switch_grpc with Thrift on PATH")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [bmv2, "--device-id", "1", "--no-p4", "--thrift-port", str(port), "--", "--grpc-server-addr",
         f"unix:{tmp_path}/p4", "--priority-queues", "8"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    yield port
    process.kill()
    process.wait()


def test_a_real_switch_takes_rates_and_depths(real: int) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", real), 5)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            threading.Event().wait(0.1)
    control = QueueControl(connection)
    for queue in range(8):
        control.set_rate(1, queue, 2888)
    control.set_depth(1, 256)
    control.close()
