# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a large controller: the API and the page over moving views of a fabric that nobody runs.

`python -m polyrhythm.bench.dashboard.stand_in` prints {"url": ...} and serves until its input is closed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import dataclass, field

import numpy as np

from controller.live.link_loads import LinkLoads
from controller.model.durations import Durations
from controller.model.job import Phase, Profile
from controller.model.view import JobView, SwitchView, View
from controller.northbound.api import create_app
from controller.northbound.health import Readiness
from controller.northbound.metrics import ControllerCounts
from controller.northbound.source import ViewBoard
from controller.northbound.web import assets_dir, serve
from topo.generate import leaf_spine, three_tier
from topo.graph import Topology

GBPS = 1_000_000_000
MS = 1_000_000
JOBS = 256
INTERVAL_S = 1.0


def large() -> Topology:
    """1,012 switches, 14,400 cables between them, 2,048 hosts."""
    return three_tier(16, 32, 25, 4, 4, host_bps=100 * GBPS, fabric_bps=100 * GBPS, name="stand-in")


def small() -> Topology:
    """6 switches, 8 cables between them, 8 hosts."""
    return leaf_spine(2, 4, 4, host_bps=100 * GBPS, fabric_bps=100 * GBPS, name="stand-in")


@dataclass
class StandIn:
    """Views of `topology`. In each, every load has changed, and every job has ended some iterations."""

    topology: Topology
    seed: int = 1
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def view(self, step: int) -> View:
        """The view after `step` seconds."""
        topology = self.topology
        ends = [(name, port) for name, ports in topology.ports.items() for port in ports]
        loads, marks = self._rng.random(len(ends)).tolist(), self._rng.integers(0, 500, len(ends)).tolist()
        sent = self._rng.random(len(topology.hosts)).tolist()
        uplinks = {h.name: part * h.rate_bps for h, part in zip(topology.hosts, sent, strict=True)}
        measured = dict(zip(ends, zip(loads, marks, strict=True), strict=True))
        hosts = [h.name for h in topology.hosts]
        each = max(2, len(hosts) // JOBS)
        return View(
            time_ns=step * 1_000 * MS,
            scenario="stand-in",
            topology=topology,
            switches=tuple(SwitchView(s.name, "", "ready", 100) for s in topology.switches),
            links=LinkLoads(topology, measured, uplinks=uplinks),
            jobs=tuple(
                self._job(n, tuple(hosts[n * each : (n + 1) * each]), step) for n in range(len(hosts) // each)
            ),
            plan=None,
            counters=(),
            verified_paths=0,
            unverified_paths=0,
            measured_ns=step * 1_000 * MS,
        )

    def _job(self, number: int, hosts: tuple[str, ...], step: int) -> JobView:
        period = (200 + number % 7 * 20) * MS
        recent = tuple((period / MS * (1 + 0.1 * self._rng.random(120))).tolist())
        return JobView(
            name=f"job{number}",
            model="stand-in",
            gpus=8 * len(hosts),
            hosts=hosts,
            iterations=step * 4,
            recent_ms=recent,
            mean_ms=sum(recent) / len(recent),
            p99_ms=max(recent),
            level=number % 6,
            dscp=None,
            shift_ms=None,
            period_ms=None,
            profile=Profile(period, (Phase(0, period // 2, 50 * GBPS),)),
        )


class _Status:
    """A controller whose parts are all ready."""

    def stalled(self) -> str:
        """It makes progress."""
        return ""

    def readiness(self) -> Readiness:
        """Nothing is missing."""
        return Readiness((), 0, 0, 0)

    def counts(self) -> ControllerCounts:
        """Nothing was counted."""
        return ControllerCounts(flow_answers=Durations(()))


async def _serve(topology: Topology, port: int) -> None:
    board, source = ViewBoard(), StandIn(topology)
    board.publish(await asyncio.to_thread(source.view, 0))
    server = await serve(create_app(board, assets_dir(), _Status(), 0.0), port=port)
    print(json.dumps({"url": server.url}), flush=True)
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    step = 0
    while not ended.done():
        await asyncio.wait({ended}, timeout=INTERVAL_S)
        step += 1
        board.publish(await asyncio.to_thread(source.view, step))
    await server.close()


def main() -> None:
    """Serve until standard input is closed."""
    parser = argparse.ArgumentParser(description="The API and the page over views of a stand-in.")
    parser.add_argument("--port", type=int, default=0, help="default %(default)s: any free one")
    parser.add_argument("--small", action="store_true", help="8 hosts instead of 2,048")
    args = parser.parse_args()
    asyncio.run(_serve(small() if args.small else large(), args.port))


if __name__ == "__main__":
    main()
