# SPDX-License-Identifier: Apache-2.0
"""A moving view without a fabric: 2 leaves, 4 spines, 8 hosts, 3 jobs; and a server that shows it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from controller.model.durations import Durations
from controller.model.job import Phase, Profile
from controller.model.plan import FlowPlan, JobPlan, LinkPlan, Plan
from controller.model.view import JobView, LinkLoad, QueueCounter, StrayCounter, SwitchView, View
from controller.northbound.access_rules import AccessRules
from controller.northbound.api import create_app
from controller.northbound.health import NotReady, Readiness
from controller.northbound.metrics import ControllerCounts
from controller.northbound.operations import Operations
from controller.northbound.web import assets_dir, serve
from controller.planner import POLICIES
from controller.process.view_publisher import WatchedBoard
from topo.generate import leaf_spine

MS = 1_000_000
CAPACITY = 25_000_000
TOPOLOGY = leaf_spine(2, 4, 4, host_bps=CAPACITY, fabric_bps=CAPACITY, name="two leaves, four spines")
EPOCH = 150 * MS


@dataclass(frozen=True, slots=True)
class FakeJob:
    name: str
    model: str
    hosts: tuple[str, str]
    spine: str
    period: int
    shift: int
    phases: tuple[Phase, ...]
    level: int
    intensity: float
    flow_why: str
    why: str


JOBS = (
    FakeJob(
        "vgg19",
        "VGG19",
        ("h1", "h5"),
        "spine2",
        336 * MS,
        0,
        (Phase(0, 130 * MS, 21_000_000),),
        1,
        3.1e12,
        "spine2 leaves 21.0 Mbit/s, the most of 4 paths",
        "intensity 3.1e12, second of 3: level 1; shift 0 ms: its circle is the reference of its group",
    ),
    FakeJob(
        "vgg16",
        "VGG16",
        ("h2", "h6"),
        "spine2",
        336 * MS,
        168 * MS,
        (Phase(0, 112 * MS, 21_000_000),),
        2,
        2.2e12,
        "spine2 is shared with vgg19, score 1.00 after the shift",
        "intensity 2.2e12, third of 3: level 2; shift 168 ms: it talks while vgg19 computes",
    ),
    FakeJob(
        "resnet50",
        "ResNet50",
        ("h3", "h7"),
        "spine3",
        168 * MS,
        21 * MS,
        (Phase(0, 60 * MS, 4_000_000),),
        0,
        7.9e12,
        "spine3 leaves 25.0 Mbit/s, the most of 4 paths",
        "intensity 7.9e12, first of 3: level 0; shift 21 ms",
    ),
)


def plan(version: int = 3) -> Plan:
    """Polyrhythm's plan for the three jobs."""
    flows = {}
    for number, job in enumerate(JOBS):
        for one, (src, dst) in enumerate((job.hosts, job.hosts[::-1])):
            name = f"{job.name}/{src}>{dst}"
            leaves = (TOPOLOGY.host[src].leaf, TOPOLOGY.host[dst].leaf)
            path = (src, leaves[0], job.spine, leaves[1], dst)
            flows[name] = FlowPlan(
                name, path, 49152 + 97 * (2 * number + one), 40 - 2 * job.level, job.flow_why
            )
    jobs = {
        j.name: JobPlan(j.name, j.level, 40 - 2 * j.level, j.shift, j.period, j.intensity, j.why)
        for j in JOBS
    }
    links = tuple(
        LinkPlan(src, dst, ("vgg16", "vgg19"), 1.0)
        for src, dst in (("leaf1", "spine2"), ("spine2", "leaf2"), ("leaf2", "spine2"), ("spine2", "leaf1"))
    )
    return Plan(version, POLICIES["polyrhythm"].reference, EPOCH, flows, jobs, links)


def _sending(job: FakeJob, time_ns: int) -> int:
    at = (time_ns - EPOCH - job.shift) % job.period
    return sum(p.rate_bps for p in job.phases if p.start_ns <= at < p.end_ns)


