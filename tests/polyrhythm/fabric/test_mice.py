# SPDX-License-Identifier: Apache-2.0
"""Background mice: how much they load a link, and where they go."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from polyrhythm.fabric.heap import EventHeap
from polyrhythm.fabric.mice import LINGER_NS, BackgroundMice
from polyrhythm.scenario import load_scenario, scenario_path
from polyrhythm.scenario.build import Mice

SECOND = 1_000_000_000


class FakeNic:
    """Completes a message at once, and counts what is open."""

    def __init__(self) -> None:
        self.open: set[tuple[str, str]] = set()
        self.posted: dict[str, int] = defaultdict(int)
        self.ports: set[int] = set()
        self.dscps: set[int] = set()

    def _end(self, kind: str, flow: str) -> SimpleNamespace:
        self.open.add((kind, flow))
        return SimpleNamespace(close=lambda: self.open.remove((kind, flow)))

    def listen(self, flow: str, src_ip: str, on_receive: object) -> SimpleNamespace:
        return self._end("in", flow)

    def open_qp(self, flow: str, dst_ip: str, port: int, dscp: int) -> SimpleNamespace:
        end = self._end("out", flow)
        self.ports.add(port)
        self.dscps.add(dscp)

        def post(size: int, on_complete: Any) -> None:
            self.posted[dst_ip] += size
            on_complete()

        end.post = post
        return end


@pytest.mark.parametrize("size", [500, 3000])
def test_each_host_sends_its_load_to_all_others(size: int) -> None:
    scenario = load_scenario(scenario_path("two_vgg19"))
    heap = EventHeap()
    agent = SimpleNamespace(settings=SimpleNamespace(mice_dscp=8))
    hosts: Any = {h.name: SimpleNamespace(nic=FakeNic(), agent=agent) for h in scenario.topology.hosts}
    mice = Mice(load=0.04, size=size)
    background = BackgroundMice(replace(scenario, mice=mice), mice, hosts, heap, start_ns=SECOND, seed=3)
    heap.call_at(61 * SECOND, lambda: setattr(heap, "stop", True))
    assert heap.run()
    packets = -(-size // scenario.packet_bytes)
    for host in scenario.topology.hosts:
        nic = hosts[host.name].nic
        assert set(nic.posted) == {h.ip for h in scenario.topology.hosts} - {host.ip}
        wire_bits = 8 * sum(nic.posted.values()) / size * (size + 58 * packets)
        assert wire_bits / 60 / host.rate_bps == pytest.approx(0.04, rel=0.1)
        assert nic.dscps == {8}
        assert len(nic.ports) > 1000
        # Nothing stays open but the receiving ends of the last second.
        assert not any(kind == "out" for kind, _ in nic.open)
        assert len(nic.open) < 3 * background.started / 60 * LINGER_NS / SECOND
