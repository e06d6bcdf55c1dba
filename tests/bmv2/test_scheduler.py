# SPDX-License-Identifier: Apache-2.0
"""The traffic manager: strict priority, an exact byte rate, finite buffers, depths and times."""

import pytest
from bmv2_programs import assign, field, forwarder, op, std
from bmv2_rig import Rig, ethernet
from hypothesis import given
from hypothesis import strategies as st

from bmv2 import EmbeddedSwitch
from bmv2.scheduler import SwitchPort


def metadata_program() -> str:
    """The forwarder, with the queueing metadata written over the frame's source address in egress."""
    b = forwarder()
    b.first["egress"] = "stamp"
    stamp = op("<<", std("deq_timedelta"), {"type": "hexstr", "value": "0x10"})
    stamp = op("|", stamp, op("<<", std("enq_qdepth"), {"type": "hexstr", "value": "0x8"}))
    b.do("egress", "stamp", [assign(field("eth", "src"), op("|", stamp, std("deq_qdepth")))])
    return b.json()


def test_a_frame_leaves_when_its_last_bit_has() -> None:
    rig = Rig(forwarder().json(), rate_bps=8_000_000)
    rig.switch.receive(1, ethernet(2, size=100))
    rig.clock.run()
    assert rig.sent == [(100_000, 2, ethernet(2, size=100))]


def test_higher_queues_go_first_and_nothing_interrupts_a_frame() -> None:
    rig = Rig(forwarder().json(), rate_bps=8_000_000)
    for priority in (0, 3, 7, 3, 5):
        rig.switch.receive(1, ethernet(2, priority=priority, size=50 + priority))
    rig.clock.run()
    assert [len(frame) - 50 for frame in rig.frames(2)] == [0, 7, 5, 3, 3]


def test_a_late_urgent_frame_overtakes_all_that_waits() -> None:
    rig = Rig(forwarder().json(), rate_bps=8_000_000)
    for _ in range(3):
        rig.switch.receive(1, ethernet(2, priority=1, size=100))
    rig.clock.run(until=150_000)
    rig.switch.receive(1, ethernet(2, priority=6, size=20))
    rig.clock.run()
    assert [(time, len(frame)) for time, _, frame in rig.sent] == [
        (100_000, 100),
        (200_000, 100),
        (220_000, 20),
        (320_000, 100),
    ]


@given(rate=st.integers(1, 10**11), sizes=st.lists(st.integers(14, 1500), min_size=1, max_size=40))
def test_a_busy_port_keeps_its_rate_to_the_nanosecond(rate: int, sizes: list[int]) -> None:
    rig = Rig(forwarder().json(), rate_bps=rate)
    for size in sizes:
        rig.switch.receive(1, ethernet(2, size=size))
    rig.clock.run()
    total = 0
    for (time, _, _), size in zip(rig.sent, sizes, strict=True):
        total += size
        assert time == total * 8 * 10**9 // rate
    assert rig.clock.events == len(sizes)


def test_full_queues_drop_and_count_and_others_do_not_suffer() -> None:
    rig = Rig(forwarder().json(), rate_bps=8_000_000, queue_packets=3)
    for _ in range(6):
        rig.switch.receive(1, ethernet(2, priority=1, size=100))
    rig.switch.receive(1, ethernet(2, priority=2, size=100))
    queues = rig.switch.ports[2].queues
    assert (queues[1].depth, queues[1].drops) == (3, 2)
    assert (queues[2].depth, queues[2].drops) == (1, 0)
    rig.clock.run()
    assert (queues[1].packets, queues[1].bytes, queues[2].packets) == (4, 400, 1)
    assert len(rig.frames(2)) == 5


def test_a_queue_bounded_in_bytes_drops_what_does_not_fit_and_takes_what_still_does() -> None:
    rig = Rig(forwarder().json(), rate_bps=8_000_000, queue_packets=3, queue_bytes=300)
    # The first leaves its place at once; then 100 + 150 wait, 51 more are too many and 50 fill the queue.
    for size in (200, 100, 150, 51, 50, 14):
        rig.switch.receive(1, ethernet(2, priority=1, size=size))
    rig.switch.receive(1, ethernet(2, priority=2, size=300))
    rig.switch.receive(1, ethernet(3, priority=1, size=301))
    queues = rig.switch.ports[2].queues
    assert (queues[1].depth, queues[1].held, queues[1].drops) == (3, 300, 2)
    assert (queues[2].depth, queues[2].held, queues[2].drops) == (1, 300, 0)
    assert rig.switch.ports[3].queues[1].drops == 1
    rig.clock.run()
    assert [len(frame) for frame in rig.frames(2)] == [200, 300, 100, 150, 50]
    assert (queues[1].held, queues[2].held) == (0, 0)


