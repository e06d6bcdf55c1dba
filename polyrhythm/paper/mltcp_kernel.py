# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper mltcp --kernel`: two jobs on one link over the kernel's TCP, with Reno and MLTCP-Reno.

Two senders and a receiver are network namespaces behind a router, whose link to the receiver is the
bottleneck: a token bucket with a short drop-tail queue, and no ECN. All that is measured is the kernel's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from hostagent.kernel_mltcp import NAME, KernelMltcpError, loaded, needs
from polyrhythm.progress import Bar

TOOLS = {"ip": "iproute2", "tc": "iproute2", "ethtool": "ethtool", "sysctl": "procps"}
CONTROLS = ("reno", NAME)
NEAR = 1.1
"""An iteration up to so many times as long as alone counts as undisturbed."""
SETTLED = 5
_OFFLOADS = ("rx", "tx", "sg", "tso", "gso", "gro")
_SENDERS = ("a", "b")
_PORT = 5001


@dataclass(frozen=True, slots=True)
class TwoJobs:
    """The two jobs are alike: `sent_bytes` in each iteration, then a pause of `compute_ms`. The second begins
    `offset_ms` later. The link carries `rate_bps`, its queue `queue_packets` full packets.
    """

    iterations: int
    rate_bps: int = 50_000_000
    queue_packets: int = 20
    sent_bytes: int = 2_400_000
    compute_ms: float = 600.0
    offset_ms: float = 80.0


_PROGRAM = f"""
PORT = {_PORT}
import json, socket, sys, time
role, address, control, count, size, compute, delay = json.loads(sys.argv[1])
if role == "receive":
    made = socket.create_server((address, PORT)).accept()[0]
    for _ in range(count):
        left = size
        while left:
            left -= len(made.recv(min(left, 1 << 16)))
        made.sendall(b"x")
else:
    made = socket.socket()
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    while made.connect_ex((address, PORT)):
        time.sleep(0.05)
    print("ready", flush=True)
    sys.stdin.readline()
    time.sleep(delay)
    began = time.monotonic()
    for _ in range(count):
        made.sendall(bytes(size))
        made.recv(1)
        time.sleep(compute)
        now = time.monotonic()
        print((now - began) * 1e3, flush=True)
        began = now
"""


def check_needs() -> None:
    """Check that the experiment can run here.

    Raises:
        KernelMltcpError: it cannot; the message says what is missing.
    """
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        packages = " ".join(dict.fromkeys(TOOLS[tool] for tool in missing))
        raise KernelMltcpError(f"not on PATH: {', '.join(missing)}; on Debian: apt-get install {packages}")
    needs()


def measure(jobs: TwoJobs) -> dict[str, Any]:
    """The iteration times in ms of both jobs, alone and together, with each congestion control.

    Raises:
        KernelMltcpError: the namespaces cannot be built, or a program failed.
    """
    found: dict[str, Any] = {}
    with loaded(), _network(jobs) as network, Bar("kernel TCP", 1 + len(CONTROLS), 60.0, "runs") as bar:
        alone = network.run("reno", jobs, _SENDERS[:1], 1 + SETTLED)[0]
        # The first iteration begins with an empty window history.
        alone_ms = fmean(alone[1:])
        bar.step(1)
        for done, control in enumerate(CONTROLS):
            found[control] = summary(network.run(control, jobs, _SENDERS, jobs.iterations), alone_ms)
            bar.step(2 + done)
    return {
        "rate_mbps": jobs.rate_bps / 1e6,
        "queue_packets": jobs.queue_packets,
        "sent_bytes": jobs.sent_bytes,
        "compute_ms": jobs.compute_ms,
        "offset_ms": jobs.offset_ms,
        "alone_ms": round(alone_ms, 1),
        "controls": found,
        "speedup_mean": round(found["reno"]["mean_ms"] / found[NAME]["mean_ms"], 3),
    }


def summary(times_ms: Sequence[Sequence[float]], alone_ms: float) -> dict[str, Any]:
    """The figures of one congestion control. `times_ms`: the iterations of each job.

    `interleaved_after` is the first iteration from which none of either job is over 10 % longer than alone;
    null if those are fewer than five.
    """
    longer = [max(both) for both in zip(*times_ms, strict=True)]
    after = max((k + 1 for k, t in enumerate(longer) if t > NEAR * alone_ms), default=0)
    return {
        "interleaved_after": after if after <= len(longer) - SETTLED else None,
        "mean_ms": round(fmean(t for job in times_ms for t in job), 1),
        "settled_ms": round(fmean(longer[-SETTLED:]), 1),
        "iterations_ms": [[round(t, 1) for t in job] for job in times_ms],
    }


