# SPDX-License-Identifier: Apache-2.0
"""All switches: one session each, one wanted state, and the smallest writes that lead there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar

from finsy.grpcutil import GRPCCredentialsTLS

from controller.southbound.artefacts import Artefacts
from controller.southbound.client import RefusedUpdate, SessionError, SwitchClient
from controller.southbound.codec import (
    ECN_MARK_COUNTER,
    EGRESS_COUNTER,
    STRAY_COUNTER,
    Codec,
    CounterValue,
    PacketIn,
)
from controller.southbound.table_writes import DesiredState, SwitchWrites, changes, reconcile
from topo.graph import Topology

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# How often a switch that refuses entries is read back and written again before it is left at that.
RETRIES = 2


class FunctionRunner(Protocol):
    """Runs a pure function elsewhere."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Its result."""


class Observer(Protocol):
    """Who hears of the switches. Called on the loop; must return at once."""

    def switch_ready(self, name: str, ports: Mapping[int, bool] | None) -> None:
        """In service; `ports` is port -> up, None where the target tells no port states."""

    def switch_lost(self, name: str, why: str) -> None:
        """The session is gone."""

    def packet_in(self, name: str, packet: PacketIn) -> None:
        """A frame for the controller."""

    def port_states(self, name: str, states: Mapping[int, bool]) -> None:
        """One gNMI notification: port -> up."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a switch is served; `tls` None: in the clear."""

    address: str
    device_id: int
    tls: GRPCCredentialsTLS | None = None


@dataclass(frozen=True, slots=True)
class PreparedWrites:
    """Writes from `wanted` to another state; a switch that is not named needs none."""

    wanted: DesiredState
    writes: Mapping[str, SwitchWrites]


@dataclass(slots=True)
class _Held:
    """What a switch is known to hold: what `wanted` asks for; `sure` False means read it back."""

    wanted: DesiredState | None = None
    sure: bool = False
    tables: Mapping[str, int] = field(default_factory=dict)


