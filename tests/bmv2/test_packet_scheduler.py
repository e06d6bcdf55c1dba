# SPDX-License-Identifier: Apache-2.0
"""BMv2's queueing: every queue at its own rate in packets, its default depth, and the options that ask for it."""

import pytest
from bmv2_programs import forwarder
from bmv2_rig import HeapClock, Rig, ethernet
from hypothesis import given
from hypothesis import strategies as st

from bmv2 import EmbeddedSwitch, load_program
from bmv2.command_line import SwitchSettings, read_settings
from bmv2.packet_scheduler import PacketRatePort
from bmv2.standalone import add_port
from polyrhythm.subcommands import CommandParser

MS = 1_000_000
OUT = 9


def rig_with(rate_pps: int | None, *, queue_packets: int = 64, queues: int = 8) -> tuple[Rig, PacketRatePort]:
    """A rig whose port 9 queues as BMv2's do, at an hour when its first packets need not wait."""
    rig = Rig(forwarder().json(), queues=queues)
    rig.switch.add_bmv2_port(
        OUT,
        queue_rate_pps=rate_pps,
        transmit=lambda frame: rig.sent.append((rig.clock.now, OUT, frame)),
        queue_packets=queue_packets,
    )
    rig.clock.run(until=1000 * MS)
    port = rig.switch.ports[OUT]
    assert isinstance(port, PacketRatePort)
    return rig, port


def send(rig: Rig, priority: int = 0, size: int = 14) -> None:
    rig.switch.receive(1, ethernet(OUT, priority=priority, size=size))