def to_text(report: Mapping[str, Any]) -> str:
    """The report as text."""
    lines = [
        f"two jobs on one link of {report['rate_mbps']:g} Mbit/s with a drop-tail queue of "
        f"{report['queue_packets']} packets, over the TCP of this kernel; alone {report['alone_ms']} ms",
        f"{'iteration':>10}" + "".join(f"{c + ' ' + j:>14}" for c in report["controls"] for j in _SENDERS),
    ]
    columns = [job for control in report["controls"].values() for job in control["iterations_ms"]]
    for number, row in enumerate(zip(*columns, strict=True)):
        lines.append(f"{number:>10}" + "".join(f"{t:>14}" for t in row))
    for name, control in report["controls"].items():
        after = control["interleaved_after"]
        words = "not interleaved" if after is None else f"interleaved after iteration {after}"
        lines.append(f"{name}: {words}, mean {control['mean_ms']} ms, at last {control['settled_ms']} ms")
    return "\n".join(lines)


class _Network:
    """The namespaces, by name."""

    def __init__(self, spaces: Mapping[str, str]) -> None:
        self._spaces = spaces

    def run(self, control: str, jobs: TwoJobs, senders: Sequence[str], iterations: int) -> list[list[float]]:
        """The iteration times in ms of a job for each sender, which run together.

        Raises:
            KernelMltcpError: a program failed.
        """
        with ExitStack() as ending:

            def start(space: str, *words: object) -> subprocess.Popen[str]:
                program = [sys.executable, "-I", "-S", "-c", _PROGRAM, json.dumps(words)]
                made = subprocess.Popen(
                    _inside(self._spaces[space], *program),
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )  # fmt: skip
                ending.callback(made.communicate)
                ending.callback(made.kill)
                return made

            common = control, iterations, jobs.sent_bytes, jobs.compute_ms / 1e3
            every = []
            for number, sender in enumerate(senders):
                to = _address(f"to_{sender}")
                start("receiver", "receive", to, *common, 0)
                every.append(start(sender, "send", to, *common, number * jobs.offset_ms / 1e3))
            for made in every:
                assert made.stdout is not None
                made.stdout.readline()
            for made in every:
                if made.stdin is not None and made.poll() is None:
                    made.stdin.write("\n")
                    made.stdin.flush()
            times = []
            for made in every:
                said, errors = made.communicate()
                if made.returncode:
                    last = (errors.strip().splitlines() or ["it said nothing"])[-1]
                    raise KernelMltcpError(f"a sender with {control} ended with {made.returncode}: {last}")
                times.append([float(line) for line in said.split()])
        return times


_ADDRESSES = {"a": "10.77.1.2", "b": "10.77.2.2", "to_a": "10.77.3.2", "to_b": "10.77.3.3"}


def _address(name: str) -> str:
    return _ADDRESSES[name]


@contextmanager
def _network(jobs: TwoJobs) -> Iterator[_Network]:
    tag = f"pm{os.getpid()}"
    spaces = {name: f"{tag}{name[0]}" for name in (*_SENDERS, "mid", "receiver")}
    with ExitStack() as ending:
        for space in spaces.values():
            _command("ip", "netns", "add", space)
            ending.callback(_command, "ip", "netns", "del", space)
        for number, name in enumerate((*_SENDERS, "receiver"), start=1):
            end, port = ("eth0", "netns", spaces[name]), (f"p{number}", "netns", spaces["mid"])
            _command("ip", "link", "add", *end, "type", "veth", "peer", "name", *port)
            for space, device in ((spaces[name], "eth0"), (spaces["mid"], f"p{number}")):
                _command(
                    *_inside(space, "ethtool", "-K", device, *(w for o in _OFFLOADS for w in (o, "off")))
                )
                _command("ip", "-n", space, "link", "set", device, "up")
            _command("ip", "-n", spaces["mid"], "address", "add", f"10.77.{number}.1/24", "dev", f"p{number}")
            for address in _ADDRESSES.values():
                if address.startswith(f"10.77.{number}."):
                    _command("ip", "-n", spaces[name], "address", "add", f"{address}/24", "dev", "eth0")
            _command("ip", "-n", spaces[name], "route", "add", "default", "via", f"10.77.{number}.1")
        _command(*_inside(spaces["mid"], "sysctl", "-qw", "net.ipv4.ip_forward=1"))
        for name in _SENDERS:
            # A window that was learnt in one run would begin the next.
            _command(*_inside(spaces[name], "sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1"))
        queue = str(jobs.queue_packets * 1514)
        rate = ["tbf", "rate", f"{jobs.rate_bps}bit", "burst", "6056", "limit", queue]
        _command(*_inside(spaces["mid"], "tc", "qdisc", "add", "dev", "p3", "root", *rate))
        yield _Network(spaces)


def _inside(space: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", space, *words]


def _command(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise KernelMltcpError(f"{' '.join(words)}: {last}")
