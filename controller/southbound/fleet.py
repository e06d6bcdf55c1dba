# SPDX-License-Identifier: Apache-2.0
"""All switches: one session each, one desired state, and the smallest writes that lead to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar

from finsy.grpcutil import GRPCCredentialsTLS

from controller.southbound.artefacts import Artefacts
from controller.southbound.client import RefusedUpdate, SwitchClient
from controller.southbound.codec import Codec, CounterValue, PacketIn
from controller.southbound.counter_reads import CounterReads
from controller.southbound.election_ids import ElectionIds
from controller.southbound.few_at_once import begun_in_turn, few_at_once
from controller.southbound.heartbeat import Heartbeat
from controller.southbound.raw_calls import SessionError
from controller.southbound.table_writes import DesiredState, Found, SwitchWrites, reconcile, writes_to
from topo.graph import Topology

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# How long after a write that broke off the tables are read back and written again, in s. Chosen: shorter than
# the black hole that an operator forgives (3 s).
RETRY_S = 1.0
# How often a switch that refuses entries is read back and written again. Chosen.
RETRIES = 2
# How many switches are read back at once. Chosen: a write waits for a switch that is being read, so few; but
# one that does not answer must not hold up the others.
READ_BACKS_AT_ONCE = 4


class RunnerError(RuntimeError):
    """A function could not be run to its end; the message says why."""


class FunctionRunner(Protocol):
    """Runs a pure function in another process."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `function(*args, **kwargs)`.

        Raises:
            RunnerError: the process died or took too long; the caller may try again later.
        """


class FleetListener(Protocol):
    """Receives what switches report. The methods run on the asyncio loop; they must not block."""

    def switch_ready(self, name: str, ports: Mapping[int, bool] | None) -> None:
        """The switch is in service. `ports`: port -> up; None where the target reports no port states."""

    def switch_lost(self, name: str, why: str) -> None:
        """The session is lost."""

    def packet_in(self, name: str, packet: PacketIn) -> None:
        """The switch has sent a packet to the controller."""

    def port_states(self, name: str, states: Mapping[int, bool]) -> None:
        """A gNMI notification: port -> up."""


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a switch's P4Runtime server. `tls` None: the session is not encrypted."""

    address: str
    device_id: int
    tls: GRPCCredentialsTLS | None = None


@dataclass(frozen=True, slots=True)
class PreparedWrites:
    """Writes that lead from the state `wanted` to another one; a switch without an entry needs none."""

    wanted: DesiredState
    writes: Mapping[str, SwitchWrites]


@dataclass(slots=True)
class _Held:
    """What a switch holds: the entries for the state `wanted`, and `kept` entries of an earlier controller.
    `sure` False: read it back before writing."""

    wanted: DesiredState | None = None
    sure: bool = False
    kept: int = 0
    tables: Mapping[str, int] = field(default_factory=dict)


