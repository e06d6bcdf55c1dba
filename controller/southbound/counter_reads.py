# SPDX-License-Identifier: Apache-2.0
"""Reads the counters of all switches: packets, bytes and ECN marks of every queue, and stray packets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from finsy.proto import p4r

from controller.southbound.client import SwitchClient
from controller.southbound.codec import (
    ECN_MARK_COUNTER,
    EGRESS_COUNTER,
    STRAY_COUNTER,
    Codec,
    CounterValue,
)
from controller.southbound.few_at_once import few_at_once
from controller.southbound.raw_calls import SessionError
from topo.graph import Topology

log = logging.getLogger(__name__)

# Chosen: so many cells are decoded in less than a millisecond.
CELLS_AT_ONCE = 200
# How many switches are asked at once. Chosen: to send 100 requests takes tens of milliseconds, in which no
# agent is answered; but a few silent switches must not hold up the others.
SWITCHES_AT_ONCE = 8


class CounterReads:
    """The counters of wired ports of the switches in `clients`; `devices` are their device ids."""

    def __init__(
        self,
        topology: Topology,
        codec: Codec,
        devices: Mapping[str, int],
        clients: Mapping[str, SwitchClient],
    ) -> None:
        self._topology = topology
        self._codec = codec
        self._devices = devices
        self._clients = clients
        self._requests: dict[str, p4r.ReadRequest] = {}
        self._encoded: dict[tuple[tuple[int, ...], tuple[int, ...]], bytes] = {}
        self._encoding, self._decoding = asyncio.Lock(), asyncio.Lock()
        self._unread: set[str] = set()

    async def read(self) -> Mapping[str, tuple[CounterValue, ...]]:
        """The counters of each switch in service; none for a switch that does not answer in time."""
        ready = [name for name, client in self._clients.items() if client.state == "ready"]
        values = await few_at_once(SWITCHES_AT_ONCE, self._read, ready)
        return dict(zip(ready, values, strict=True))

    async def _read(self, name: str) -> tuple[CounterValue, ...]:
        try:
            replies = await self._clients[name].read_counters(await self._request(name))
        except SessionError as error:
            if name not in self._unread:
                log.warning("switch %s: its counters were not read: %s", name, error)
            self._unread.add(name)
            return ()
        if name in self._unread:
            self._unread.discard(name)
            log.info("switch %s: its counters are read again", name)
        found: list[CounterValue] = []
        # A switch has thousands of cells. Agents are answered in between, so one switch at a time is decoded.
        async with self._decoding:
            for reply in replies:
                entities = p4r.ReadResponse.FromString(reply).entities
                for begin in range(0, len(entities), CELLS_AT_ONCE):
                    cells = entities[begin : begin + CELLS_AT_ONCE]
                    found.extend(self._codec.counter_value(e.counter_entry) for e in cells)
                    await asyncio.sleep(0)
        return tuple(found)

    async def _request(self, name: str) -> p4r.ReadRequest:
        known = self._requests.get(name)
        if known is None:
            ports = self._topology.ports[name]
            edge = tuple(port for port, peer in ports.items() if peer.node in self._topology.host)
            known = p4r.ReadRequest.FromString(await self._cells(tuple(ports), edge))
            known.device_id = self._devices[name]
            self._requests[name] = known
        return known

    async def _cells(self, ports: tuple[int, ...], edge: tuple[int, ...]) -> bytes:
        """A serialised request for the counters of these ports, those to hosts among them, of no device.

        It has thousands of cells, and takes milliseconds. Most switches of a fabric have like ports, so it is
        made once for them, and in a thread: agents are answered meanwhile.
        """
        async with self._encoding:
            if (ports, edge) not in self._encoded:
                counters = dict.fromkeys((EGRESS_COUNTER, ECN_MARK_COUNTER), ports) | {STRAY_COUNTER: edge}
                made = await asyncio.to_thread(self._codec.read_counters, 0, counters)
                self._encoded[ports, edge] = made.SerializeToString()
            return self._encoded[ports, edge]
