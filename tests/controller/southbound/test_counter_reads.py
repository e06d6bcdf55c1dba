# SPDX-License-Identifier: Apache-2.0
"""The counters of many switches are read a few at a time, and a switch that fails costs its own only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import SimpleNamespace

import pytest
from control_rig import on_loop
from finsy.proto import p4r

from controller.southbound.artefacts import load_artefacts
from controller.southbound.codec import Codec
from controller.southbound.counter_reads import SWITCHES_AT_ONCE, CounterReads
from controller.southbound.raw_calls import SessionError
from polyrhythm.bench.hostfabric import fabric


class Switches:
    """Stand-ins for the clients of all switches: how many were asked at once, and which one fails."""

    def __init__(self, names: list[str], failing: str) -> None:
        self.clients = {
            name: SimpleNamespace(state="ready", read_counters=self._answer(name == failing))
            for name in names
        }
        self.most = self._now = self.asked = 0
        self.requests: list[p4r.ReadRequest] = []

    def _answer(self, fails: bool):
        async def read_counters(request: p4r.ReadRequest) -> tuple[bytes, ...]:
            self._now += 1
            self.asked += 1
            self.requests.append(request)
            self.most = max(self.most, self._now)
            await asyncio.sleep(0.001)
            self._now -= 1
            if fails:
                raise SessionError("it is silent")
            return ()

        return read_counters


def test_a_few_switches_are_asked_at_once_and_one_that_fails_costs_its_own_only() -> None:
    topology, codec = fabric(24, 8, 1), Codec(load_artefacts())
    devices = {s.name: s.device_id for s in topology.switches}
    switches = Switches(sorted(devices), failing="leaf3")
    found = on_loop(CounterReads(topology, codec, devices, switches.clients).read())
    assert found == dict.fromkeys(devices, ())
    assert (switches.asked, switches.most) == (32, SWITCHES_AT_ONCE)


def test_a_request_is_made_once_for_switches_with_like_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, codec = fabric(24, 8, 1), Codec(load_artefacts())
    devices = {s.name: s.device_id for s in topology.switches}
    switches = Switches(sorted(devices), failing="")
    made: list[int] = []
    make = codec.read_counters

    def counted(device_id: int, counters: Mapping[str, Iterable[int]]) -> p4r.ReadRequest:
        made.append(device_id)
        return make(device_id, counters)

    monkeypatch.setattr(codec, "read_counters", counted)
    on_loop(CounterReads(topology, codec, devices, switches.clients).read())
    assert made == [0, 0], "leaves and spines"
    assert {r.device_id: len(r.entities) for r in switches.requests} == {
        s.device_id: 8 * sum(2 + (peer.node in topology.host) for peer in topology.ports[s.name].values())
        for s in topology.switches
    }
