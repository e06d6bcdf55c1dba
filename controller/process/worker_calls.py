# SPDX-License-Identifier: Apache-2.0
"""What runs in a worker process: it reads calls from a pipe and answers them, and ends one that is abandoned.

`child_process.py` is the parent's side. Each message is HEAD, the length of the data and what is `Said`, and
the pickled data. A third pipe carries ABANDON records. The worker ends when that pipe is closed, so when its
parent ends, whatever it computes.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from types import FrameType
from typing import Any, BinaryIO

HEAD = struct.Struct("<QB")
ABANDON = struct.Struct("<q?")
# How soon a call that cannot be ended now is looked at again. Chosen: short beside an import.
_LOOK_AGAIN_S = 0.01
# Chosen: far above the time in which a call ends after CallAbandonedError, unless something catches that.
_RAISE_AGAIN_S = 0.5
_IMPORTS = "<frozen importlib._bootstrap>"
# What these do is not ended halfway. LLVM calls back into Python, and cannot pass an exception on: it lacks
# what it asked for, and may end the process.
_WHOLE_ONLY = ("llvmlite", "numba")


class Said(IntEnum):
    """What a message to the parent is. COMPILES and COMPILED have the processor time of the worker in s."""

    RESULT = 0
    RAISED = 1
    COMPILES = 2
    COMPILED = 3


class CallAbandonedError(BaseException):
    """A call was ended because nobody wants to wait for its result any more.

    No Exception: the planner takes those of a policy for the policy's own failures.
    """


@dataclass
class _Running:
    """The call that runs in this process: its number, 0 between calls, and whether it compiles.

    `asks`: it has asked whether it shall stop, so it will ask again. `stop`: it shall. `abandoned` and
    `patient` are the last request of the parent. `answers` is the pipe to it.
    """

    number: int = 0
    compiling: bool = False
    asks: bool = False
    stop: bool = False
    abandoned: int = 0
    patient: bool = False
    answers: BinaryIO | None = None

    def look(self, frame: FrameType | None = None) -> None:
        """End the call that runs if the parent wants that. `frame` is where it runs.

        Neither the loading or compilation of a kernel is interrupted, so that its lock is not left behind,
        nor an import: a package that was imported in part stays broken for as long as the process lives. The
        call ends after it.
        """
        if self.number == 0 or self.number != self.abandoned:
            return
        self.stop = True
        if self.asks or self.patient:
            return
        if self.compiling or _must_end_first(frame):
            signal.setitimer(signal.ITIMER_REAL, _LOOK_AGAIN_S)
            return
        # Python drops an exception in a finalizer or a callback: the call would go on.
        signal.setitimer(signal.ITIMER_REAL, _RAISE_AGAIN_S)
        raise CallAbandonedError


def _must_end_first(frame: FrameType | None) -> bool:
    """Whether an import, or one of _WHOLE_ONLY, is under way in this frame or in one of its callers."""
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package in _WHOLE_ONLY or frame.f_code.co_filename == _IMPORTS:
            return True
        frame = frame.f_back
    return False


_running = _Running()


def stop_requested() -> bool:
    """Whether the call shall end with what it has. A call that asks is not ended by CallAbandonedError."""
    _running.asks = True
    return _running.stop


@contextmanager
def abandonable(number: int) -> Iterator[None]:
    """Within this context the call of this number runs, and may be abandoned."""
    _running.asks = _running.stop = False
    try:
        _running.number = number
        # The request may have come while the call was on its way.
        _running.look()
        yield
    finally:
        _running.number = 0


def compilation_began() -> None:
    """A kernel is being compiled from now on. The parent is told."""
    _running.compiling = True
    _tell(Said.COMPILES)


def compilation_ended() -> None:
    """The end of what `compilation_began` told."""
    _tell(Said.COMPILED)
    _running.compiling = False


def serve(control: int) -> None:
    """Answer calls until the parent closes the pipes. `control` is the pipe of ABANDON records."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for wanted in (signal.SIGUSR1, signal.SIGALRM):
        signal.signal(wanted, lambda _signal, frame: _running.look(frame))
    threading.Thread(target=_watch, args=(control,), daemon=True).start()
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What a call prints must not come between the answers.
    os.dup2(2, 1)
    _running.answers = answers
    failure: BaseException | None = None
    prepare, arguments = pickle.loads(_message(requests))
    try:
        prepare(*arguments)
    except Exception as error:
        failure = error
    while True:
        function, arguments = pickle.loads(_message(requests))
        try:
            if failure is not None:
                raise failure
            _say(answers, Said.RESULT, function(*arguments))
        except (Exception, CallAbandonedError) as error:
            _say(answers, Said.RAISED, _picklable(error))


def _watch(control: int) -> None:
    """Runs in a thread: take requests, and tell the main thread, which may be asleep."""
    while record := os.read(control, ABANDON.size):
        _running.abandoned, _running.patient = ABANDON.unpack(record)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
    os._exit(0)


def _message(requests: BinaryIO) -> bytes:
    head = requests.read(HEAD.size)
    if len(head) < HEAD.size:
        os._exit(0)
    return requests.read(HEAD.unpack(head)[0])


def _say(answers: BinaryIO, what: Said, content: Any) -> None:
    data = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    answers.write(HEAD.pack(len(data), what))
    answers.write(data)
    answers.flush()


def _tell(what: Said) -> None:
    if _running.answers is not None:
        _say(_running.answers, what, time.process_time())


def _picklable(error: BaseException) -> BaseException:
    """The error, or one with its words if it cannot travel."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
