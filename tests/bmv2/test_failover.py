# SPDX-License-Identifier: Apache-2.0
"""The switch's own entries for its dead ports, beside those that clients write."""

from pathlib import Path

import pytest
from bmv2_rig import HeapClock
from hypothesis import given
from hypothesis import strategies as st

from bmv2 import EmbeddedSwitch, PortTable, load_program
from bmv2.entries import EntryFault, Exact, TableEntry, TableEntryError

PROGRAM = load_program((Path(__file__).parents[2] / "p4/build/polyrhythm.v1model.json").read_bytes())
DELAY_NS = 1000


def switch_with(table="port_state", action="set_port_down", delay_ns=0, load=True):
    clock = HeapClock()
    switch = EmbeddedSwitch("s", clock, port_table=PortTable(table, action, delay_ns))
    for port in (1, 2, 3):
        switch.add_port(port, rate_bps=None, transmit=lambda frame: None)
    if load:
        switch.load(PROGRAM)
    return switch, clock


def entry(port):
    return TableEntry((Exact(port),), 0, "set_port_down")


def entered(switch):
    return {e.match[0].value for e in switch.table("port_state").entries()}


STEPS = st.tuples(st.sampled_from(["down", "up", "insert", "delete"]), st.integers(1, 3))


@given(st.lists(STEPS, max_size=40))
def test_an_entry_is_there_while_port_or_client_wants_it(steps):
    switch, _ = switch_with()
    down, written = set(), set()
    for step, port in steps:
        if step in ("down", "up"):
            switch.set_port_up(port, step == "up")
            (down.add if step == "down" else down.discard)(port)
        elif step == "insert":
            if port in written:
                with pytest.raises(TableEntryError) as refused:
                    switch.insert("port_state", entry(port))
                assert refused.value.fault is EntryFault.EXISTS
            else:
                switch.insert("port_state", entry(port))
                written.add(port)
        elif port in written:
            switch.delete("port_state", entry(port))
            written.remove(port)
        assert entered(switch) == down | written


def test_an_entry_comes_after_the_delay_and_a_flap_is_not_followed():
    switch, clock = switch_with(delay_ns=DELAY_NS)
    switch.set_port_up(1, False)
    clock.run(until=DELAY_NS - 1)
    assert entered(switch) == set()
    clock.run(until=DELAY_NS)
    assert entered(switch) == {1}
    switch.set_port_up(2, False)
    switch.set_port_up(2, True)
    switch.set_port_up(1, True)
    clock.run(until=5 * DELAY_NS)
    assert entered(switch) == set()


def test_a_program_finds_the_ports_that_are_down():
    switch, clock = switch_with(load=False, delay_ns=DELAY_NS)
    switch.set_port_up(2, False)
    switch.load(PROGRAM)
    assert entered(switch) == {2}
    # What was noticed of the program before is not entered into the next.
    switch.set_port_up(3, False)
    switch.load(PROGRAM)
    assert entered(switch) == {2, 3}
    clock.run(until=2 * DELAY_NS)
    assert entered(switch) == {2, 3}


@pytest.mark.parametrize(
    ("table", "action"),
    [
        ("no_such_table", "set_port_down"),
        ("port_state", "no_such_action"),
        ("ecmp", "set_next_hop"),
        ("edge_ingress", "remark_strays"),
    ],
)
def test_a_program_without_such_a_table_is_left_alone(table, action):
    switch, _ = switch_with(table, action)
    switch.set_port_up(1, False)
    assert entered(switch) == set()
    switch.insert("port_state", entry(1))
    switch.delete("port_state", entry(1))
    assert entered(switch) == set()
