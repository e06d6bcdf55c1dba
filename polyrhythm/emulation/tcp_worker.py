# SPDX-License-Identifier: Apache-2.0
"""A worker of a job with `sender: kernel-tcp`: it stands for the GPUs of its host and sends over kernel TCP.

A program of its own that needs nothing but `polyrhythm_job`: it runs under the socket shim and reports to the
agent of its host, as any training code does. Its argument is a file with its job, see `tcp_workers`. It
writes the same records as an agent with emulated training.
"""

import fcntl
import json
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyrhythm_job import polyrhythm_job

_LOOK_S = 0.02
_CONNECT_S = 120.0
_PIECE = bytes(1 << 16)
_SENT_S = 0.001
"""How often the kernel is asked whether all bytes are acknowledged."""
_SIOCOUTQ = 0x5411
_SO_MAX_PACING_RATE = 47
_RETRANSMITS_AT, _MARKS_AT = 100, 196
"""Where tcp_info has tcpi_total_retrans and tcpi_delivered_ce (linux/tcp.h)."""
_NUMBER = struct.Struct("!I")
_PACE = struct.Struct("=I")


class TcpWorker:
    """The worker that `job` describes: its connections are open when it is made."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        own = job["own"]
        self._out: list[tuple[int, socket.socket]] = []
        self._in: dict[socket.socket, int] = {}
        self._owed: dict[socket.socket, int] = {}
        arriving = [n for n, (_, dst) in enumerate(job["flows"]) if dst == own]
        at = job["addresses"][own], job["port"]
        self._family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        with socket.create_server(at, family=self._family, backlog=max(1, len(arriving))) as listener:
            self._control(listener)
            for number, (src, dst) in enumerate(job["flows"]):
                if src == own:
                    self._out.append((number, self._connected(number, job["addresses"][dst])))
            for _ in arriving:
                made = listener.accept()[0]
                self._in[made] = _NUMBER.unpack(made.recv(_NUMBER.size, socket.MSG_WAITALL))[0]
                self._owed[made] = 0

    def run(self) -> None:
        """Iterate until the job leaves."""
        job = self._job
        jitter = random.Random(f"{job['seed']}/{job['name']}/{job['rank']}")
        with Path(job["records"]).open("a", encoding="utf-8", buffering=1) as records, polyrhythm_job(
            job["name"], job["hosts"], rank=job["rank"], model=job["model"], gpus=job["gpus"],
            flops_per_iteration=job["flops"], bytes_per_flow=job["bytes_per_flow"],
            period_ms=job["period_ms"],
            phases_ms=job["phases_ms"],
        ) as reported:  # fmt: skip
            time.sleep(max(0, job["start_ns"] - time.monotonic_ns()) / 1e9)
            began, index = time.monotonic_ns(), 0
            while not job["iterations"] or index < job["iterations"]:
                if job["stop_ns"] and time.monotonic_ns() >= job["stop_ns"]:
                    return
                before, held_before = self._counts(), reported.held_ns
                spans, sizes, compute = [], [], 0
                for phase in job["phases"]:
                    start = time.monotonic_ns()
                    sizes.append(self._communicate(phase))
                    end = time.monotonic_ns()
                    spans.append((start - began, end - began))
                    reported.mark(start, end)
                    down = phase["down_ns"] * jitter.uniform(1 - job["jitter"], 1 + job["jitter"])
                    compute += round(down)
                    time.sleep(down / 1e9)
                reported.step()
                ended = time.monotonic_ns()
                retransmits, marks = (a - b for a, b in zip(self._counts(), before, strict=True))
                record = {
                    "job": job["name"], "rank": job["rank"], "index": index, "start_ns": began,
                    "end_ns": ended,
                    "communication_ns": sum(end - start for start, end in spans), "bytes_sent": sum(sizes),
                    "ecn_marks": marks, "retransmits": retransmits, "held_ns": reported.held_ns - held_before,
                    "phases": spans, "wire_bytes": sizes, "compute_ns": compute,
                    "flops": job["flops"] / len(job["hosts"]),
                }  # fmt: skip
                records.write(json.dumps(record) + "\n")
                began, index = ended, index + 1

    def _control(self, made: socket.socket) -> None:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._job["congestion_control"].encode())

    def _connected(self, number: int, address: str) -> socket.socket:
        """A connection for a flow, as soon as the far end listens."""
        deadline = time.monotonic() + _CONNECT_S
        while True:
            made = socket.socket(self._family)
            self._control(made)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                made.connect((address, self._job["port"]))
                made.sendall(_NUMBER.pack(number))
                return made
            except OSError:
                made.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_S)

    def _communicate(self, phase: dict[str, Any]) -> int:
        """Send and receive the bytes of an Up phase. Returns the bytes sent."""
        left = {made: phase["bytes"][number] for number, made in self._out}
        whole: int = sum(left.values())
        for made in left:
            # The kernel's word for no bound is the greatest figure.
            pace = _PACE.pack(min(phase["rate_bps"] // 8 or 0xFFFFFFFF, 0xFFFFFFFF))
            made.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, pace)
        for made, number in self._in.items():
            self._owed[made] += phase["bytes"][number]
        while any(left.values()) or any(owed > 0 for owed in self._owed.values()):
            sending = [made for made, size in left.items() if size]
            # Bytes of the next phase may be there already, so every connection is read.
            readable, writable, _ = select.select(list(self._in), sending, ())
            for made in readable:
                got = len(made.recv(len(_PIECE)))
                if not got:
                    raise ConnectionError("another worker of the job has ended")
                self._owed[made] -= got
            for made in writable:
                left[made] -= made.send(_PIECE[: left[made]], socket.MSG_DONTWAIT)
        while any(_unacknowledged(made) for made in left):
            time.sleep(_SENT_S)
        return whole

    def _counts(self) -> tuple[int, int]:
        """Repeated segments of the connections that send, and acknowledgements that say of a mark."""
        found = [made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256) for _, made in self._out]
        return _sum(found, _RETRANSMITS_AT), _sum(found, _MARKS_AT)


def _sum(infos: Sequence[bytes], at: int) -> int:
    return sum(int.from_bytes(info[at : at + 4], sys.byteorder) for info in infos)


def _unacknowledged(made: socket.socket) -> int:
    (waiting,) = struct.unpack("i", fcntl.ioctl(made, _SIOCOUTQ, bytes(4)))
    return int(waiting)


def main(file: str) -> None:
    """Wait for the start, then run the worker of a file."""
    job = json.loads(Path(file).read_text(encoding="utf-8"))
    start = Path(job["start"])
    print("ready", flush=True)
    while not (start.exists() and (text := start.read_text(encoding="utf-8")).endswith("\n")):
        time.sleep(_LOOK_S)
    job["start_ns"] += int(text)
    job["stop_ns"] += int(text) if job["stop_ns"] else 0
    try:
        TcpWorker(job).run()
    except ConnectionError:
        # A job that leaves at a fixed time leaves in mid-iteration, one worker before the other.
        if not job["stop_ns"]:
            raise


if __name__ == "__main__":
    main(sys.argv[1])
