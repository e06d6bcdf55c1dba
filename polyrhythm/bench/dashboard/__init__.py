# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench dashboard`: what the REST API, its event streams and the page cost.

A live controller, its switches and the clients are processes of this machine. The figures:

- `api_p99_ms`: the time from when a request is due to its answer, at 200 requests a second, while the streams
  are held.
- `failed_requests`: requests without an answer, or with a 5xx.
- `sse_clients`: event streams that were held to the end, of 200.
- `answer_p99_ms`: the time in which the controller answers an agent's question for a flow, meanwhile.
- `event_bytes_per_s_2048_hosts`: bytes of differences a second and client, of a stand-in with 1,012 switches
  and 2,048 hosts where every load changes every second.
- `keyframe_gzip_kb_2048_hosts`: its keyframe.
- `first_picture_ms_2048_hosts`: from a navigation to the first picture of its map, in Chromium without a GPU,
  the median of 5; `redraw_ms_1000_switches`: the 95th percentile of 60 drawings of the whole map. null
  without Playwright and Chromium.
- `bundle_gzip_kb`: the page's files together, each by gzip.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controller.northbound.differences import DifferenceLog
from controller.northbound.stream_state import StreamFabric
from controller.northbound.web import assets_dir
from controller.wire import agent_pb2 as pb
from controller.wire.time_slices import default_time_slices, short_time_slices
from hostagent.session import ControllerSession
from polyrhythm.bench.dashboard.page import NoBrowserError, measure_page
from polyrhythm.bench.dashboard.stand_in import StandIn, large
from polyrhythm.bench.hostfabric import HOSTS_PER_LEAF, fabric
from polyrhythm.bench.processes import last_words, line, process, until
from polyrhythm.bench.report import show