def sent(rig: Rig) -> list[tuple[int, int]]:
    """(ms since the beginning, priority) of each frame that left."""
    return [((time - 1000 * MS) // MS, int.from_bytes(frame[12:14])) for time, _, frame in rig.sent]


def test_a_queue_without_a_rate_sends_at_once() -> None:
    rig, port = rig_with(None)
    for _ in range(3):
        send(rig, 2)
    assert sent(rig) == [(0, 2)] * 3
    assert (port.queues[2].packets, port.queues[2].bytes, rig.clock.events) == (3, 42, 0)


def test_a_rate_counts_packets_and_not_bytes() -> None:
    rig, _ = rig_with(1000)
    for size in (1500, 14, 700):
        send(rig, size=size)
    rig.clock.run()
    assert [(time // MS - 1000, len(frame)) for time, _, frame in rig.sent] == [(0, 1500), (1, 14), (2, 700)]


def test_eight_queues_send_at_eight_times_the_rate_the_highest_first() -> None:
    rig, _ = rig_with(1000)
    for _ in range(3):
        for priority in range(8):
            send(rig, priority)
    rig.clock.run()
    # The first of each queue is due when it comes; from then on the highest of those due goes first.
    later = [(ms, priority) for ms in (1, 2) for priority in range(7, -1, -1)]
    assert sent(rig) == [(0, priority) for priority in range(8)] + later


def test_one_queue_can_have_a_rate_of_its_own_and_packets_that_wait_keep_their_time() -> None:
    rig, port = rig_with(None)
    port.set_queue_rate(500, 3)
    for _ in range(2):
        send(rig, 3)
        send(rig, 1)
    port.set_queue_rate(None)
    send(rig, 3)
    rig.clock.run()
    assert sent(rig) == [(0, 3), (0, 1), (0, 1), (2, 3), (2, 3)]


def test_the_first_packet_waits_for_a_queue_that_was_made_just_now() -> None:
    rig, _ = rig_with(1000)
    rig.switch.add_bmv2_port(10, queue_rate_pps=1000, transmit=rig.cpu.append)
    rig.switch.receive(1, ethernet(10))
    assert rig.cpu == []
    rig.clock.run()
    assert (rig.clock.now, len(rig.cpu)) == (1001 * MS, 1)


def test_a_queue_is_64_deep_and_others_do_not_suffer() -> None:
    rig, port = rig_with(1)
    for _ in range(70):
        send(rig)
    send(rig, 1)
    assert (port.queues[0].packets, port.queues[0].depth, port.queues[0].drops) == (1, 64, 5)
    assert (port.queues[1].packets, port.queues[1].drops) == (1, 0)


def test_a_priority_without_a_queue_drops() -> None:
    rig, _ = rig_with(None, queues=2)
    for priority in (0, 1, 2, 7):
        send(rig, priority)
    assert sent(rig) == [(0, 0), (0, 1)]
    assert rig.switch.misdirected == 2


@given(
    rate=st.integers(1, 10**6),
    depth=st.integers(1, 5),
    arrivals=st.lists(st.tuples(st.integers(0, 3 * MS), st.integers(0, 2)), max_size=40),
)
def test_each_queue_keeps_its_rate_and_its_order(
    rate: int, depth: int, arrivals: list[tuple[int, int]]
) -> None:
    rig, port = rig_with(rate, queue_packets=depth)
    expected: list[list[tuple[int, int]]] = [[], [], []]
    drops = [0, 0, 0]
    for number, (pause, priority) in enumerate(arrivals):
        rig.clock.run(until=rig.clock.now + pause)
        now, leaving = rig.clock.now, expected[priority]
        if sum(time > now for time, _ in leaving) >= depth:
            drops[priority] += 1
        else:
            leaving.append((max(now, leaving[-1][0] + 10**9 // rate) if leaving else now, 14 + number))
        send(rig, priority, 14 + number)
    rig.clock.run()
    for priority, leaving in enumerate(expected):
        left = [(t, len(f)) for t, _, f in rig.sent if int.from_bytes(f[12:14]) == priority]

        assert left == leaving
        assert port.queues[priority].drops == drops[priority]


def test_a_port_that_goes_down_loses_what_waits_and_begins_anew() -> None:
    rig, port = rig_with(1000)
    for _ in range(5):
        send(rig)
    rig.switch.set_port_up(OUT, False)
    send(rig)
    assert (port.queues[0].depth, port.queues[0].drops) == (0, 5)
    rig.clock.run(until=1010 * MS)
    rig.switch.set_port_up(OUT, True)
    send(rig)
    rig.clock.run()
    assert sent(rig) == [(0, 0), (10, 0)]


def test_a_new_program_finds_empty_queues_and_the_old_rates() -> None:
    rig, port = rig_with(1000)
    for _ in range(5):
        send(rig)
    program = rig.switch.program
    assert program is not None
    rig.switch.load(program)
    rig.clock.run(until=1010 * MS)
    for _ in range(2):
        send(rig)
    rig.clock.run()
    assert sent(rig) == [(0, 0), (10, 0), (11, 0)]
    assert (port.queues[0].packets, port.queues[0].drops) == (2, 0)


def test_bad_rates_and_queues_are_refused_with_the_port() -> None:
    rig, port = rig_with(None)
    with pytest.raises(ValueError, match="port 9: a queue's rate must be positive, got 0 packets/s"):
        port.set_queue_rate(0)
    with pytest.raises(ValueError, match="port 9: queues are 0 to 7, got 8"):
        port.set_queue_rate(5, 8)
    with pytest.raises(ValueError, match="port 9 is taken"):
        rig.switch.add_bmv2_port(OUT, queue_rate_pps=None, transmit=print)


def settings(*argv: str) -> SwitchSettings:
    parser = CommandParser()
    parser.module = "bmv2.standalone"
    return read_settings(parser.parse_args(["--no-p4", *argv]))


def test_the_options_of_queues_and_their_defaults() -> None:
    ours = settings("--queue-bytes", "9000")
    assert (ours.bmv2, ours.queue_packets, ours.queue_bytes, ours.priority_queues) == (False, 256, 9000, 8)
    theirs = settings("--bmv2")
    assert (theirs.bmv2, theirs.queue_packets, theirs.queue_bytes) == (True, 64, None)
    assert (theirs.priority_queues, theirs.queue_rate_pps) == (1, None)
    given = settings("--bmv2", "--queue-rate", "70", "--queue-packets", "9", "--", "--priority-queues", "8")
    assert (given.queue_rate_pps, given.queue_packets, given.priority_queues) == (70, 9, 8)


@pytest.mark.parametrize(
    ("argv", "lengths", "drops"),
    [
        (["--port-rate", "8000000"], [100, 100, 100, 60], 0),
        (["--port-rate", "8000000", "--queue-packets", "2"], [100, 100, 100], 1),
        (["--port-rate", "8000000", "--queue-bytes", "199"], [100, 100, 60], 1),
        (["--bmv2", "--queue-rate", "5", "--queue-packets", "2"], [100, 100], 2),
        (["--bmv2", "--queue-packets", "2"], [100, 100, 100, 60], 0),
    ],
)
def test_a_port_of_the_command_line_queues_as_it_says(
    argv: list[str], lengths: list[int], drops: int
) -> None:
    clock, left = HeapClock(), list[int]()
    switch = EmbeddedSwitch("s", clock)
    add_port(settings(*argv), switch, 2, lambda frame: left.append(len(frame)))
    switch.add_port(1, rate_bps=None, transmit=print)
    switch.load(load_program(forwarder().json()))
    for size in (100, 100, 100, 60):
        switch.receive(1, ethernet(2, size=size))
    clock.run()
    assert left == lengths
    assert switch.ports[2].queues[0].drops == drops
