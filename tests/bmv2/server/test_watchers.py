# SPDX-License-Identifier: Apache-2.0
"""Idle time-outs against their definition, and how many entries that are gone are remembered."""

from dataclasses import replace

from bmv2_rig import HeapClock
from finsy.proto import p4r
from hypothesis import given
from hypothesis import strategies as st

from bmv2.entries import Exact, TableEntry
from bmv2.server.watchers import Ageing

MS = 1_000_000


class Switch:
    """A switch whose entries are hit when the test says so."""

    def __init__(self):
        self.clock = HeapClock()
        self.hits = {}

    def entry_hit_time(self, table, entry):
        return self.hits.get(entry.match[0].value, 0)


def entry(number, timeout_ms=0):
    return TableEntry((Exact(number),), 0, "go", timeout_ns=timeout_ms * MS)


def notices(switch):
    """An Ageing, and the (time, entry number) that it tells."""
    told = []

    def notify(kind, message):
        (notice,) = message.idle_timeout_notification.table_entry
        told.append((switch.clock.now, notice.controller_metadata))

    return Ageing(switch, notify), told


def message(number):
    return p4r.TableEntry(controller_metadata=number)


DEEDS = st.tuples(
    st.sampled_from(["write", "write", "delete", "hit", "wait", "wait"]),
    st.integers(0, 3),
    st.integers(1, 40),
)


@given(st.lists(DEEDS, max_size=40))
def test_each_entry_is_told_after_each_time_out_without_a_hit(deeds):
    switch = Switch()
    ageing, told = notices(switch)
    # By number: the time-out in ms, and when the entry was written, hit or told last. Looked at every ms.
    plain, expected = {}, []
    for deed, number, amount in deeds:
        now = switch.clock.now
        if deed == "write":
            ageing.watch("t", entry(number, amount), message(number))
            plain[number] = [amount * MS, now]
            switch.hits.pop(number, None)
        elif deed == "delete":
            ageing.forget("t", entry(number))
            plain.pop(number, None)
        elif deed == "hit":
            switch.hits[number] = now
            if number in plain:
                plain[number][1] = now
        else:
            for _ in range(amount):
                switch.clock.run(switch.clock.now + MS)
                for key, (timeout, since) in plain.items():
                    if switch.clock.now - since >= timeout:
                        plain[key][1] = switch.clock.now
                        expected.append((switch.clock.now, key))
    assert sorted(told) == sorted(expected)


def test_the_shortest_and_the_longest_time_out():
    """Of a nanosecond, told once a millisecond; and of 292 years, which the clock's events must bear."""
    switch = Switch()
    ageing, told = notices(switch)
    switch.clock.run(5 * MS)
    ageing.watch("t", replace(entry(1), timeout_ns=1), message(1))
    ageing.watch("t", replace(entry(2), timeout_ns=(1 << 63) - 1), message(2))
    switch.clock.run(9 * MS)
    assert told == [(time * MS, 1) for time in (6, 7, 8, 9)]
    # The long one is due only after the short one has come and gone, and gets a shorter time-out itself.
    ageing.forget("t", entry(1))
    ageing.watch("t", entry(2, 2), message(2))
    switch.clock.run(13 * MS)
    assert told[4:] == [(11 * MS, 2), (13 * MS, 2)]
    ageing.watch("t", entry(2), message(2))
    switch.clock.run(20 * MS)
    assert len(told) == 6


def test_another_program_forgets_all_time_outs():
    switch = Switch()
    ageing, told = notices(switch)
    ageing.watch("t", entry(1, 5), message(1))
    ageing.clear()
    ageing.watch("t", entry(2, 8), message(2))
    switch.clock.run(9 * MS)
    assert told == [(8 * MS, 2)]


def test_entries_that_are_gone_are_not_kept():
    """A client that writes and deletes entries of long time-outs costs no memory, and one timed event."""
    switch = Switch()
    ageing, told = notices(switch)
    for number in range(5000):
        ageing.watch("t", entry(number, 3_600_000), message(number))
        ageing.forget("t", entry(number))
    ageing.watch("t", entry(1, 10), message(1))
    assert len(ageing._waiting) < 200
    assert switch.clock.events < 5
    switch.clock.run(switch.clock.now + 10 * MS)
    assert told == [(switch.clock.now, 1)]
