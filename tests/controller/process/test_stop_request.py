# SPDX-License-Identifier: Apache-2.0
"""The request to end the controller's process reaches a main thread that waits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from controller.process.stop_request import StopRequest


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR2)
    yield
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGUSR2, before)


def test_a_signal_that_another_thread_receives_wakes_the_main_thread() -> None:
    request, ended = StopRequest(), threading.Event()
    request.on_signals(signal.SIGUSR2)
    other = threading.Thread(target=ended.wait)
    other.start()
    # The main thread waits already when the other one gets the signal.
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(other.ident or 0, signal.SIGUSR2))
    timer.start()
    request.wait()
    ended.set()
    other.join()
    timer.join()


def test_a_thread_may_make_the_request_any_number_of_times() -> None:
    request = StopRequest()
    for _ in range(100_000):
        request.make()
    request.wait()
