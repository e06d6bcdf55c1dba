# SPDX-License-Identifier: Apache-2.0
"""The rule of time: where the heap stops, what leaves in which order, and when effects land."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.fabric.boundary import ControllerLostError, FabricBoundary, Settlement
from polyrhythm.fabric.heap import EventHeap

MS = 1_000_000


@given(st.lists(st.integers(0, 50)))
def test_events_run_by_time_then_by_insertion(times: list[int]) -> None:
    heap = EventHeap()
    seen: list[tuple[int, int]] = []
    for i, time_ns in enumerate(times):
        heap.call_at(time_ns, lambda i=i: seen.append((heap.now, i)))
    assert heap.run() is False
    assert seen == sorted((t, i) for i, t in enumerate(times))


def test_the_heap_stops_after_the_last_event_of_its_time() -> None:
    heap = EventHeap()
    seen: list[str] = []

    def stop() -> None:
        seen.append("stop")
        heap.stop = True
        heap.call_at(heap.now, seen.append, "same time")

    heap.call_at(5, stop)
    heap.call_at(5, seen.append, "also 5")
    heap.call_at(6, seen.append, "6")
    assert heap.run() is True
    assert seen == ["stop", "also 5", "same time"]
    assert heap.now == 5
    assert heap.run() is False
    assert seen[-1] == "6"


class Controller:
    """Settles every tick from another thread, after handing over effects in a shuffled order."""

    def __init__(self, boundary: FabricBoundary, effects: list[str]) -> None:
        self.boundary = boundary
        self.ticks: list[tuple[int, dict[str, int], bool]] = []
        self.landed: list[tuple[int, str]] = []
        self.effects = effects
        self.next_timer_ns = 0

    def tick(self, sequence: int, time_ns: int, sent: dict[str, int], timer: bool, last: bool) -> None:
        self.ticks.append((time_ns, dict(sent), timer))
        threading.Thread(target=self.answer, args=(sequence,)).start()

    def answer(self, sequence: int) -> None:
        for node in self.effects:
            self.boundary.deliver(node, lambda node=node: self.landed.append((self.boundary._heap.now, node)))
        timer, self.next_timer_ns = self.next_timer_ns, 0
        self.boundary.settled(Settlement(sequence, {"agent:h1": len(self.ticks)}, timer))
        # What the settlement announced arrives after it: the fabric has to wait.
        self.boundary.arrived("agent:h1")


def test_messages_leave_sorted_and_effects_land_one_control_delay_later() -> None:
    heap = EventHeap()
    boundary = FabricBoundary(heap, control_delay_ns=MS)
    controller = Controller(boundary, ["leaf2", "agent", "leaf1"])
    boundary.attach(controller.tick)
    left: list[str] = []
    for node in ("spine1", "h2", "leaf1"):
        heap.call_at(7, boundary.depart, node, f"packet_in:{node}", lambda node=node: left.append(node))
    later: list[int] = []
    heap.call_at(7 + MS // 2, lambda: later.append(heap.now))
    assert heap.run() is True
    boundary.stop()
    assert left == ["h2", "leaf1", "spine1"]
    assert controller.ticks == [(7, {"packet_in:h2": 1, "packet_in:leaf1": 1, "packet_in:spine1": 1}, False)]
    assert heap.run() is False
    assert later == [7 + MS // 2]
    assert controller.landed == [(7 + MS, "agent"), (7 + MS, "leaf1"), (7 + MS, "leaf2")]


def test_the_controllers_timer_stops_the_heap() -> None:
    heap = EventHeap()
    boundary = FabricBoundary(heap, control_delay_ns=MS)
    controller = Controller(boundary, [])
    boundary.attach(controller.tick)
    controller.next_timer_ns = 40
    boundary.stop()
    assert heap.run() is True
    boundary.stop()
    assert [(t, timer) for t, _, timer in controller.ticks] == [(0, False), (40, True)]


def test_a_lost_controller_is_an_error_at_once() -> None:
    boundary = FabricBoundary(EventHeap(), control_delay_ns=MS)
    boundary.attach(lambda *_: boundary.controller_lost())
    with pytest.raises(ControllerLostError, match=r"the controller was lost at 0\.0 s"):
        boundary.stop()


def test_a_silent_controller_is_given_up() -> None:
    boundary = FabricBoundary(EventHeap(), control_delay_ns=MS, silence_s=0.2)
    boundary.attach(lambda *_: None)
    with pytest.raises(ControllerLostError, match=r"silent for 0\.2 s"):
        boundary.stop()


def test_a_slow_controller_that_says_that_it_lives_is_waited_for() -> None:
    heap = EventHeap()
    waits: list[float] = []
    # Silence is far shorter than the wait, which ends only after the third notice of it.
    boundary = FabricBoundary(heap, control_delay_ns=MS, waiting=waits.append, notice_s=0.3, silence_s=0.6)

    def work(sequence: int) -> None:
        while len(waits) < 3:
            boundary.settled(Settlement(0, {}, 0))
            time.sleep(0.02)
        boundary.settled(Settlement(sequence, {}, 7))

    boundary.attach(lambda sequence, *_: threading.Thread(target=work, args=(sequence,)).start())
    boundary.stop()
    assert len(waits) == 3
    # It was settled: its timer is set.
    assert heap.run() is True
    assert heap.now == 7


def test_a_message_without_a_session_is_not_waited_for() -> None:
    heap = EventHeap()
    boundary = FabricBoundary(heap, control_delay_ns=MS)
    controller = Controller(boundary, [])
    boundary.attach(controller.tick)
    heap.call_at(1, boundary.depart, "h1", "agent:h1", lambda: False)
    heap.call_at(1, boundary.depart, "h2", "agent:h2", lambda: True)
    assert heap.run() is True
    boundary.stop()
    assert controller.ticks[0][1] == {"agent:h2": 1}


def test_nobody_waits_for_a_fabric_that_has_ended() -> None:
    boundary = FabricBoundary(EventHeap(), control_delay_ns=MS)
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            boundary.call("leaf1", threading.get_ident)
        except ConnectionAbortedError as error:
            raised.append(error)

    asker = threading.Thread(target=ask)
    asker.start()
    boundary.close()
    asker.join(timeout=300)
    assert len(raised) == 1


def test_calls_run_on_the_heaps_thread_and_their_errors_come_back() -> None:
    heap = EventHeap()
    boundary = FabricBoundary(heap, control_delay_ns=MS)
    results: list[object] = []

    def ask() -> None:
        results.append(boundary.call("leaf1", threading.get_ident))
        try:
            boundary.call("leaf1", lambda: 1 // 0)
        except ZeroDivisionError as error:
            results.append(error)

    asker = threading.Thread(target=ask)
    asker.start()
    boundary.wait_for(lambda: not asker.is_alive())
    assert results[0] == threading.get_ident()
    assert isinstance(results[1], ZeroDivisionError)
