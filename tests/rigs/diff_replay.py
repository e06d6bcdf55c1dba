# SPDX-License-Identifier: Apache-2.0
"""A recorded scenario put to the embedded switch in this process: no sockets, no threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from diff_driver import Answer, Counts, without_zeros
from diff_golden import Scenario, by_port, masked
from diff_workload import CPU_PORT
from finsy.proto import p4r

from bmv2.program import load_program
from bmv2.server.dataplane import DataPlane
from bmv2.server.schema import Schema
from bmv2.server.store import EntityStore
from bmv2.switch import EmbeddedSwitch


class StillClock:
    """A clock that stands; timed events are run when the caller says."""

    def __init__(self) -> None:
        self.now = 0
        self._events: list[tuple[Callable[..., None], tuple[object, ...]]] = []

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: object) -> None:
        self._events.append((callback, args))

    def run(self) -> None:
        """Run what is due, in the order it was asked for."""
        while self._events:
            callback, args = self._events.pop(0)
            callback(*args)


class InProcess:
    """The embedded switch with every port, answering frame by frame; with `bmv2` its ports queue as BMv2's."""

    def __init__(self, config: p4r.ForwardingPipelineConfig, *, bmv2: bool = False) -> None:
        self._clock = StillClock()
        self._out: list[Answer] = []
        self._switch = EmbeddedSwitch("golden", self._clock, cpu_port=CPU_PORT)
        for port in range(511):
            transmit = partial(self._transmit, port)
            if port != CPU_PORT and bmv2:
                self._switch.add_bmv2_port(port, queue_rate_pps=None, transmit=transmit)
            elif port != CPU_PORT:
                self._switch.add_port(port, rate_bps=None, transmit=transmit)
        self._switch.packet_in = partial(self._transmit, CPU_PORT)
        self._plane = DataPlane(self._switch, lambda kind, message: None)
        program = load_program(config.p4_device_config)
        self._schema = Schema.parse(config.p4info, program.ir)
        self._store = EntityStore(self._schema, program.ir)
        self._plane.load(program, self._store.tables.preinitialised)

    def _transmit(self, port: int, frame: bytes) -> None:
        self._out.append((port, frame))

    def write(self, updates: list[p4r.Update]) -> None:
        """Check and apply updates as the P4Runtime server does."""
        for update in updates:
            self._store.apply(update)(self._plane)

    def exchange(self, port: int, frame: bytes) -> list[Answer]:
        """Put a frame in, and give all that comes out because of it."""
        self._switch.receive(port, frame)
        self._clock.run()
        out, self._out = self._out, []
        return out

    def counters(self) -> Counts:
        """Every counter's cells that are not 0, in the units it counts."""
        counts: Counts = {}
        for counter in self._schema.counters.values():
            cells = self._switch.read_counter(counter.name)
            counts[counter.name] = {
                index: (packets * counter.counts_packets, size * counter.counts_bytes)
                for index, (packets, size) in enumerate(cells)
            }
        return without_zeros(counts)


def replay(
    config: p4r.ForwardingPipelineConfig, scenario: Scenario, *, bmv2: bool = False
) -> tuple[list[str], Counts]:
    """Run a scenario; gives a line for each packet that another answer came to, and the counters."""
    switch = InProcess(config, bmv2=bmv2)
    differences = []
    for number, part in enumerate(scenario.rounds):
        switch.write(part.updates)
        given: list[Answer] = []
        for position, ((port, frame), wanted) in enumerate(zip(part.packets, part.answers, strict=True)):
            if position % scenario.burst == 0:
                given = []
            given += [masked((port, frame), answer) for answer in switch.exchange(port, frame)]
            if (position + 1) % scenario.burst == 0 and by_port(given) != by_port(wanted):
                where = f"seed {scenario.seed}, round {number}, packet {position}, port {port}"
                differences.append(
                    f"{where}: {frame.hex()}\n  given  {_show(given)}\n  wanted {_show(wanted)}"
                )
    return differences, switch.counters()


def _show(answers: list[Answer]) -> str:
    return ", ".join(f"port {port} {frame.hex()}" for port, frame in answers) or "nothing"