STREAMS, REQUESTS_A_SECOND = 200, 200
ANSWERS_A_SECOND = 100
JOB = "bench"
_PERIOD_NS = 400_000_000
# Parts of the page that only a browser's developer tools load.
_NOT_LOADED = (".map", ".json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm bench dashboard`."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="duration of each part, 1 to 600 (default %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the bench. Returns 1 if one of its processes does not start, 2 for bad options."""
    if not 1 <= args.seconds <= 600:
        print(f"polyrhythm bench dashboard: --seconds {args.seconds}; legal: 1 to 600", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        try:
            figures = measure_controller(Path(folder), args.seconds)
            figures |= measure_stand_in(Path(folder), args.seconds)
            show(figures | {"bundle_gzip_kb": round(bundle_gzip_kb(assets_dir()), 1)}, args.json)
        except (RuntimeError, OSError) as error:
            print(f"polyrhythm bench dashboard: {error}{last_words(Path(folder))}", file=sys.stderr)
            return 1
    return 0


def bundle_gzip_kb(folder: Path) -> float:
    """The files that a browser loads, each compressed, in thousands of bytes."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in _NOT_LOADED)
    return sum(len(gzip.compress(path.read_bytes())) for path in files) / 1e3


def measure_controller(folder: Path, seconds: float) -> dict[str, Any]:
    """Ask a live controller for flows while its streams are held and its API is asked."""
    with contextlib.ExitStack() as stack:
        switches = stack.enter_context(
            process("-m", "polyrhythm.bench.hostfabric", log=folder / "fabric.log")
        )
        description = folder / "fabric.json"
        description.write_text(line(switches, folder / "fabric.log"))
        options = (f"--fabric={description}", "--web-port=0")
        controller = stack.enter_context(
            process("-m", "polyrhythm", "controller", *options, log=folder / "controller.log")
        )
        ready = json.loads(line(controller, folder / "controller.log"))
        asker = stack.enter_context(_asker(ready["agents"]))
        clients = stack.enter_context(
            process(
                "-m",
                "polyrhythm.bench.dashboard.load",
                *(ready["web"], str(STREAMS), str(REQUESTS_A_SECOND), str(seconds)),
                log=folder / "load.log",
            )
        )
        line(clients, folder / "load.log")
        answers = asker.ask(seconds)
        found = json.loads(line(clients, folder / "load.log"))
    return {
        "api_p99_ms": None if found["p99_ms"] is None else round(found["p99_ms"], 3),
        "requests": found["requests"],
        "failed_requests": found["failed"],
        "sse_clients": found["held"],
        "answer_p99_ms": round(answers[int(0.99 * (len(answers) - 1))] * 1e3, 3),
        "answers": len(answers),
    }


def measure_stand_in(folder: Path, seconds: float) -> dict[str, Any]:
    """The bytes of differences of a large fabric, and its keyframe."""
    topology = large()
    stream = StreamFabric(topology)
    keyframe = DifferenceLog(stream, stream.state(StandIn(topology).view(1))).keyframe().data
    with contextlib.ExitStack() as stack:
        module = "polyrhythm.bench.dashboard.stand_in"
        server = stack.enter_context(process("-m", module, log=folder / "stand_in.log"))
        url = json.loads(line(server, folder / "stand_in.log"))["url"]
        clients = stack.enter_context(
            process(
                "-m", "polyrhythm.bench.dashboard.load", url, "1", "0", str(seconds), log=folder / "load.log"
            )
        )
        line(clients, folder / "load.log")
        found = json.loads(line(clients, folder / "load.log"))
        drawn = page_figures(url)
    return drawn | {
        "event_bytes_per_s_2048_hosts": round(found["bytes_per_s"]),
        "keyframe_gzip_kb_2048_hosts": round(len(gzip.compress(keyframe, 5)) / 1e3, 1),
    }


def page_figures(url: str) -> dict[str, Any]:
    """How fast a browser draws the stand-in's fabric; null without a browser, and why on standard error."""
    try:
        found = measure_page(url)
    except NoBrowserError as error:
        print(f"polyrhythm bench dashboard: the page is not measured: {error}", file=sys.stderr)
        found = {"first_picture_ms": None, "redraw_ms": None}
    return {
        "first_picture_ms_2048_hosts": found["first_picture_ms"],
        "redraw_ms_1000_switches": found["redraw_ms"],
    }


class _Asker:
    """The agent of one host: it asks for its flow, and waits for the answer."""

    def __init__(self) -> None:
        self.welcome = threading.Event()
        self.answer = threading.Event()
        self.session: ControllerSession | None = None

    def said(self, message: pb.ControllerMessage) -> None:
        """A message of the controller."""
        if message.HasField("welcome"):
            self.welcome.set()
        elif message.HasField("flow"):
            self.answer.set()

    def ask_once(self, flow: str) -> float:
        """The time until the answer in s; 1 s without one."""
        self.answer.clear()
        began = time.monotonic()
        if self.session is not None:
            self.session.send(pb.AgentMessage(flow_request=pb.FlowRequest(flow=flow)))
        self.answer.wait(1.0)
        return time.monotonic() - began

    def ask(self, seconds: float) -> list[float]:
        """Ask at an even rate; the sorted times until the answers in s."""
        began, times = time.monotonic(), []
        for number in range(round(seconds * ANSWERS_A_SECOND)):
            time.sleep(max(0.0, began + number / ANSWERS_A_SECOND - time.monotonic()))
            times.append(self.ask_once(f"{JOB}/flow"))
        return sorted(times)


@contextlib.contextmanager
def _asker(address: str) -> Iterator[_Asker]:
    """The sessions of the two hosts of a job; the first one asks."""
    hosts = fabric().hosts[0], fabric().hosts[HOSTS_PER_LEAF]
    agents = [_Asker() for _ in hosts]
    names = [host.name for host in hosts]
    flow = pb.FlowSpec(name=f"{JOB}/flow", src=names[0], dst=names[1], bytes_per_iteration=1 << 30)
    # As a real agent has them.
    short_time_slices()
    try:
        for rank, (host, agent) in enumerate(zip(hosts, agents, strict=True)):
            hello = pb.Hello(host=host.name, ip=host.ip, pinning="none", protocol=1)

            def connected(agent: _Asker = agent, hello: pb.Hello = hello) -> None:
                if agent.session is not None:
                    agent.session.send(pb.AgentMessage(sequence=1, hello=hello))

            agent.session = ControllerSession((address,), agent.said, lambda: None, connected)
            agent.session.start()
            until(agent.welcome.is_set, "the session of an agent")
            join = pb.JobJoin(
                job=JOB,
                model="bench",
                gpus=2,
                hosts=names,
                rank=rank,
                period_ns=_PERIOD_NS,
                phases=[pb.Phase(start_ns=0, end_ns=_PERIOD_NS // 4, rate_bps=10_000_000)],
                flops_per_iteration=1e12,
                flows=[flow],
            )
            agent.session.send(pb.AgentMessage(job_join=join))
        until(lambda: agents[0].ask_once(flow.name) < 1.0, "the first answer")
        yield agents[0]
    finally:
        default_time_slices()
        for agent in agents:
            if agent.session is not None:
                agent.session.stop()