class SwitchFleet:
    """The controller's side of every switch. Everything runs on one asyncio loop."""

    def __init__(
        self,
        topology: Topology,
        targets: Mapping[str, Target],
        artefacts: Artefacts,
        runner: FunctionRunner,
        observer: Observer,
    ) -> None:
        self._topology = topology
        self._runner = runner
        self._observer = observer
        self._wanted = DesiredState()
        self._held = {name: _Held() for name in targets}
        self._locks = {name: asyncio.Lock() for name in targets}
        self._tasks: list[asyncio.Task[None]] = []
        codec = Codec(artefacts)
        self.clients: Mapping[str, SwitchClient] = {
            name: SwitchClient(
                name,
                target.address,
                target.device_id,
                tls=target.tls,
                codec=codec,
                artefacts=artefacts,
                listener=self,
            )
            for name, target in targets.items()
        }

    def start(self) -> None:
        """Begin to connect to every switch."""
        for name, client in self.clients.items():
            task = asyncio.create_task(client.run(), name=name)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    async def stop(self) -> None:
        """End every session."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def entries(self, name: str) -> int:
        """How many table entries the switch holds by our reckoning."""
        return sum(self._held[name].tables.values())

    def tables(self, name: str) -> Mapping[str, int]:
        """How many entries each table of the switch holds by our reckoning."""
        return self._held[name].tables

    async def apply(
        self, wanted: DesiredState, ready: PreparedWrites | None = None
    ) -> tuple[RefusedUpdate, ...]:
        """Have every switch that is in service hold what `wanted` asks for; the errors that remain.

        `ready` may hold writes that were worked out before.
        """
        self._wanted = wanted
        there = [name for name, client in self.clients.items() if client.state == "ready"]
        sure = {name: self._held[name].wanted for name in there if self._held[name].sure}
        writes: dict[str, SwitchWrites] = {}
        if ready is not None:
            for name in [n for n, held in sure.items() if held == ready.wanted]:
                writes[name] = ready.writes.get(name) or SwitchWrites((), 0, self._held[name].tables)
                del sure[name]
        if sure:
            writes |= await self._runner.run(changes, sure, wanted)
        results = await asyncio.gather(*(self._bring(name, wanted, writes.get(name)) for name in there))
        return tuple(error for errors in results for error in errors)

    async def read_back(self) -> None:
        """Read what every switch in service holds, and put right what is not as it should be."""
        for name in [n for n, client in self.clients.items() if client.state == "ready"]:
            for error in await self._bring(name, self._wanted, None):
                log.error("%s refused: %s (%s)", error.switch, error.what, error.why)

    async def packet_out(self, name: str, payload: bytes, egress_port: int, submit_to_ingress: bool) -> bool:
        """Send a frame; False, and said in the log, if the switch is not there."""
        try:
            await self.clients[name].packet_out(payload, egress_port, submit_to_ingress)
        except SessionError as error:
            log.warning("no packet-out to %s: %s", name, error)
            return False
        return True

    async def read_counters(self) -> Mapping[str, tuple[CounterValue, ...]]:
        """Packets, bytes and marks of every queue of every wired port, per switch in service."""
        ready = [name for name, client in self.clients.items() if client.state == "ready"]
        values = await asyncio.gather(*(self._read_counters(name) for name in ready))
        return dict(zip(ready, values, strict=True))

    # What the clients report.

    async def switch_connected(self, name: str, fresh: bool) -> None:
        """Write the tables of a switch that has just been connected."""
        held = self._held[name]
        held.wanted, held.sure = None, fresh
        # What is wanted may change while it is being written.
        while held.wanted != self._wanted:
            wanted, writes = self._wanted, None
            if held.sure:
                writes = (await self._runner.run(changes, {name: held.wanted}, wanted))[name]
            for error in await self._bring(name, wanted, writes):
                log.error("%s refused: %s (%s)", error.switch, error.what, error.why)
            if not held.sure:
                break

    def switch_ready(self, name: str, ports: Mapping[int, bool] | None) -> None:
        """Pass it on, and see to what was wanted while the switch was on its way in."""
        if self._held[name].sure and self._held[name].wanted != self._wanted:
            self._tasks.append(asyncio.create_task(self._catch_up(name)))
        self._observer.switch_ready(name, ports)

    def switch_lost(self, name: str, why: str) -> None:
        """Forget what the switch holds, and pass it on."""
        self._held[name] = _Held()
        self._observer.switch_lost(name, why)

    def packet_in(self, name: str, packet: PacketIn) -> None:
        """Pass it on."""
        self._observer.packet_in(name, packet)

    def port_states(self, name: str, states: Mapping[int, bool]) -> None:
        """Pass it on."""
        self._observer.port_states(name, states)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A client runs until it is cancelled; one that ends by itself has met something unforeseen."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("%s: the session is given up", task.get_name(), exc_info=error)
            self.switch_lost(task.get_name(), f"internal error: {error}")

    async def _catch_up(self, name: str) -> None:
        for error in await self._bring(name, self._wanted, None):
            log.error("%s refused: %s (%s)", error.switch, error.what, error.why)

    async def _bring(
        self, name: str, wanted: DesiredState, writes: SwitchWrites | None
    ) -> tuple[RefusedUpdate, ...]:
        """Write to one switch; without `writes`, or after a refusal, by what it says it holds."""
        held = self._held[name]
        errors: tuple[RefusedUpdate, ...] = ()
        async with self._locks[name]:
            for _ in range(RETRIES + 1):
                try:
                    if writes is None:
                        read = await self.clients[name].read_entries()
                        writes = await self._runner.run(reconcile, name, read, wanted)
                        level = logging.WARNING if held.sure and writes.updates else logging.INFO
                        log.log(
                            level, "%s: read back %d entries, %d to write", name, len(read), writes.updates
                        )
                    errors = await self.clients[name].write(writes.stages)
                except SessionError as error:
                    held.sure = False
                    log.warning("%s: tables not written: %s", name, error)
                    return ()
                held.wanted, held.sure, held.tables = wanted, not errors, writes.tables
                if not errors:
                    break
                writes = None
        return errors

    async def _read_counters(self, name: str) -> tuple[CounterValue, ...]:
        try:
            ports = self._topology.ports[name]
            edge = tuple(port for port, peer in ports.items() if peer.node in self._topology.host)
            return await self.clients[name].read_counters(
                dict.fromkeys((EGRESS_COUNTER, ECN_MARK_COUNTER), tuple(ports)) | {STRAY_COUNTER: edge}
            )
        except SessionError as error:
            log.warning("%s: counters not read: %s", name, error)
            return ()