def view(step: int, *, down: frozenset[tuple[str, str]] = frozenset({("leaf1", "spine4")})) -> View:
    """The view after `step` polls of 100 ms; `down` names cables."""
    time_ns = EPOCH + 400 * MS + step * 100 * MS
    rates: dict[tuple[str, str], int] = {}
    for job in JOBS:
        rate = sum(_sending(job, time_ns - k * 3 * MS) for k in range(10)) // 10
        for src, dst in (job.hosts, job.hosts[::-1]):
            nodes = (src, TOPOLOGY.host[src].leaf, job.spine, TOPOLOGY.host[dst].leaf, dst)
            for hop in pairwise(nodes):
                rates[hop] = rates.get(hop, 0) + rate
    cables = [((h.name, 0), (h.leaf, h.leaf_port)) for h in TOPOLOGY.hosts]
    cables += [((c.a, c.a_port), (c.b, c.b_port)) for c in TOPOLOGY.links]
    links = []
    for ends in cables:
        for src, dst in (ends, ends[::-1]):
            up = (ends[0][0], ends[1][0]) not in down
            rate = rates.get((src[0], dst[0]), 0) if up else 0
            marks = max(0, rate - 20_000_000) // 100_000
            links.append(LinkLoad(*src, *dst, rate, rate / CAPACITY, marks, up))
    jobs = []
    for number, job in enumerate(JOBS):
        base = job.period / MS
        recent = tuple(
            round(base * (1 + 0.25 * math.exp(-n / 6) + 0.008 * math.sin(1.7 * n + number)), 3)
            for n in range(8 + step)
        )[-120:]
        jobs.append(
            JobView(
                name=job.name,
                model=job.model,
                gpus=8,
                hosts=job.hosts,
                iterations=8 + step,
                recent_ms=recent,
                mean_ms=sum(recent) / len(recent),
                p99_ms=max(recent),
                level=job.level,
                dscp=40 - 2 * job.level,
                shift_ms=job.shift / MS,
                period_ms=job.period / MS,
                profile=Profile(job.period, job.phases),
            )
        )
    counters = tuple(
        QueueCounter(s.name, port, qid, 100 * step + port, 1000 * (100 * step + port), step)
        for s in TOPOLOGY.switches
        for port in TOPOLOGY.ports[s.name]
        for qid in range(8)
    )
    return View(
        time_ns=time_ns,
        scenario="snapshot2",
        topology=TOPOLOGY,
        switches=tuple(
            SwitchView(
                s.name,
                f"127.0.0.1:{9559 + s.device_id}",
                "ready",
                40 + s.device_id,
                strays=(StrayCounter(2, "cnp", 3),) if s.name == "leaf1" else (),
            )
            for s in TOPOLOGY.switches
        ),
        links=tuple(links),
        jobs=tuple(jobs),
        plan=plan(),
        counters=counters,
        verified_paths=6,
        unverified_paths=0,
    )


class Running:
    """A real server in a thread of its own; `publish` may be called from the test's thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, board: WatchedBoard, url: str, closing: asyncio.Event
    ) -> None:
        self._loop = loop
        self._board = board
        self._closing = closing
        self.url = url

    def close_streams(self) -> None:
        """End all event streams, as the end of a controller does."""
        self._loop.call_soon_threadsafe(self._closing.set)

    def publish(self, value: View) -> None:
        """Show `value` from now on."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (self._board.publish(value), done.set()))
        assert done.wait(10)

    @property
    def watched(self) -> bool:
        """Whether somebody waits for views."""
        return self._board.watchers > 0


@dataclass(slots=True)
class FakeStatus:
    """A controller's status: `why` it makes no progress, and what is `missing`."""

    why: str = ""
    missing: tuple[NotReady, ...] = ()
    agents_needed: int = 8
    answers: Durations = field(default_factory=lambda: Durations((0.002, 0.005)))

    def stalled(self) -> str:
        return self.why

    def readiness(self) -> Readiness:
        return Readiness(self.missing, switches=6, hosts=8, agents_needed=self.agents_needed)

    def counts(self) -> ControllerCounts:
        none = dict.fromkeys(TOPOLOGY.switch, 0)
        return ControllerCounts(
            none,
            none,
            none,
            8,
            9,
            1,
            self.answers,
            Durations((1.0,)),
            plan_failures=0,
            step_s=0.0,
            log_lines_left_out=0,
        )


@contextlib.contextmanager
def running(
    first: View | None,
    port: int = 0,
    reading_s: float = 0.0,
    status: FakeStatus | None = None,
    rules: AccessRules | None = None,
    operations: Operations = Operations(),  # noqa: B008 - frozen
) -> Iterator[Running]:
    """The API and the page on a free port, shut down at the end."""
    ready = threading.Event()
    box: list[tuple[asyncio.AbstractEventLoop, asyncio.Event, Running]] = []

    async def main() -> None:
        board = WatchedBoard()
        if first is not None:
            board.publish(first)
        app = create_app(
            board, assets_dir(), status or FakeStatus(), reading_s, rules or AccessRules(), operations
        )
        server = await serve(app, port=port)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        box.append((loop, stop, Running(loop, board, server.url, app.state.closing)))
        ready.set()
        await stop.wait()
        await server.close()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert ready.wait(300)
    loop, stop, handle = box[0]
    try:
        yield handle
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        assert not thread.is_alive()
