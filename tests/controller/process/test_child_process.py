# SPDX-License-Identifier: Apache-2.0
"""A process for calls: it may die at any moment, start on a full disk, and needs no reader to be started."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from controller.process import child_process
from controller.process.child_process import ChildProcess, ProcessDiedError

PATIENCE_S = 120.0


def prepare(*_: object) -> None:
    """Nothing to prepare."""


def refuse() -> None:
    """A preparation that fails."""
    raise ValueError("the P4 program lacks table ecmp")


def add(first: int, second: int) -> int:
    """A call that prints, which must not come between the answers."""
    print("a call prints this")
    return first + second


class UnsendableError(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def fail() -> None:
    """A call with an error that cannot be pickled."""
    raise UnsendableError(1, 2)


@pytest.fixture
def started() -> Iterator[list[ChildProcess]]:
    """Those in the list are ended after the test."""
    children: list[ChildProcess] = []
    yield children
    for child in children:
        child.end(signal.SIGTERM)
        child.reap()


def test_results_and_errors_come_back(started: list[ChildProcess]) -> None:
    child = ChildProcess(prepare)
    started.append(child)
    assert child.pid is None
    assert child.call(add, 1, 2) == 3
    with pytest.raises(RuntimeError, match="UnsendableError: 1 and 2"):
        child.call(fail)
    with pytest.raises(ZeroDivisionError):
        child.call(divmod, 1, 0)
    data = bytes(range(256)) * 40_000
    assert child.call(bytes, data) == data


def test_each_call_tells_that_the_preparation_failed(started: list[ChildProcess]) -> None:
    child = ChildProcess(refuse)
    started.append(child)
    for _ in range(2):
        with pytest.raises(ValueError, match="lacks table ecmp"):
            child.call(add, 1, 2)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_call_ends_with_its_process(number: signal.Signals, started: list[ChildProcess]) -> None:
    child = ChildProcess(prepare)
    started.append(child)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(child.call, add, 1, 2).result(PATIENCE_S) == 3
        long = thread.submit(child.call, time.sleep, 3_600)
        child.end(number)
        with pytest.raises(ProcessDiedError):
            long.result(PATIENCE_S)
        thread.submit(child.reap).result(PATIENCE_S)
        with pytest.raises(ProcessDiedError):
            thread.submit(child.call, add, 1, 2).result(PATIENCE_S)


def test_a_process_that_dies_before_it_reads_its_argument(
    started: list[ChildProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The argument is larger than a pipe holds."""
    monkeypatch.setattr(child_process, "_CODE", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    child = ChildProcess(prepare, bytes(10_000_000))
    started.append(child)
    with pytest.raises(ProcessDiedError):
        child.call(add, 1, 2)


def test_a_process_starts_although_no_file_can_be_written(started: list[ChildProcess]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    child = ChildProcess(prepare)
    started.append(child)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        total = child.call(sum, [1, 2])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert total == 3


def test_a_process_that_cannot_start_has_died() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 1, hard))
    try:
        with pytest.raises(ProcessDiedError, match="Too many open files"):
            ChildProcess(prepare).call(add, 1, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
