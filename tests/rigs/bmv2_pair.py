# SPDX-License-Identifier: Apache-2.0
"""The switch and the reference interpreter side by side, and random entries for any program."""

from collections import deque
from contextlib import suppress
from random import Random
from typing import Any

from bmv2_rig import HeapClock

from bmv2 import EmbeddedSwitch, P4Program
from bmv2.entries import (
    Exact,
    GroupMember,
    Lpm,
    MatchValue,
    MeterConfig,
    Range,
    TableEntry,
    TableEntryError,
    Ternary,
)
from bmv2.ir import FieldRef, KeyField, Table
from bmv2.meters import Meter
from bmv2.reference import Reference

# Packets that come again do so 1 us later; what comes after so many generations is left for the next check.
GENERATIONS = 6


class Pair:
    """Both, with the same entries, groups and sessions; `check` compares all that one frame causes."""

    def __init__(self, program: P4Program, ports: range) -> None:
        self.clock = HeapClock()
        self.sent: list[tuple[int, bytes]] = []
        self.learnt: list[tuple[str, tuple[int, ...]]] = []
        self.logged: list[str] = []
        self.switch = EmbeddedSwitch("sw", self.clock, seed=5)
        self.switch.load(program)
        for port in ports:
            self.switch.add_port(
                port, rate_bps=None, transmit=lambda frame, port=port: self.sent.append((port, frame))
            )
        self.switch.packet_in = lambda frame: self.sent.append((255, frame))
        self.switch.digest = lambda name, values: self.learnt.append((name, values))
        self.switch.log = self.logged.append
        self.ports = {*ports, 255}
        self.reference = Reference(program.ir, rng=Random("5:sw"))
        self.pending: deque[tuple[int, str, tuple[Any, ...]]] = deque()

    def insert(self, table: str, entry: TableEntry) -> bool:
        """Write an entry into both, unless the table holds its match already."""
        with suppress(TableEntryError):
            self.switch.insert(table, entry)
            self.reference.entries[table].append(entry)
            return True
        return False

    def set_group(self, group: int, replicas: tuple[tuple[int, int], ...]) -> None:
        self.switch.set_multicast_group(group, replicas)
        self.reference.groups[group] = replicas

    def set_session(self, session: int, replicas: tuple[tuple[int, int], ...], truncate: int) -> None:
        self.switch.set_clone_session(session, replicas, truncate)
        self.reference.sessions[session] = (replicas, truncate)

    def expected(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """What leaves within the generations that a check lets pass."""
        now = self.clock.now // 1000
        self.pending.appendleft((now, "frame", (port, frame, None)))
        result: list[tuple[int, bytes]] = []
        while self.pending and self.pending[0][0] <= now + GENERATIONS:
            time, kind, rest = self.pending.popleft()
            copies = [rest] if kind == "copy" else self.reference.ingress(rest[0], rest[1], time, rest[2])
            # Ingress hands its frame on before egress can make it come again.
            self._collect(time)
            for out, priority, packet in copies:
                if priority < 8:
                    left = self.reference.egress(packet, out, priority, time, 0, time, 0)
                    self._collect(time)
                    if left is not None and out in self.ports:
                        result.append((out, left))
        return result

    def _collect(self, time: int) -> None:
        reference = self.reference
        self.pending += [(time + 1, "copy", clone) for clone in reference.clones]
        self.pending += [(time + 1, "frame", again) for again in reference.again]
        reference.clones.clear()
        reference.again.clear()

    def check(self, port: int, frame: bytes) -> None:
        self.sent.clear()
        self.switch.receive(port, frame)
        self.clock.run(self.clock.now + GENERATIONS * 1000)
        self.clock.now -= GENERATIONS * 1000
        assert self.sent == self.expected(port, frame)
        assert self.learnt == self.reference.digests
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
        assert [text for text in self.logged if "failed in" not in text] == self.reference.logs


def random_match(rng: Random, part: KeyField) -> MatchValue:
    """A match of a key's kind, often one that hits."""
    full = (1 << part.width) - 1
    value = rng.choice((0, 1, full, rng.getrandbits(part.width))) & full
    if part.kind == "lpm":
        return Lpm(value, rng.choice((0, part.width, rng.randint(0, part.width))))
    if part.kind == "ternary":
        return Ternary(value, rng.choice((0, full, rng.getrandbits(part.width))))
    if part.kind == "range":
        return Range(*sorted((value, rng.getrandbits(part.width))))
    return Exact(value)


def random_part(rng: Random, width: int) -> int | MatchValue:
    """One field of a value set's member: mostly a plain integer."""
    if rng.random() < 0.6:
        return rng.choice((rng.getrandbits(width), rng.randint(0, 3) & ((1 << width) - 1)))
    kind = rng.choice(("exact", "lpm", "ternary", "range"))
    return random_match(rng, KeyField("", kind, FieldRef("", ""), width, None))


def random_call(rng: Random, table: Table) -> tuple[str, tuple[int, ...]]:
    """One of a table's actions with random arguments, small ones more often."""
    name = rng.choice(list(table.actions))
    params = tuple(
        rng.choice((rng.getrandbits(width), rng.randint(0, 5) & ((1 << width) - 1)))
        for _, width in table.actions[name].params
    )
    return name, params


def random_config(rng: Random) -> MeterConfig:
    rates = sorted((rng.choice((0, 1000, 100_000)), rng.choice((1000, 1_000_000))))
    return MeterConfig(rates[0], rng.randint(0, 200), rates[1], rng.randint(0, 400))


def fill(pair: Pair, rng: Random) -> None:
    """Random entries, members, groups, sessions, meters and value sets for whatever the program has."""
    program = pair.switch.program
    assert program is not None
    ir = program.ir
    _fill_profiles(pair, rng)
    for table in ir.tables():
        if not table.key or table.initial_entries is not None:
            continue
        for priority in range(1, rng.randint(1, 7)):
            match = tuple(random_match(rng, part) for part in table.key)
            ranked = any(part.kind in ("ternary", "range") for part in table.key)
            entry = _random_entry(pair, rng, table, match, priority if ranked else 0)
            if pair.insert(table.name, entry) and table.direct_meter is not None and rng.random() < 0.7:
                config = random_config(rng)
                pair.switch.set_direct_meter(table.name, entry, config)
                meter = Meter(ir.meters[table.direct_meter].by_bytes)
                meter.set(config)
                pair.reference.direct_meters[table.name, entry] = meter
    for name, meter in ir.meters.items():
        for index in range(min(meter.size, 4) if meter.target is None else 0):
            config = random_config(rng)
            pair.switch.set_meter(name, index, config)
            pair.reference.meters[name][index].set(config)
    for name, known in ir.value_sets.items():
        members = {
            tuple(random_part(rng, width) for width in known.widths)
            for _ in range(5 if known.size is None else min(known.size, 5))
        }
        pair.switch.set_value_set(name, tuple(members))
        pair.reference.value_sets[name] = members
    for number in (1, 2, 3, 5):
        replicas = tuple((rng.randrange(6), rng.randrange(4)) for _ in range(rng.randint(1, 3)))
        pair.set_group(number, replicas)
        pair.set_session(number, replicas[:1], rng.choice((0, 0, 10, 40)))


def _random_entry(
    pair: Pair, rng: Random, table: Table, match: tuple[MatchValue, ...], priority: int
) -> TableEntry:
    if table.profile is None:
        return TableEntry(match, priority, *random_call(rng, table))
    groups = [number for name, number in pair.reference.member_groups if name == table.profile]
    if groups and rng.random() < 0.6:
        return TableEntry(match, priority, "", group=rng.choice(groups))
    members = [number for name, number in pair.reference.members if name == table.profile]
    return TableEntry(match, priority, "", member=rng.choice(members))


def _fill_profiles(pair: Pair, rng: Random) -> None:
    program = pair.switch.program
    assert program is not None
    for name, profile in program.ir.profiles.items():
        tables = [table for table in program.ir.tables() if table.profile == name]
        if not tables:
            continue
        numbers = rng.sample(range(100), min(profile.size or 5, 5))
        for number in numbers:
            call = random_call(rng, tables[0])
            pair.switch.add_member(name, number, *call)
            pair.reference.members[name, number] = call
        for group in (1, 2) if profile.selector is not None else ():
            chosen = [number for number in numbers if rng.random() < 0.6]
            pair.switch.add_group(name, group, tuple(GroupMember(number) for number in chosen))
            pair.reference.member_groups[name, group] = chosen