class SwitchFleet:
    """The controller's side of every switch. Everything runs on one asyncio loop.

    `heartbeat`: how a silent switch is noticed; None: not at all (see `SwitchClient`).
    """

    def __init__(
        self,
        topology: Topology,
        targets: Mapping[str, Target],
        artefacts: Artefacts,
        runner: FunctionRunner,
        listener: FleetListener,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self._topology = topology
        self._runner = runner
        self._listener = listener
        self._wanted = DesiredState()
        self._taken_up: DesiredState | None = None
        self._held = {name: _Held() for name in targets}
        self._locks = {name: asyncio.Lock() for name in targets}
        self._tasks: list[asyncio.Task[None]] = []
        self._retries: dict[str, asyncio.Task[None]] = {}
        # Counted by switch: lost sessions, updates that it refused, and those that a read-back needed.
        self.sessions_lost = dict.fromkeys(targets, 0)
        self.refused_updates = dict.fromkeys(targets, 0)
        self.corrected_updates = dict.fromkeys(targets, 0)
        self._unsent: set[str] = set()
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
                heartbeat=heartbeat,
            )
            for name, target in targets.items()
        }
        devices = {name: target.device_id for name, target in targets.items()}
        self._counters = CounterReads(topology, codec, devices, self.clients)

    def start(self, ids: ElectionIds | None = None, leads: Callable[[], bool] = bool) -> None:
        """Start to connect to every switch. `ids`: the election ids of a leader, which sends nothing once
        `leads()` is false; None: this controller is the only one.
        """
        for name, client in self.clients.items():
            if ids is not None:
                client.bid_with(ids, leads)
            task = asyncio.create_task(client.run(), name=name)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    async def stop(self) -> None:
        """End every session."""
        tasks = [*self._tasks, *self._retries.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def take_up(self, wanted: DesiredState) -> None:
        """Before `start`: `wanted` is what an earlier controller wanted, as far as it is known.

        Entries for single flows that a switch holds stay until `forget_found`: agents announce the jobs that
        they belong to again, but not all at once.
        """
        self._wanted = self._taken_up = wanted

    @property
    def keeps_found(self) -> bool:
        """Whether entries of an earlier controller stay that nothing explains."""
        return self._taken_up is not None

    async def forget_found(self) -> None:
        """From now on switches hold the entries of the desired state only."""
        self._taken_up = None
        held, locks = self._held, self._locks
        # One that is being read back now may keep entries still.
        await self._correct(
            [n for n in self.clients if held[n].kept or not held[n].sure or locks[n].locked()]
        )

    def entries(self, name: str) -> int:
        """How many table entries the switch holds, as far as the controller knows."""
        return sum(self._held[name].tables.values())

    def tables(self, name: str) -> Mapping[str, int]:
        """How many entries each table of the switch holds, as far as the controller knows."""
        return self._held[name].tables

    def not_ready(self) -> Mapping[str, str]:
        """The switches that have no session, or not the entries that they should have, and why."""
        return {
            name: why for name, client in self.clients.items() if (why := self._why_not_ready(name, client))
        }

    def _why_not_ready(self, name: str, client: SwitchClient) -> str:
        if client.state != "ready":
            return f"no session: {client.why or 'it has not answered yet'}"
        if not self._held[name].sure:
            return "its entries are not as the plan wants them: it refused some, or a write broke off"
        return ""

    async def apply(
        self, wanted: DesiredState, ready: PreparedWrites | None = None
    ) -> tuple[RefusedUpdate, ...]:
        """Bring every switch that is in service to the state `wanted`; returns the updates still refused.

        `ready` may hold writes that were computed before.
        """
        self._wanted = wanted
        there = [name for name, client in self.clients.items() if client.state == "ready"]
        sure = {name: self._held[name].wanted for name in there if self._held[name].sure}
        writes: dict[str, SwitchWrites] = {}
        if ready is not None:
            prepared = [name for name, held in sure.items() if held == ready.wanted]
            writes = self._of_all(prepared, ready.writes)
        unprepared = {name: held for name, held in sure.items() if name not in writes}
        if unprepared:
            # Without writes a switch is read back first, which is safe but slower.
            with contextlib.suppress(RunnerError):
                writes |= self._of_all(unprepared, await self._runner.run(writes_to, unprepared, wanted))
        todo = [n for n in there if not self._stays(n, wanted, writes.get(n), sure.get(n))]
        results = await begun_in_turn(
            lambda name: self._bring(name, wanted, writes.get(name), since=sure.get(name)), todo
        )
        return tuple(error for errors in results for error in errors)

    def _of_all(self, names: Iterable[str], found: Mapping[str, SwitchWrites]) -> dict[str, SwitchWrites]:
        """The writes for each of these switches. Those that `found` lacks need none."""
        return {name: found.get(name) or SwitchWrites((), 0, self._held[name].tables) for name in names}

    def _stays(
        self, name: str, wanted: DesiredState, writes: SwitchWrites | None, since: DesiredState | None
    ) -> bool:
        """Whether a switch holds `wanted` already, as no writes lead there from `since`: it needs no task."""
        held = self._held[name]
        known = held.sure and held.wanted is since and not self._locks[name].locked()
        if writes is None or writes.stages or not known:
            return False
        held.wanted, held.tables = wanted, writes.tables
        return True

    async def read_back(self) -> None:
        """Read the tables of all switches in service, and correct what differs from the desired state."""
        await self._correct(self.clients)

    async def _correct(self, names: Iterable[str]) -> None:
        """Read those of these switches that are in service back, READ_BACKS_AT_ONCE at a time."""

        async def correct(name: str) -> None:
            if self.clients[name].state == "ready":
                log_refused(await self._bring(name, None, None))

        await few_at_once(READ_BACKS_AT_ONCE, correct, names)

    async def packet_out(self, name: str, payload: bytes, egress_port: int, submit_to_ingress: bool) -> bool:
        """Send a frame. False, with a line in the log, if the switch has no session."""
        try:
            await self.clients[name].packet_out(payload, egress_port, submit_to_ingress)
        except SessionError as error:
            log.warning("switch %s: a packet-out was not sent: %s", name, error)
            return False
        return True

    def post_frame(self, name: str, payload: bytes, egress_port: int, submit_to_ingress: bool) -> None:
        """Send a frame without waiting for the switch. A switch that takes no more frames costs them, with a
        line in the log.
        """
        if self.clients[name].post_frame(payload, egress_port, submit_to_ingress):
            self._unsent.discard(name)
        elif name not in self._unsent:
            self._unsent.add(name)
            log.warning("switch %s: packet-outs are not sent: it has no session, or it takes none", name)

    async def read_counters(self) -> Mapping[str, tuple[CounterValue, ...]]:
        """Packets, bytes and ECN marks of every queue of every wired port, for each switch in service."""
        return await self._counters.read()

    async def read_tables(self, name: str) -> tuple[bytes, ...]:
        """Every table entry of a switch between two writes, as serialised ReadResponses. Raises
        SessionError.
        """
        async with self._locks[name]:
            return await self.clients[name].read_tables()

    # Reports of the switches' clients.

    async def switch_connected(self, name: str, fresh: bool) -> None:
        """Write the tables of a switch whose session has just begun."""
        held = self._held[name]
        held.wanted, held.sure = None, fresh
        # The desired state may change during the writes.
        while held.wanted != self._wanted:
            wanted, writes = self._wanted, None
            if held.sure:
                with contextlib.suppress(RunnerError):
                    found = await self._runner.run(writes_to, {name: held.wanted}, wanted)
                    writes = self._of_all((name,), found)[name]
            log_refused(await self._bring(name, wanted, writes, since=held.wanted))
            if not held.sure:
                break

    def switch_ready(self, name: str, ports: Mapping[int, bool] | None) -> None:
        """Pass the report on, and write what was asked for while the switch was coming into service."""
        if self._held[name].sure and self._held[name].wanted != self._wanted:
            self._tasks.append(asyncio.create_task(self._catch_up(name)))
        self._listener.switch_ready(name, ports)

    def switch_lost(self, name: str, why: str) -> None:
        """Forget what the switch holds, and pass the report on."""
        self.sessions_lost[name] += 1
        self._held[name] = _Held()
        self._listener.switch_lost(name, why)

    def packet_in(self, name: str, packet: PacketIn) -> None:
        """Pass the packet-in on."""
        self._listener.packet_in(name, packet)

    def port_states(self, name: str, states: Mapping[int, bool]) -> None:
        """Pass the port states on. A switch at the other end of such a cable may have lost its power: its
        session may stand, although it has forgotten its tables.
        """
        for port in states:
            peer = self._topology.ports[name].get(port)
            if peer is not None and peer.node in self.clients:
                self.clients[peer.node].suspect()
        self._listener.port_states(name, states)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A client runs until it is cancelled. If it ends by itself, there was an unexpected error."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error(
                "switch %s: its session ends for good after an internal error",
                task.get_name(),
                exc_info=error,
            )
            self.switch_lost(task.get_name(), f"internal error: {error}")

    async def _catch_up(self, name: str) -> None:
        log_refused(await self._bring(name, None, None))

    async def _bring(
        self,
        name: str,
        wanted: DesiredState | None,
        writes: SwitchWrites | None,
        *,
        since: DesiredState | None = None,
    ) -> tuple[RefusedUpdate, ...]:
        """Write to one switch, so that it holds what is wanted when its turn comes.

        `writes` lead to `wanted` from the state `since`; if it holds `wanted` by now, it needs none. Without
        them, if another state is wanted or held by now, or after a refusal, its tables are read back first.
        """
        errors: tuple[RefusedUpdate, ...] = ()
        async with self._locks[name]:
            held = self._held[name]
            if held.sure and held.wanted is wanted is self._wanted:
                return ()
            # Writes that waited for their turn must not bring back a state that is not wanted any more.
            if wanted is not self._wanted or held.wanted is not since or not held.sure:
                writes = None
            wanted = self._wanted
            for _ in range(RETRIES + 1):
                try:
                    if writes is None:
                        read = await self.clients[name].read_tables()
                        writes = await self._runner.run(reconcile, name, read, wanted, self._found(wanted))
                        held.kept = writes.kept
                        level = logging.WARNING if held.sure and writes.updates else logging.INFO
                        if level == logging.WARNING:
                            self.corrected_updates[name] += writes.updates
                        words = "switch %s: read back %d entries; %d updates lead to the desired state"
                        log.log(level, words, name, writes.read, writes.updates)
                    errors = await self.clients[name].write(writes.stages)
                    self.refused_updates[name] += len(errors)
                except (SessionError, RunnerError) as error:
                    held.sure = False
                    log.warning(
                        "switch %s: its tables were not written: %s; they are read back and written in %g s, "
                        "or when its next session begins",
                        *(name, error, RETRY_S),
                    )
                    self._retry_later(name)
                    return ()
                held.wanted, held.sure, held.tables = wanted, not errors, writes.tables
                if not errors:
                    break
                writes = None
        return errors

    def _retry_later(self, name: str) -> None:
        """A session may outlive a silence that a write did not: then no new session corrects the tables."""
        if name not in self._retries:
            self._retries[name] = asyncio.create_task(self._retry(name))

    async def _retry(self, name: str) -> None:
        await asyncio.sleep(RETRY_S)
        del self._retries[name]
        if self.clients[name].state == "ready" and not self._held[name].sure:
            await self._catch_up(name)

    def _found(self, wanted: DesiredState) -> Found:
        if self._taken_up is None:
            return Found.REMOVE
        # The earlier controller may have written a later plan than the one that it has stored.
        return Found.PREFER if wanted == self._taken_up else Found.KEEP


def log_refused(errors: Iterable[RefusedUpdate]) -> None:
    """Log each update that a switch has refused."""
    for error in errors:
        log.error("switch %s refused: %s; its error: %s", error.switch, error.what, error.why)
