# SPDX-License-Identifier: Apache-2.0
"""Measure one switch between two pairs of veth: `python -m polyrhythm.bench.wire SWITCH PROGRAM ...`.

The process moves into a new network namespace, which ends with it. The generator keeps a window of frames in
flight. It sends with sendmmsg, and the kernel counts the frames that return, so both take little processor
time from the switch. A frame that does not return in time is lost. Several window sizes are tried, because
switches have different depths; the best one counts.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc
from google.protobuf import text_format

from bmv2.entries import Exact, Lpm, Range, TableEntry

from . import traffic

_CLONE_NEWNET = 0x40000000
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_QDISC_BYPASS = 20
_ETH_P_ALL = 0x0003
_LOST_S = 0.03
_BATCH = 32
_WINDOWS = (48, 128, 512)
_START_S = 30.0
_IN, _OUT = 1, 2


class BenchError(Exception):
    """The measurement is impossible. The message is one line for a person."""


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Msghdr(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint32),
        ("iov", ctypes.POINTER(_Iovec)),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Mmsghdr(ctypes.Structure):
    _fields_ = (("header", _Msghdr), ("length", ctypes.c_uint))


class Generator:
    """Sends frames in turn from one interface, and counts the frames that arrive on another."""

    def __init__(self, frames: list[bytes], out: str, back: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
        self._socket.bind((out, 0))
        self._sink = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        # The kernel also counts frames that the buffer has no room for. Nothing reads the frames.
        self._sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self._sink.bind((back, _ETH_P_ALL))
        self._count = len(frames)
        self._buffers = [ctypes.create_string_buffer(frame, len(frame)) for frame in frames]
        vectors = (_Iovec * self._count)()
        self._messages = (_Mmsghdr * self._count)()
        for number, buffer in enumerate(self._buffers):
            vectors[number].base = ctypes.cast(buffer, ctypes.c_void_p)
            vectors[number].length = len(frames[number])
            self._messages[number].header.iov = ctypes.pointer(vectors[number])
            self._messages[number].header.iovlen = 1
        self._vectors = vectors
        self._next = 0

    def received(self) -> int:
        """The number of frames that have arrived since the last call."""
        packets, _ = struct.unpack("II", self._sink.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        return int(packets)

    def send(self, most: int) -> int:
        """Send up to `count` frames; returns how many the kernel accepted."""
        number = min(most, self._count - self._next)
        first = ctypes.byref(self._messages, self._next * ctypes.sizeof(_Mmsghdr))
        sent: int = self._libc.sendmmsg(self._socket.fileno(), first, number, 0)
        if sent <= 0:
            return 0
        self._next = (self._next + sent) % self._count
        return sent

    def run(self, seconds: float, window: int) -> float:
        """The frames per second that returned, with at most `window` in flight."""
        self.received()
        sent = received = lost = 0
        history: deque[tuple[float, int]] = deque()
        began = now = time.perf_counter()
        while now - began < seconds:
            room = window - (sent - received - lost)
            if room >= min(_BATCH, window):
                sent += self.send(_BATCH)
                history.append((now, sent))
            else:
                time.sleep(0.00005)
            received += self.received()
            now = time.perf_counter()
            while history and now - history[0][0] > _LOST_S:
                lost = max(lost, history.popleft()[1] - received)
        return received / (now - began)


def _leave_namespace() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        raise BenchError(f"no network namespace: {os.strerror(ctypes.get_errno())}")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _connect() -> None:
    """Create two pairs of veth, `g1` to `s1` and `s2` to `g2`. The switch has the ends s1 and s2."""
    for name in ("all", "default"):
        path = Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
        if path.exists():
            path.write_text("1")
    _ip("link", "set", "lo", "up")
    for number in (_IN, _OUT):
        _ip("link", "add", f"g{number}", "type", "veth", "peer", "name", f"s{number}")
        for side in ("g", "s"):
            _ip("link", "set", f"{side}{number}", "up", "promisc", "on")


def _command(switch: str, address: str) -> list[str]:
    """The command line of the embedded switch or of simple_switch_grpc; both are the same."""
    ports = ["-i", f"{_IN}@s{_IN}", "-i", f"{_OUT}@s{_OUT}", "--device-id", "1", "--no-p4"]
    target = ["--", "--grpc-server-addr", address, "--cpu-port", "255", "--priority-queues", "8"]
    if switch == "embedded":
        return [sys.executable, "-m", "polyrhythm", "switch", *ports, *target]
    return [switch, *ports, "-L", "off", *target]


def configure(address: str, program: Path) -> None:
    """Load our program and the entries of the bench by P4Runtime."""
    config = p4r.ForwardingPipelineConfig(p4_device_config=program.read_bytes())
    info = config.p4info
    text_format.Parse(program.with_suffix(".p4info.txtpb").read_text(), info)
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=_START_S)
        stub = p4r_grpc.P4RuntimeStub(channel)
        election = p4r.Uint128(high=0, low=1)
        arbitration = p4r.StreamMessageRequest(
            arbitration=p4r.MasterArbitrationUpdate(device_id=1, election_id=election)
        )
        stop = [False]

        def requests() -> Any:
            yield arbitration
            while not stop[0]:
                time.sleep(0.05)

        stream = stub.StreamChannel(requests())
        next(stream)
        stub.SetForwardingPipelineConfig(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=1,
                election_id=election,
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=config,
            )
        )
        updates = [_update(info, table, entry) for table, entry in traffic.entries([_OUT])]
        stub.Write(p4r.WriteRequest(device_id=1, election_id=election, updates=updates))
        stop[0] = True
        stream.cancel()


def _number(value: int) -> bytes:
    return value.to_bytes(max(1, -(-value.bit_length() // 8)))


def _update(info: Any, table: str, entry: TableEntry) -> Any:
    """An INSERT of an entry, by the names of the P4Info."""
    known = next(t for t in info.tables if t.preamble.name == table)
    action = next(a for a in info.actions if a.preamble.name == entry.action)
    message = p4r.TableEntry(table_id=known.preamble.id, priority=entry.priority)
    for field, value in zip(known.match_fields, entry.match, strict=True):
        match = message.match.add(field_id=field.id)
        if isinstance(value, Exact):
            match.exact.value = _number(value.value)
        elif isinstance(value, Lpm):
            match.lpm.value, match.lpm.prefix_len = _number(value.value), value.prefix_len
        elif isinstance(value, Range):
            match.range.low, match.range.high = _number(value.low), _number(value.high)
    call = message.action.action
    call.action_id = action.preamble.id
    for param, argument in zip(action.params, entry.params, strict=True):
        call.params.add(param_id=param.id, value=_number(argument))
    return p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=message))


def _cpu_s(pid: int) -> float:
    """The processor time of a process with all its threads, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(switch: str, program: Path, payload: int, runs: int, seconds: float) -> dict[str, Any]:
    """Start a switch, configure it and measure it."""
    _leave_namespace()
    _connect()
    address = "127.0.0.1:9559"
    process = subprocess.Popen(
        _command(switch, address), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        try:
            configure(address, program)
        except (grpc.RpcError, grpc.FutureTimeoutError) as error:
            raise BenchError(f"{switch} does not answer P4Runtime: {error}") from None
        generator = Generator(traffic.frames(payload), f"g{_IN}", f"g{_OUT}")
        if generator.run(1.0, min(_WINDOWS)) == 0:
            raise BenchError(f"{switch} forwards nothing")
        best = max(_WINDOWS, key=lambda window: generator.run(min(seconds, 1.0), window))
        rates, cpu = [], []
        for _ in range(runs):
            used = _cpu_s(process.pid)
            rates.append(generator.run(seconds, best))
            cpu.append((_cpu_s(process.pid) - used) / (rates[-1] * seconds) * 1e6)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return {
        "pps": round(statistics.median(rates)),
        "cpu_us": round(statistics.median(cpu), 3),
        "window": best,
    }


def main() -> int:
    """Measure as the arguments say, and print the result as one JSON object."""
    switch, program, payload, runs, seconds = sys.argv[1:]
    try:
        print(json.dumps(measure(switch, Path(program), int(payload), int(runs), float(seconds))))
    except BenchError as error:
        print(json.dumps({"reason": str(error)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
