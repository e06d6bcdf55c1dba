# SPDX-License-Identifier: Apache-2.0
"""The data-plane loop on the host's clock: order of events, and work from other threads."""

import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmv2.hostloop import HostLoop


@pytest.fixture
def running():
    loop = HostLoop()
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    yield loop
    loop.stop()
    thread.join(10)
    loop.close()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=20))
def test_events_run_at_their_time_and_in_order(offsets_us):
    loop = HostLoop()
    start = loop.now
    seen = []
    for number, offset in enumerate(offsets_us):
        loop.call_at(start + offset * 1000, lambda number=number: seen.append((loop.now - start, number)))
    loop.call_at(start + 4_000_000, loop.stop)
    loop.run()
    loop.close()
    # Each sees the very time it was due at; those of one time run in the order of their calls.
    assert seen == sorted((offset * 1000, number) for number, offset in enumerate(offsets_us))


def test_an_event_that_is_due_in_centuries_stops_nothing(running):
    """A client may set time-outs of 2^63 ns; select() takes a few weeks."""
    running.deliver("sw", lambda: running.call_at(running.now + (1 << 63), lambda: None))
    assert running.call("sw", lambda: 1) == 1
    assert running.call("sw", lambda: 2) == 2


def test_deliveries_keep_their_order_and_call_waits_for_the_result(running):
    seen = []
    for number in range(100):
        running.deliver("leaf1", lambda number=number: seen.append((number, threading.current_thread())))
    assert running.call("leaf1", lambda: list(seen)) == seen
    assert [number for number, _ in seen] == list(range(100))
    assert {thread for _, thread in seen} != {threading.current_thread()}


def test_a_watched_socket_wakes_the_loop(running):
    near, far = socket.socketpair()
    got = threading.Event()
    running.call("leaf1", lambda: running.watch(far, lambda: (far.recv(10), got.set())))
    near.send(b"x")
    assert got.wait(10)
    # On the loop's own thread, which may be about to read from it.
    running.call("leaf1", far.close)
    near.close()


def test_a_call_after_the_end_is_refused():
    loop = HostLoop()
    loop.stop()
    loop.run()
    with pytest.raises(ConnectionError, match="leaf1"):
        loop.call("leaf1", lambda: 1)
    loop.close()


def test_what_comes_after_the_end_is_dropped():
    """A server's thread may still have a packet-out in its hands when the data plane is closed."""
    ran = []
    loop = HostLoop()
    loop.stop()
    loop.run()
    loop.deliver("leaf1", lambda: ran.append(1))
    loop.close()
    loop.deliver("leaf1", lambda: ran.append(2))
    assert ran == []


def test_a_departure_is_sent_at_once():
    loop = HostLoop()
    sent = []
    loop.depart("leaf1", "packet_in:leaf1", lambda: sent.append(1))
    loop.arrived("packet_out:leaf1")
    assert sent == [1]
    loop.close()
