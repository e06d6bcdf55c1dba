# SPDX-License-Identifier: Apache-2.0
"""Ports whose queues can be paused: who leaves when, and what the ingress buffer holds meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from bmv2_programs import forwarder
from bmv2_rig import HeapClock, Rig, ethernet
from hypothesis import given
from hypothesis import strategies as st

from bmv2 import load_program
from bmv2.ingress_buffer import IngressBuffer, LosslessProfile
from bmv2.lossless import LosslessSwitch

RATE = 8_000_000
"""A byte takes a microsecond."""
CONTROL = b"\x01" * 60
PROGRAM = forwarder().json()


class LosslessRig:
    """A switch with ports 1 to 4, of which priorities 1 and 2 are lossless: 300 bytes, and 200 of headroom."""

    def __init__(
        self, *, xoff: int = 300, xon: int = 100, headroom: int = 200, queue_packets: int = 3
    ) -> None:
        self.clock = HeapClock()
        self.changes: list[tuple[int, int, bool]] = []
        profile = LosslessProfile(frozenset({1, 2}), xoff, xon, headroom)
        self.buffer = IngressBuffer(profile, lambda *change: self.changes.append(change))
        self.switch = LosslessSwitch("s1", self.clock, buffer=self.buffer)
        self.sent: list[tuple[int, int, bytes]] = []
        for port in range(1, 5):
            self.switch.add_port(
                port, rate_bps=RATE, transmit=self._recorder(port), queue_packets=queue_packets
            )
        self.switch.load(load_program(PROGRAM))

    def _recorder(self, port: int) -> Any:
        return lambda frame: self.sent.append((self.clock.now, port, frame))

    def left(self) -> list[tuple[int, int]]:
        """(microseconds, bytes) of each frame."""
        return [(time // 1000, len(frame)) for time, _, frame in self.sent]

    def held(self, port: int, priority: int) -> int:
        return self.buffer.held[port, priority].bytes


def test_a_paused_queue_waits_and_the_frame_that_is_being_sent_leaves() -> None:
    rig = LosslessRig()
    port = rig.switch.lossless_ports[2]
    for priority in (1, 1, 2):
        rig.switch.receive(1, ethernet(2, priority=priority, size=100))
    rig.clock.run(until=50_000)
    port.set_paused(1 << 1)
    rig.clock.run(until=1_000_000)
    # The first frame of queue 1 was on its way; queue 2 is not paused.
    assert rig.left() == [(100, 100), (200, 100)]
    port.set_paused(0)
    rig.clock.run()
    assert rig.left()[2:] == [(1100, 100)]


def test_control_frames_go_before_all_queues_also_where_all_are_paused() -> None:
    rig = LosslessRig()
    port = rig.switch.lossless_ports[2]
    for _ in range(2):
        rig.switch.receive(1, ethernet(2, priority=7, size=100))
    port.send_control(CONTROL)
    rig.clock.run()
    assert rig.left() == [(100, 100), (160, 60), (260, 100)]
    port.set_paused(0xFF)
    port.send_control(CONTROL)
    rig.clock.run()
    assert rig.left()[3:] == [(320, 60)]
    # No queue counts them.
    assert [queue.packets for queue in port.queues] == [0] * 7 + [2]


def test_the_neighbour_pauses_above_xoff_and_goes_on_at_xon() -> None:
    rig = LosslessRig()
    rig.switch.lossless_ports[2].set_paused(1 << 1)
    for size in (200, 100, 50):
        rig.switch.receive(1, ethernet(2, priority=1, size=size))
        if size == 100:
            assert rig.changes == []
    assert rig.changes == [(1, 1, True)]
    # Another port, and another priority of the same port, have their own place.
    rig.switch.receive(3, ethernet(2, priority=1, size=300))
    rig.switch.receive(1, ethernet(4, priority=2, size=300))
    assert rig.changes == [(1, 1, True)]
    assert (rig.held(1, 1), rig.held(3, 1)) == (350, 300)
    rig.switch.lossless_ports[2].set_paused(0)
    # At once the frame of 200 bytes begins to leave, then the one of 100.
    rig.clock.run(until=100_000)
    assert rig.changes == [(1, 1, True)]
    rig.clock.run(until=250_000)
    assert rig.changes == [(1, 1, True), (1, 1, False)]
    rig.clock.run()
    assert (rig.held(1, 1), rig.held(3, 1)) == (0, 0)


def test_a_full_headroom_loses_and_counts_by_the_port_received_on() -> None:
    rig = LosslessRig()
    rig.switch.lossless_ports[2].set_paused(1 << 1)
    for _ in range(7):
        rig.switch.receive(1, ethernet(2, priority=1, size=100))
    held = rig.buffer.held[1, 1]
    assert (held.bytes, held.peak, held.drops) == (500, 500, 2)
    assert rig.switch.ports[2].queues[1].drops == 2
    rig.switch.receive(3, ethernet(2, priority=1, size=100))
    assert rig.buffer.held[3, 1].drops == 0


def test_other_priorities_keep_their_queue_of_packets() -> None:
    rig = LosslessRig()
    for _ in range(6):
        rig.switch.receive(1, ethernet(2, priority=0, size=100))
    queue = rig.switch.ports[2].queues[0]
    assert (queue.depth, queue.drops) == (3, 2)
    assert (1, 0) not in rig.buffer.held


def test_a_port_that_goes_down_gives_its_places_back_and_forgets_its_pauses() -> None:
    rig = LosslessRig()
    port = rig.switch.lossless_ports[2]
    port.set_paused(1 << 1)
    for _ in range(4):
        rig.switch.receive(1, ethernet(2, priority=1, size=100))
    port.send_control(CONTROL)
    rig.switch.set_port_up(2, False)
    assert rig.held(1, 1) == 0
    assert rig.changes == [(1, 1, True), (1, 1, False)]
    # The control frame that was being sent came out of no queue.
    assert [queue.drops for queue in port.queues] == [0, 4, 0, 0, 0, 0, 0, 0]
    rig.clock.run()
    assert rig.sent == []
    rig.switch.set_port_up(2, True)
    rig.switch.receive(1, ethernet(2, priority=1, size=100))
    rig.clock.run()
    assert [size for _, size in rig.left()] == [100]


def test_another_program_begins_with_an_empty_buffer() -> None:
    rig = LosslessRig()
    rig.switch.lossless_ports[2].set_paused(1 << 1)
    for _ in range(4):
        rig.switch.receive(1, ethernet(2, priority=1, size=100))
    rig.switch.load(load_program(PROGRAM))
    assert rig.held(1, 1) == 0
    assert rig.changes == [(1, 1, True), (1, 1, False)]


def test_a_lossless_port_needs_a_rate() -> None:
    with pytest.raises(ValueError, match="lossless ports have a rate"):
        LosslessRig().switch.add_port(9, rate_bps=None, transmit=lambda frame: None)


ARRIVALS = st.lists(
    st.tuples(
        st.integers(1, 4), st.integers(1, 4), st.integers(0, 7), st.integers(14, 400), st.integers(0, 300)
    ),
    max_size=30,
)
"""Port in, port out, priority, bytes, and microseconds until the next one."""


@given(ARRIVALS)
def test_without_a_pause_frames_leave_as_from_any_switch(
    arrivals: list[tuple[int, int, int, int, int]],
) -> None:
    plain = Rig(PROGRAM, rate_bps=RATE)
    lossless = LosslessRig(xoff=100_000, queue_packets=256)
    for rig in (plain, lossless):
        for port, out, priority, size, pause in arrivals:
            rig.switch.receive(port, ethernet(out, priority=priority, size=size))
            rig.clock.run(until=rig.clock.now + pause * 1000)
        rig.clock.run()
    assert lossless.sent == plain.sent


@given(ARRIVALS, st.lists(st.tuples(st.integers(1, 4), st.integers(0, 255)), max_size=30))
def test_places_are_those_of_what_waits_whatever_is_paused(
    arrivals: list[tuple[int, int, int, int, int]], pauses: list[tuple[int, int]]
) -> None:
    rig = LosslessRig()
    for (port, out, priority, size, pause), (paused, mask) in zip(arrivals, pauses, strict=False):
        rig.switch.receive(port, ethernet(out, priority=priority, size=size))
        rig.switch.lossless_ports[paused].set_paused(mask)
        rig.clock.run(until=rig.clock.now + pause * 1000)
        for key, held in rig.buffer.held.items():
            assert 0 <= held.bytes <= held.peak <= 500
            last = [on for *own, on in rig.changes if tuple(own) == key]
            assert held.paused == (last[-1] if last else False)
            assert not (held.paused and held.bytes <= 100)
            assert held.paused or held.bytes <= 300
    waiting = [state for p in rig.switch.ports.values() for queue in p.queues for state, *_ in queue.waiting]
    lossy = [s for p in rig.switch.ports.values() for q in (0, *range(3, 8)) for s, *_ in p.queues[q].waiting]
    assert sum(held.bytes for held in rig.buffer.held.values()) == sum(len(s[0]) for s in waiting) - sum(
        len(s[0]) for s in lossy
    )
    for port in rig.switch.lossless_ports.values():
        port.set_paused(0)
    rig.clock.run()
    assert all(held.bytes == 0 and not held.paused for held in rig.buffer.held.values())
