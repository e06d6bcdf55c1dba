# SPDX-License-Identifier: Apache-2.0
"""Generated code against the plain interpreter: same packets and counters on random programs and ours."""

from pathlib import Path
from random import Random

import pytest
from bmv2_programs import RandomProgram
from hypothesis import given, settings
from hypothesis import strategies as st

from bmv2 import EmbeddedSwitch, Program, load_program
from bmv2.entries import EntryError, EntryFault, Exact, Lpm, MatchValue, Range, TableEntry, Ternary
from bmv2.reference import Reference

MATCHES = {"exact": Exact, "lpm": Lpm, "ternary": Ternary, "range": Range}
OURS = Path(__file__).parents[2] / "p4" / "build" / "polyrhythm.v1model.json"


class StillClock:
    """A clock that the test moves; ports without a rate need no events."""

    def __init__(self) -> None:
        self.now = 0

    def call_at(self, time_ns: int, callback: object, *args: object) -> None:
        raise AssertionError("a port without a rate needs no event")


class Pair:
    """The switch and the reference, side by side."""

    def __init__(self, program: Program, ports: range) -> None:
        self.clock = StillClock()
        self.sent: list[tuple[int, bytes]] = []
        self.switch = EmbeddedSwitch("sw", self.clock, seed=5)
        self.switch.load(program)
        for port in ports:
            self.switch.add_port(port, rate_bps=None, transmit=lambda frame, port=port: self.sent.append((port, frame)))
        self.switch.packet_in = lambda frame: self.sent.append((255, frame))
        self.ports = {*ports, 255}
        self.reference = Reference(program.ir, rng=Random("5:sw"))

    def insert(self, table: str, entry: TableEntry) -> None:
        try:
            self.switch.insert(table, entry)
        except EntryError as error:
            assert error.fault is EntryFault.EXISTS
            return
        self.reference.entries[table].append(entry)

    def expected(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        now = self.clock.now // 1000
        result = []
        for out, priority, packet in self.reference.ingress(port, frame, now):
            if out in self.ports and priority < 8:
                left = self.reference.egress(packet, out, priority, now, 0, now, 0)
                if left is not None:
                    result.append((out, left))
        return result

    def check(self, port: int, frame: bytes) -> None:
        self.sent.clear()
        self.switch.receive(port, frame)
        assert self.sent == self.expected(port, frame)
        self.clock.now += 12345

    def check_state(self) -> None:
        program = self.switch.program
        assert program is not None
        for name in program.ir.counters:
            assert self.switch.read_counter(name) == [tuple(cell) for cell in self.reference.counters[name]]
        for name in program.ir.registers:
            assert self.switch.read_register(name) == self.reference.registers[name]
        for table in program.ir.tables():
            if table.direct_counter:
                for entry in self.reference.entries[table.name]:
                    expected = self.reference.direct.get((table.name, entry), [0, 0])
                    assert self.switch.read_direct_counter(table.name, entry) == tuple(expected)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32))
def test_random_programs_behave_like_the_reference(seed: int) -> None:
    rng = Random(seed)
    made = RandomProgram(rng)
    pair = Pair(load_program(made.json), range(4))
    for table, match, priority, action, params in made.entries:
        values: list[MatchValue] = [MATCHES[kind](*rest) for kind, *rest in match]
        pair.insert(table, TableEntry(tuple(values), priority, action, tuple(params)))
    for _ in range(25):
        size = rng.choice((0, 1, 5, 20, 40, 64, 100))
        frame = rng.randbytes(size) if rng.random() < 0.7 else bytes(size)
        pair.check(rng.randrange(4), frame)
    pair.check_state()
