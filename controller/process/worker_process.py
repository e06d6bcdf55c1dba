# SPDX-License-Identifier: Apache-2.0
"""A worker process, which computes beside the controller's loop, and is replaced when it dies."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from controller.kernel import watch_compilations
from controller.process.child_process import ChildProcess, ProcessDiedError
from controller.process.latency import NICENESS, lower_priority
from controller.process.shared_objects import ObjectReceiver, ObjectSender, SharedMessage
from controller.process.worker_calls import (
    CallAbandonedError,
    abandonable,
    compilation_began,
    compilation_ended,
)
from controller.southbound import table_writes
from controller.southbound.codec import PipelineError
from controller.southbound.desired import EcnProfile
from controller.southbound.fleet import RunnerError
from controller.southbound.host_guard import HostGuard
from topo.graph import Topology

log = logging.getLogger(__name__)

# Chosen: how often a call is tried if the worker dies each time. The call itself may be what kills it.
ATTEMPTS = 3
# Chosen: the most processor time of one call. Host time is no measure of a call, because on a busy machine
# the worker has the lowest priority. But a call that neither works nor ends has a limit in host time too.
_DEFAULT_GUARD = HostGuard()
CALL_CPU_S = 60.0
CALL_TIMEOUT_S = 900.0
# Chosen, host time: how often the processor time of a running call is looked at.
LOOK_S = 0.5
# Chosen: the most memory of the worker's data. Plans for 100,000 flows need about 1 GiB.
MEMORY_LIMIT_BYTES = 4 << 30

P = ParamSpec("P")
T = TypeVar("T")


class _CallTooLongError(Exception):
    """A call has exceeded a limit, which the message names."""


class WorkerProcess:
    """Runs pure functions in the worker process, one at a time, in the order of the calls.

    On the host's clock the worker gets only processor time that the controller leaves, so that on a machine
    with few cores a plan delays no answer to an agent, and a call that takes longer than its limit of
    processor time or CALL_TIMEOUT_S is ended with its process. The embedded fabric stands still during a
    plan, and a slow computer must change no result there: it needs neither (`host_clock` False).
    """

    def __init__(
        self,
        topology: Topology,
        ecn: EcnProfile,
        artefacts: Path,
        guard: HostGuard = _DEFAULT_GUARD,
        *,
        host_clock: bool = True,
        niceness: int = NICENESS,
    ) -> None:
        self._limited = host_clock
        self._sender = ObjectSender(topology)
        self._number = self._abandoned = 0
        self._argument: object = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._under_way: asyncio.Task[Any] | None = None
        self._start = (topology, ecn, artefacts, guard)
        self._niceness = niceness if host_clock else 0
        self._child = self._new_child()
        self._closed = False
        # Waits for the process, so that the control loop does not.
        self._pipes = ThreadPoolExecutor(1, thread_name_prefix="worker")
        # One call at a time: a call that waits for another one is not late.
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="serialise")

    async def warm_up(self) -> None:
        """Start the process, load its imports, and encode the tables of one switch as a check.

        Raises:
            PipelineError: the P4 program lacks a table, action or field that the controller writes.
        """
        first = {s.name: None for s in self._start[0].switches[:1]}
        await self.run(table_writes.writes_to, first, table_writes.DesiredState())

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `function(*args)`. If the worker dies, it is replaced and the call is repeated.

        Raises:
            RunnerError: the worker died ATTEMPTS times, the call took too long, or the function failed.
            PipelineError: the function raised it.
            CallAbandonedError: `abandon` was called meanwhile.
        """
        return (await self.run_timed(CALL_CPU_S, function, *args, **kwargs))[0]

    async def run_timed(
        self, cpu_limit_s: float, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[T, float]:
        """As `run`, with a limit of processor time; returns the result and the processor time in s.

        If the caller is cancelled, a call that is under way is abandoned. Until it has ended it keeps its
        turn, so the worker has read its message, and what both have stays known.
        """
        call = asyncio.ensure_future(self._call(cpu_limit_s, partial(function, *args, **kwargs)))
        self._calls.add(call)
        call.add_done_callback(self._ended)
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            if self._under_way is call:
                self._abandon_now()
            else:
                call.cancel()
            raise

    def _ended(self, call: asyncio.Task[Any]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            # Also the error of a call that nobody waits for any more is looked at.
            call.exception()

    async def _call(self, cpu_limit_s: float, function: partial[T]) -> tuple[T, float]:
        """The result of a call and its processor time, when it is its turn."""
        name = function.func.__name__
        for _ in range(ATTEMPTS):
            async with self._turn:
                child, done = self._child, False
                self._under_way = asyncio.current_task()
                try:
                    message = self._sender.message((function.func, function.args, function.keywords))
                    self._number += 1
                    self._argument = function.args[0] if function.args else None
                    call = asyncio.wrap_future(self._pipes.submit(child.call, _timed, self._number, message))
                    if self._limited:
                        await self._within_limits(child, call, cpu_limit_s)
                    answer, cpu_s, number = await call
                    result = self._sender.result(answer)
                    done = True
                    if number:
                        self._sender.know(number, result)
                    return result, cpu_s
                except ProcessDiedError as error:
                    if self._closed:
                        raise RunnerError(f"the worker process ended during {name}") from error
                    # The new process does not know that nobody wants to wait.
                    unwanted = self._abandoned == self._number
                    then = "the call was abandoned" if unwanted else "the call is repeated"
                    log.error("the worker process died (%s); a new one takes its place; %s", error, then)
                    self._replace(child)
                    if unwanted:
                        raise CallAbandonedError from error
                except _CallTooLongError as error:
                    self._replace(child)
                    raise RunnerError(f"{name} took longer than {error}") from None
                except CallAbandonedError:
                    done = True
                    raise
                except PipelineError:
                    raise
                except Exception as error:
                    what = f"{type(error).__name__}: {error}"
                    raise RunnerError(f"{name} failed: {what}") from error
                finally:
                    self._argument = self._under_way = None
                    if not done:
                        # The worker may not have read the message, or it is a new one.
                        self._sender = ObjectSender(self._start[0])
        raise RunnerError(f"the worker process died {ATTEMPTS} times during {name}")

    def abandon(self, argument: object, *, patient: bool = False) -> bool:
        """End the call with this first argument. It may be too late.

        A call that was given `stop_requested`, and has asked it, returns what it has; any other one raises
        CallAbandonedError. A `patient` request lets it go on until it asks.

        Returns whether such a call is under way; False while it waits for its turn.
        """
        if self._argument is not argument:
            return False
        self._abandon_now(patient=patient)
        return True

    def _abandon_now(self, *, patient: bool = False) -> None:
        self._abandoned = self._number
        self._child.abandon(self._number, patient=patient)

    async def _within_limits(
        self, child: ChildProcess, call: asyncio.Future[Any], cpu_limit_s: float
    ) -> None:
        """Wait until a call has ended; raises _CallTooLongError if it exceeds a limit.

        The limit of processor time counts from the first look, LOOK_S after the beginning: asking the system
        takes a millisecond on a busy machine, and nearly all calls have ended by then.
        """
        began, before = time.monotonic(), None
        try:
            while not (await asyncio.wait([call], timeout=LOOK_S))[0]:
                used_s = _working_s(child)
                before = used_s if before is None else before
                if used_s - before > cpu_limit_s:
                    raise _CallTooLongError(f"{cpu_limit_s:g} s of processor time")
                if time.monotonic() - began > CALL_TIMEOUT_S:
                    raise _CallTooLongError(f"{CALL_TIMEOUT_S:g} s")
        finally:
            # Nobody waits for it any more. If it has ended, this does nothing.
            call.cancel()

    async def run_in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `function(*args)`, computed in a thread of this process."""
        return await asyncio.wrap_future(self._thread.submit(function, *args, **kwargs))

    def close(self) -> None:
        """End the process; calls that it has not finished are dropped."""
        for call in self._calls:
            call.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)
        if not self._closed:
            self._closed = True
            self._child.end(signal.SIGTERM)
            self._pipes.submit(self._child.reap)
            self._pipes.shutdown(wait=False)

    def _replace(self, child: ChildProcess) -> None:
        child.end(signal.SIGKILL)
        self._pipes.submit(child.reap)
        self._child = self._new_child()

    def _new_child(self) -> ChildProcess:
        return ChildProcess(_start_worker, self._niceness, *self._start)


_received = ObjectReceiver()


def _timed(number: int, message: SharedMessage) -> tuple[bytes, float, int]:
    """Runs in the worker: the answer with the result of a call, its processor time in s, and the number of a
    kept result.

    The garbage collector rests meanwhile: it would visit all objects of a large plan again and again, and
    plans leave no cycles behind.
    """
    function, args, kwargs = _received.content(message)
    gc.disable()
    try:
        before = time.process_time()
        with abandonable(number):
            result = function(*args, **kwargs)
        used_s = time.process_time() - before
        return _received.answer(result), used_s, _received.keep(result)
    finally:
        gc.enable()


def _working_s(child: ChildProcess) -> float:
    """The processor time of a process in s, without the compilation of kernels."""
    used_s = _cpu_s(child.pid)
    return used_s - child.compile_s(used_s)


def _cpu_s(pid: int | None) -> float:
    """The processor time that a process has used, in s; 0 where the system does not tell."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _start_worker(niceness: int, topology: Topology, *others: Any) -> None:
    """Runs in the worker at its start."""
    watch_compilations(compilation_began, compilation_ended)
    if niceness:
        lower_priority(niceness)
    # A call that needs more raises MemoryError, and the machine keeps its other processes.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > MEMORY_LIMIT_BYTES:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT_BYTES, hard))
    table_writes.set_fabric(topology, *others)
    _received.give(topology)
    # The imported modules stay for good, so the garbage collector need not visit them.
    gc.freeze()