def test_a_queue_bounded_in_bytes_is_bounded_in_packets_too_and_empty_after_the_port_was_down() -> None:
    rig = Rig(forwarder().json(), rate_bps=8_000_000, queue_packets=2, queue_bytes=1000)
    for _ in range(4):
        rig.switch.receive(1, ethernet(2, size=100))
    queue = rig.switch.ports[2].queues[0]
    assert (queue.depth, queue.held, queue.drops) == (2, 200, 1)
    rig.switch.set_port_up(2, False)
    assert (queue.depth, queue.held, queue.drops) == (0, 0, 4)
    rig.switch.set_port_up(2, True)
    for size in (20, 1000):
        rig.switch.receive(1, ethernet(2, size=size))
    assert (queue.held, queue.drops) == (1000, 4)


@given(
    limit=st.integers(1, 4000),
    sizes=st.lists(st.tuples(st.integers(14, 1500), st.integers(0, 3)), max_size=40),
)
def test_bytes_held_are_those_of_what_waits(limit: int, sizes: list[tuple[int, int]]) -> None:
    rig = Rig(forwarder().json(), rate_bps=8_000_000, queue_bytes=limit)
    queue, frames = rig.switch.ports[2].queues[0], 0
    for size, pause in sizes:
        before, drops = queue.held, queue.drops
        idle = queue.packets == len(rig.frames(2))
        rig.switch.receive(1, ethernet(2, size=size))
        assert queue.drops - drops == (before + size > limit)
        frames += queue.drops == drops
        assert queue.held == (before if idle or queue.drops > drops else before + size)
        assert queue.held == sum(len(state[0]) for state, _, _ in queue.waiting) <= limit
        rig.clock.run(until=rig.clock.now + pause * 400_000)
    rig.clock.run()
    assert (queue.held, len(rig.frames(2))) == (0, frames)


def test_depths_and_waiting_time_are_bmv2s() -> None:
    rig = Rig(metadata_program(), rate_bps=8_000_000)
    for _ in range(3):
        rig.switch.receive(1, ethernet(2, size=100))
    rig.clock.run()
    seen = [int.from_bytes(frame[6:12]) for frame in rig.frames(2)]
    # (microseconds waited, found waiting at enqueue, left waiting at dequeue)
    assert [(s >> 16, s >> 8 & 0xFF, s & 0xFF) for s in seen] == [(0, 0, 0), (100, 0, 1), (200, 1, 0)]


def test_an_idle_port_without_a_rate_sends_at_once() -> None:
    rig = Rig(forwarder().json(), rate_bps=None)
    rig.switch.receive(1, ethernet(2))
    assert rig.sent == [(0, 2, ethernet(2))]
    assert rig.clock.events == 0


def test_a_port_that_goes_down_loses_what_waits_and_what_is_being_sent() -> None:
    rig = Rig(forwarder().json(), rate_bps=8_000_000)
    states: list[tuple[int, bool]] = []
    rig.switch.port_state_changed = lambda port, up: states.append((port, up))
    for _ in range(3):
        rig.switch.receive(1, ethernet(2, size=100))
    rig.clock.run(until=50_000)
    rig.switch.set_port_up(2, False)
    rig.switch.receive(1, ethernet(2, size=100))
    assert not rig.switch.port_up(2)
    assert rig.switch.ports[2].queues[0].drops == 4
    rig.clock.run(until=60_000)
    rig.switch.set_port_up(2, True)
    rig.switch.set_port_up(2, True)
    rig.switch.receive(1, ethernet(2, size=10 + 14))
    rig.clock.run()
    assert rig.sent == [(84_000, 2, ethernet(2, size=24))]
    assert states == [(2, False), (2, True)]


def test_a_port_that_is_down_receives_nothing() -> None:
    rig = Rig(forwarder().json())
    rig.switch.set_port_up(1, False)
    rig.switch.receive(1, ethernet(2))
    rig.switch.receive(3, ethernet(2))
    assert len(rig.sent) == 1


def test_bad_ports_are_refused_with_their_number() -> None:
    rig = Rig(forwarder().json())
    with pytest.raises(ValueError, match="port 1 is taken"):
        rig.switch.add_port(1, rate_bps=None, transmit=print)
    with pytest.raises(ValueError, match="port 9: the rate must be positive"):
        rig.switch.add_port(9, rate_bps=0, transmit=print)
    with pytest.raises(ValueError, match="at least 1 packet"):
        SwitchPort(9, rig.clock, print, rate_bps=None, queues=8, queue_packets=0)
    with pytest.raises(ValueError, match="port 9: a queue holds at least 1 byte, got 0"):
        rig.switch.add_port(9, rate_bps=None, transmit=print, queue_bytes=0)
    with pytest.raises(KeyError, match=r"no port 9; there are \[1, 2, 3, 4\]"):
        rig.switch.set_port_up(9, False)


def test_a_switch_without_a_program_forwards_nothing() -> None:
    rig = Rig(forwarder().json())
    bare = EmbeddedSwitch("bare", rig.clock)
    bare.add_port(1, rate_bps=None, transmit=print)
    bare.receive(1, ethernet(1))
    assert bare.ports[1].queues[0].packets == 0
