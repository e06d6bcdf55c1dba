# SPDX-License-Identifier: Apache-2.0
"""The embedded switch: a program's generated pipeline between ports with strict-priority queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any

from .boundary import Clock
from .entries import EntryError, EntryFault, TableEntry
from .program import Program
from .scheduler import Port
from .tables import MatchTable


class CounterArray:
    """An indirect counter: packets and bytes of each index, in lists that generated code increments."""

    __slots__ = ("bytes", "packets")

    def __init__(self, size: int) -> None:
        self.packets = [0] * size
        self.bytes = [0] * size


class EmbeddedSwitch:
    """One switch, driven by its clock on the data-plane thread.

    `packet_in` gets whole frames that the pipeline sent to the CPU port; `port_state_changed` gets
    (port, up). `drop_port` is the egress_spec that means "drop" (BMv2's 511).
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        cpu_port: int = 255,
        drop_port: int = 511,
        queues: int = 8,
        seed: int = 0,
    ) -> None:
        self.name = name
        self.packet_in: Callable[[bytes], None] | None = None
        self.port_state_changed: Callable[[int, bool], None] | None = None
        self.program: Program | None = None
        self.misdirected = 0
        self.clock = clock
        self._cpu_port = cpu_port
        self._drop_port = drop_port
        self._queues = queues
        self._seed = seed
        self._ports: dict[int, Port] = {}
        self._tables: dict[str, MatchTable] = {}
        self._counters: dict[str, CounterArray] = {}
        self._registers: dict[str, list[int]] = {}
        self._groups: dict[int, tuple[tuple[int, int], ...]] = {}
        self._ingress: Callable[..., None] | None = None
        self._egress: Callable[..., bytes | None] | None = None
        self._replica: Callable[[Any, int], Any] | None = None
        self._cpu = Port(cpu_port, clock, self._to_cpu, rate_bps=None, queues=queues, queue_packets=1 << 16)

    @property
    def ports(self) -> Mapping[int, Port]:
        """The ports by number, without the CPU's."""
        return MappingProxyType(self._ports)

    @property
    def cpu_port(self) -> int:
        """The port number that means the controller."""
        return self._cpu_port

    def load(self, program: Program) -> None:
        """Run another program: tables, counters, registers, groups and queues begin empty."""
        ir = program.ir
        self.program = program
        self._tables = {table.name: MatchTable(table) for table in ir.tables()}
        self._counters = {name: CounterArray(size) for name, size in ir.counters.items()}
        self._registers = {name: [0] * size for name, (size, _) in ir.registers.items()}
        self._groups.clear()
        self._ingress, self._egress, self._replica = program.generated.bind(
            tables=self._tables,
            counters=self._counters,
            registers=self._registers,
            rng=Random(f"{self._seed}:{self.name}"),
            DROP=self._drop_port,
            enqueue=self._enqueue,
            multicast=self._multicast,
        )
        for port in (self._cpu, *self._ports.values()):
            port.reset(self._egress)

    def add_port(
        self,
        port: int,
        *,
        rate_bps: int | None,
        transmit: Callable[[bytes], None],
        queue_packets: int = 256,
    ) -> None:
        """Add a port that is up: rate in bit/s (None: no limit), depth of each queue in packets."""
        if port in self._ports or port in (self._cpu_port, self._drop_port):
            raise ValueError(f"{self.name}: port {port} is taken")
        added = Port(
            port, self.clock, transmit, rate_bps=rate_bps, queues=self._queues, queue_packets=queue_packets
        )
        if self._egress is not None:
            added.reset(self._egress)
        self._ports[port] = added

    def set_port_up(self, port: int, up: bool) -> None:
        """Bring a port up or down; down loses what waits in its queues, and what arrives."""
        known = self._port(port)
        if known.up != up:
            known.set_up(up)
            if self.port_state_changed is not None:
                self.port_state_changed(port, up)

    def port_up(self, port: int) -> bool:
        """Whether the port is up."""
        return self._port(port).up

    def _port(self, port: int) -> Port:
        if port not in self._ports:
            raise KeyError(f"{self.name}: there is no port {port}; there are {sorted(self._ports)}")
        return self._ports[port]

    def receive(self, port: int, frame: bytes) -> None:
        """A frame arrives now; from the CPU port it carries the packet_out header."""
        ingress = self._ingress
        if ingress is None:
            return
        known = self._ports.get(port)
        if known is None:
            if port != self._cpu_port:
                self._port(port)
        elif not known.up:
            return
        ingress(port, frame, len(frame), self.clock.now // 1000)

    def _enqueue(self, port: int, priority: int, state: Any) -> None:
        target = self._ports.get(port)
        if target is None:
            target = self._cpu if port == self._cpu_port else None
        if target is None or priority >= self._queues:
            # BMv2 logs a priority without a queue and a port without an interface, and drops the packet.
            self.misdirected += 1
            return
        target.enqueue(priority, state)

    def _multicast(self, group: int, priority: int, state: Any) -> None:
        assert self._replica is not None
        for port, rid in self._groups.get(group, ()):
            self._enqueue(port, priority, self._replica(state, rid))

    def _to_cpu(self, frame: bytes) -> None:
        if self.packet_in is not None:
            self.packet_in(frame)

    def table(self, name: str) -> MatchTable:
        """A table by its name in the JSON; EntryError where there is none."""
        if name not in self._tables:
            raise EntryError(EntryFault.MISSING, f"{self.name}: there is no table '{name}'")
        return self._tables[name]

    def insert(self, table: str, entry: TableEntry) -> None:
        """Add an entry; EntryError where it exists, does not fit or the table is full."""
        self.table(table).insert(entry)

    def modify(self, table: str, entry: TableEntry) -> None:
        """Change the action of the entry with this match and priority."""
        self.table(table).modify(entry)

    def delete(self, table: str, entry: TableEntry) -> None:
        """Remove the entry with this match and priority."""
        self.table(table).delete(entry)

    def set_default(self, table: str, action: str | None, params: tuple[int, ...] = ()) -> None:
        """Set what a miss does; None is the program's own default."""
        self.table(table).set_default(action, params)

    def read_counter(self, name: str) -> list[tuple[int, int]]:
        """(packets, bytes) of each index of an indirect counter, a copy."""
        counter = self._counter(name)
        return list(zip(counter.packets, counter.bytes, strict=True))

    def write_counter(self, name: str, index: int, packets: int, bytes: int) -> None:
        """Set one index of an indirect counter."""
        counter = self._counter(name)
        if not 0 <= index < len(counter.packets):
            raise EntryError(
                EntryFault.INVALID, f"counter '{name}' has {len(counter.packets)} indices, got {index}"
            )
        counter.packets[index] = packets
        counter.bytes[index] = bytes

    def read_direct_counter(self, table: str, entry: TableEntry) -> tuple[int, int]:
        """(packets, bytes) of a table's entry."""
        packets, octets = self.table(table).counter(entry)
        return packets, octets

    def write_direct_counter(self, table: str, entry: TableEntry, packets: int, bytes: int) -> None:
        """Set the direct counter of a table's entry."""
        self.table(table).counter(entry)[:] = [packets, bytes]

    def read_register(self, name: str) -> list[int]:
        """The cells of a register array, a copy."""
        if name not in self._registers:
            raise EntryError(EntryFault.MISSING, f"{self.name}: there is no register '{name}'")
        return list(self._registers[name])

    def _counter(self, name: str) -> CounterArray:
        if name not in self._counters:
            raise EntryError(EntryFault.MISSING, f"{self.name}: there is no counter '{name}'")
        return self._counters[name]

    def set_multicast_group(self, group: int, replicas: tuple[tuple[int, int], ...]) -> None:
        """Set the (port, rid) pairs of a multicast group; an empty tuple deletes it."""
        if replicas:
            self._groups[group] = replicas
        else:
            self._groups.pop(group, None)
