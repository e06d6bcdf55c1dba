# SPDX-License-Identifier: Apache-2.0
"""The agent's event loop: descriptors of any number, errors, and what is not watched any more."""

from __future__ import annotations

import fcntl
import resource
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from hostagent.loop import AgentLoop

MS = 1_000_000


@pytest.fixture
def loop() -> Iterator[AgentLoop]:
    made = AgentLoop()
    yield made
    made.close()


@pytest.fixture
def high() -> Iterator[int]:
    """A descriptor number that select cannot take."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 2_048:
        pytest.skip("this system allows no 2,048 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2_048, before[0]), before[1]))
    yield 1_500
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_descriptor_beyond_1023_is_read_and_written(loop: AgentLoop, high: int) -> None:
    here, there = socket.socketpair()
    with here, there, socket.socket(fileno=fcntl.fcntl(here.fileno(), fcntl.F_DUPFD_CLOEXEC, high)) as far:
        assert far.fileno() >= high
        heard: list[bytes] = []

        def readable() -> None:
            heard.append(far.recv(10))
            loop.watch_write(far.fileno(), writable)

        def writable() -> None:
            far.send(b"pong")
            loop.unwatch(far.fileno())
            loop.stop()

        loop.watch(far.fileno(), readable)
        there.send(b"ping")
        loop.run()
        assert heard == [b"ping"]
        assert there.recv(10) == b"pong"


def test_the_end_of_a_connection_is_told_to_who_reads_and_to_who_writes(loop: AgentLoop) -> None:
    told: list[str] = []
    with closing(socket.socket(socket.AF_UNIX)) as here:
        left, right = socket.socketpair()
        with left:
            right.close()
            loop.watch(left.fileno(), lambda: told.append("read"))
            loop.watch_write(left.fileno(), lambda: (told.append("write"), loop.stop()))  # type: ignore[func-returns-value]
            loop.run()
            loop.unwatch(left.fileno())
        assert told == ["read", "write"]
        # Unknown descriptors, and one that was never watched.
        loop.unwatch(here.fileno())
        loop.watch_write(here.fileno(), None)


class _Patient(AgentLoop):
    """Counts its rounds and keeps how long each was ready to wait, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.patience: list[float | None] = []

    def _patience_s(self) -> float | None:
        self.patience.append(super()._patience_s())
        return self.patience[-1]


def test_what_is_not_watched_any_more_does_not_wake_the_loop() -> None:
    with closing(_Patient()) as loop:
        left, right = socket.socketpair()
        with left:
            loop.watch(left.fileno(), lambda: pytest.fail("is not watched"))
            loop.unwatch(left.fileno())
            right.send(b"x")
            right.close()
            loop.timer(50 * MS, loop.stop)
            loop.run()
        # One round for the timer; the system may wake it a little too early.
        assert len(loop.patience) <= 5


def test_timers_are_waited_for_in_less_than_milliseconds() -> None:
    with closing(_Patient()) as loop:
        loop.now = loop.present()
        loop.timer(900_000, loop.stop)
        loop.run()
        assert all(p is not None and p < 0.001 for p in loop.patience)
