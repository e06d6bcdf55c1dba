# SPDX-License-Identifier: Apache-2.0
"""A Python process that runs one call after another, and the pipes to it: the parent's side.

The pools of `multiprocessing` are not used. They need semaphores and shared memory, which are files, so a
full disk kept the controller from replacing a dead process; a process that is killed while it holds such a
semaphore keeps it for ever; and a large argument is written to a new process by the thread that starts it,
which waits for ever if the process dies first.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from controller.process import worker_calls
from controller.process.worker_calls import ABANDON, HEAD, Said

# Chosen: how long a process may take to end after SIGTERM. It has nothing to save.
_END_S = 5.0
_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    f"from {worker_calls.__name__} import serve; serve(int(sys.argv[2]))"
)


class ProcessDiedError(Exception):
    """The process has ended, or could not be started."""


class ChildProcess:
    """One process. It starts at the first call, and it never starts again.

    It is started as a new program, never forked, because gRPC does not survive a fork. `prepare(*arguments)`
    runs in it once. It ignores Ctrl-C, which its parent handles, and ends when its parent ends.

    `call` and `reap` wait, so they belong into a thread, one at a time. The rest may be called from any
    thread.
    """

    def __init__(self, prepare: Callable[..., None], *arguments: Any) -> None:
        self._prepare = (prepare, arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._abandon = -1
        self._ended = False
        self._guard = threading.Lock()
        # Processor time of finished compilations, and since when one is under way (negative if none is).
        self._compiled_s = 0.0
        self._compiles_since_s = -1.0

    @property
    def pid(self) -> int | None:
        """The process, None before its start."""
        return self._process.pid if self._process is not None else None

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """The result of `function(*args)` in the process. What it raises is raised here.

        Raises:
            ProcessDiedError: also when the process cannot be started.
        """
        try:
            if self._process is None:
                self._start()
            self._write(pickle.dumps((function, args), pickle.HIGHEST_PROTOCOL))
            kind, data = self._answer()
        except (OSError, EOFError) as error:
            raise ProcessDiedError(str(error) or "it has ended") from error
        content = pickle.loads(data)
        if kind == Said.RAISED:
            raise content
        return content

    def abandon(self, number: int, *, patient: bool) -> None:
        """Ask the process to end the call of this number (`worker_calls.abandonable`). A `patient` request
        lets a call go on until it asks whether to stop (`worker_calls.stop_requested`)."""
        with self._guard:
            if self._abandon >= 0:
                # If the process is gone, or does not read, nobody needs the request.
                with contextlib.suppress(OSError):
                    os.write(self._abandon, ABANDON.pack(number, patient))

    def compile_s(self, used_s: float) -> float:
        """How much of its processor time `used_s` the process has spent on compiling kernels, in s.

        That is spent once per machine and version, so it does not count for the limit of a call.
        """
        since_s = self._compiles_since_s
        return self._compiled_s + (max(0.0, used_s - since_s) if since_s >= 0 else 0.0)

    def end(self, number: signal.Signals) -> None:
        """End the process by a signal. A call that runs raises ProcessDiedError."""
        with self._guard:
            self._ended = True
            if self._process is not None:
                self._process.send_signal(number)

    def reap(self) -> None:
        """Wait for the end of a process after `end`, and give back what belongs to it."""
        with self._guard:
            process, self._process = self._process, None
            control, self._abandon = self._abandon, -1
        if process is None:
            return
        os.close(control)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            # Something may be left to be written.
            with contextlib.suppress(OSError):
                stream.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> None:
        if self._ended:
            raise EOFError
        control, ours = os.pipe()
        try:
            os.set_blocking(ours, False)
            process = subprocess.Popen(
                [sys.executable, "-c", _CODE, json.dumps(sys.path), str(control)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(control,),
            )
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(control)
        with self._guard:
            self._process, self._abandon = process, ours
            if self._ended:
                process.kill()
        self._write(pickle.dumps(self._prepare, pickle.HIGHEST_PROTOCOL))

    def _write(self, data: bytes) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise EOFError
        process.stdin.write(HEAD.pack(len(data), 0))
        process.stdin.write(data)
        process.stdin.flush()

    def _answer(self) -> tuple[Said, bytes]:
        process = self._process
        if process is None or process.stdout is None:
            raise EOFError
        while True:
            length, kind = HEAD.unpack(_exactly(process.stdout, HEAD.size))
            data = _exactly(process.stdout, length)
            if kind == Said.COMPILES:
                self._compiles_since_s = pickle.loads(data)
            elif kind == Said.COMPILED:
                self._compiled_s += pickle.loads(data) - self._compiles_since_s
                self._compiles_since_s = -1.0
            else:
                return Said(kind), data


def _exactly(stream: Any, length: int) -> bytes:
    data: bytes = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data
