# SPDX-License-Identifier: Apache-2.0
"""The embedded switch: a program's generated pipeline between ports with strict-priority queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any

from .boundary import DataPlaneClock
from .codegen.runtime import log_text
from .control import ControlPlane
from .entries import TableEntry
from .failover import PortTable, PortWatch
from .packet_scheduler import BMV2_QUEUE_PACKETS, PacketRatePort
from .program import P4Program
from .scheduler import SwitchPort

# A packet that is resubmitted, recirculated or cloned in egress comes back this much later, so that one
# that comes back for ever does not stop time.
_AGAIN_NS = 1000
_LOST_QUEUE = 64


class EmbeddedSwitch(ControlPlane):
    """One switch, driven by its clock on the data-plane thread.

    `packet_in` gets whole frames that the pipeline sent to the CPU port; `port_state_changed` gets
    (port, up); `digest` gets (name, values) of each digest message; `log` what the program logs.
    `drop_port` is the egress_spec that means "drop" (BMv2's 511). `failed_assertions` counts packets
    that an assert or assume of the program has ended.
    """

    def __init__(
        self,
        name: str,
        clock: DataPlaneClock,
        *,
        cpu_port: int = 255,
        drop_port: int = 511,
        queues: int = 8,
        seed: int = 0,
        port_table: PortTable | None = None,
    ) -> None:
        """`port_table`: what the switch keeps of its own port states in programs that have such a table."""
        super().__init__(name, clock)
        self.packet_in: Callable[[bytes], None] | None = None
        self.port_state_changed: Callable[[int, bool], None] | None = None
        self.digest: Callable[[str, tuple[int, ...]], None] | None = None
        self.log: Callable[[str], None] | None = None
        self.program: P4Program | None = None
        self.misdirected = 0
        self.failed_assertions = 0
        self._cpu_port = cpu_port
        self._drop_port = drop_port
        self._queues = queues
        self._seed = seed
        self._port_watch = None if port_table is None else PortWatch(clock, port_table)
        self._watched_table = ""
        self._ports: dict[int, SwitchPort] = {}
        self._unconnected: dict[int, SwitchPort] = {}
        self._ingress: Callable[..., None] | None = None
        self._egress: Callable[..., bytes | None] | None = None
        self._replica: Callable[[Any, int], Any] | None = None
        self._cpu = SwitchPort(
            cpu_port, clock, self._to_cpu, rate_bps=None, queues=queues, queue_packets=1 << 16
        )

    @property
    def ports(self) -> Mapping[int, SwitchPort]:
        """The ports by number, without the CPU's."""
        return MappingProxyType(self._ports)

    @property
    def cpu_port(self) -> int:
        """The port number that means the controller."""
        return self._cpu_port

    def load(self, program: P4Program) -> None:
        """Run another program: tables, all other state and queues begin empty."""
        self._build(program.ir)
        self.program = program
        self._ingress, self._egress, self._replica = program.generated.bind(
            tables=self._tables,
            counters=self._counters,
            registers=self._registers,
            meters=self._meters,
            customs=self._customs,
            value_sets=self._value_sets,
            sessions=self._sessions,
            rng=Random(f"{self._seed}:{self.name}"),
            DROP=self._drop_port,
            enqueue=self._enqueue,
            multicast=self._multicast,
            clone=self._clone,
            clone_later=self._clone_later,
            again=self._again,
            learn=self._learn,
            log=self._log,
            failed=self._failed,
        )
        for port in (self._cpu, *self._ports.values(), *self._unconnected.values()):
            port.reset(self._egress)
        self._load_port_states({number for number, port in self._ports.items() if not port.up})

    def _load_port_states(self, down: Iterable[int]) -> None:
        """Tell a new program's state which ports are down."""
        for number in down:
            self._watch(number, up=False)
        if self._port_watch is not None:
            name = self._port_watch.kept.table
            self._watched_table = name if self._port_watch.load(self._tables.get(name), down) else ""

    def insert(self, table: str, entry: TableEntry) -> None:
        """Add an entry; EntryError where it exists, does not fit or the table is full."""
        if table == self._watched_table and self._port_watch is not None:
            self._port_watch.insert(entry)
        else:
            super().insert(table, entry)

    def delete(self, table: str, entry: TableEntry) -> None:
        """Remove the entry with this match and priority."""
        if table == self._watched_table and self._port_watch is not None:
            self._port_watch.delete(entry)
        else:
            super().delete(table, entry)

    def add_port(
        self,
        port: int,
        *,
        rate_bps: int | None,
        transmit: Callable[[bytes], None],
        queue_packets: int = 256,
        queue_bytes: int | None = None,
    ) -> None:
        """Add a port that is up: rate in bit/s (None: no limit), depth of each queue in packets.

        `queue_bytes` bounds each queue in bytes besides, in frames as received (None: packets only).
        """
        self._attach(
            SwitchPort(
                port,
                self.clock,
                transmit,
                rate_bps=rate_bps,
                queues=self._queues,
                queue_packets=queue_packets,
                queue_bytes=queue_bytes,
            )
        )

    def add_bmv2_port(
        self,
        port: int,
        *,
        queue_rate_pps: int | None,
        transmit: Callable[[bytes], None],
        queue_packets: int = BMV2_QUEUE_PACKETS,
    ) -> None:
        """Add a port that queues as BMv2's do: each queue at its own rate in packets/s (None: no limit)."""
        added = PacketRatePort(port, self.clock, transmit, queues=self._queues, queue_packets=queue_packets)
        added.set_queue_rate(queue_rate_pps)
        self._attach(added)

    def _attach(self, added: SwitchPort) -> None:
        if added.number in self._ports or added.number in (self._cpu_port, self._drop_port):
            raise ValueError(f"{self.name}: port {added.number} is taken")
        if self._egress is not None:
            added.reset(self._egress)
        self._ports[added.number] = added

    def set_port_up(self, port: int, up: bool) -> None:
        """Bring a port up or down; down loses what waits in its queues, and what arrives."""
        known = self._port(port)
        if known.up != up:
            known.set_up(up)
            self._watch(port, up)
            if self._port_watch is not None:
                self._port_watch.port_changed(port, up)
            if self.port_state_changed is not None:
                self.port_state_changed(port, up)

    def _watch(self, port: int, up: bool) -> None:
        for profile in self._profiles.values():
            profile.set_port_up(port, up)

    def port_up(self, port: int) -> bool:
        """Whether the port is up."""
        return self._port(port).up

    def _port(self, port: int) -> SwitchPort:
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
            target = self._cpu if port == self._cpu_port else self._nowhere(port)
        if priority >= self._queues:
            # BMv2 logs a priority without a queue, and drops the packet.
            self.misdirected += 1
            return
        target.enqueue(priority, state)

    def _nowhere(self, port: int) -> SwitchPort:
        """Handle a packet for a port that does not exist. As in BMv2, egress still processes the packet and
        may copy it.
        """
        known = self._unconnected.get(port)
        if known is None:
            known = SwitchPort(
                port, self.clock, self._lose, rate_bps=None, queues=self._queues, queue_packets=_LOST_QUEUE
            )
            if self._egress is not None:
                known.reset(self._egress)
            self._unconnected[port] = known
        return known

    def _lose(self, _frame: bytes) -> None:
        self.misdirected += 1

    def _multicast(self, group: int, priority: int, state: Any) -> None:
        self._replicate(self._groups.get(group, ()), priority, state)

    def _clone(self, session: int, state: Any, priority: int) -> None:
        self._replicate(self._clones.get(session, ()), priority, state)

    def _clone_later(self, session: int, state: Any, priority: int) -> None:
        """Make a clone of egress. It follows the packet of which it is a copy."""
        later = self.clock.now + _AGAIN_NS
        self.clock.call_at(later, self._come_cloned, self._ingress, session, state, priority)

    def _come_cloned(self, ingress: Callable[..., None], session: int, state: Any, priority: int) -> None:
        if ingress is self._ingress:
            self._clone(session, state, priority)

    def _replicate(self, replicas: tuple[tuple[int, int], ...], priority: int, state: Any) -> None:
        assert self._replica is not None
        for port, rid in replicas:
            self._enqueue(port, priority, self._replica(state, rid))

    def _again(self, port: int, frame: bytes, kind: int, fields: int, kept: tuple[int, ...]) -> None:
        """Process a resubmitted or recirculated packet, with the metadata that it keeps."""
        back = (kind, fields, kept)
        self.clock.call_at(self.clock.now + _AGAIN_NS, self._come_again, self._ingress, port, frame, back)

    def _come_again(self, ingress: Callable[..., None], port: int, frame: bytes, back: Any) -> None:
        # A program that was replaced in the meantime takes its packets with it.
        if ingress is self._ingress:
            ingress(port, frame, len(frame), self.clock.now // 1000, back)

    def _learn(self, name: str, values: tuple[int, ...]) -> None:
        if self.digest is not None:
            self.digest(name, values)

    def _log(self, text: str, values: tuple[int, ...]) -> None:
        if self.log is not None:
            self.log(log_text(text, values))

    def _failed(self, text: str) -> None:
        self.failed_assertions += 1
        if self.log is not None:
            self.log(text)

    def _to_cpu(self, frame: bytes) -> None:
        if self.packet_in is not None:
            self.packet_in(frame)
