# SPDX-License-Identifier: Apache-2.0
"""A worker process, which computes beside the controller's loop.

It is spawned, never forked, because gRPC does not survive a fork; it is replaced when it dies.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from controller.kernel import watch_compilations
from controller.process.latency import NICENESS, lower_priority
from controller.process.shared_objects import ObjectReceiver, ObjectSender, SharedMessage
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


class CallAbandonedError(BaseException):
    """A call was ended because nobody wants to wait for its result any more.

    No Exception: the planner takes those of a policy for the policy's own failures.
    """


class _AbandonedCall:
    """The number of the call that the worker shall abandon, in shared memory."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._number = context.Value("q", 0)
        self._patient = context.Value("b", 0)
        self._watched = context.Value("b", 0)

    def request(self, number: int, pid: int, *, patient: bool) -> None:
        """Runs in the controller: end this call if it is still running. A process that is only starting would
        end as a whole, so it gets no signal. A `patient` request lets the call come to its first result."""
        self._number.value, self._patient.value = number, patient
        if self._watched.value:
            os.kill(pid, signal.SIGUSR1)

    def watch(self) -> None:
        """Runs in the worker: a signal ends the call that runs, if it is the one.

        A call that asks `stop_requested` ends with what it has. A kernel that is being compiled is not
        interrupted, so that its lock is not left behind.
        """

        signal.signal(signal.SIGUSR1, lambda _signal, _frame: self._interrupt())
        _running.interrupt = self._interrupt
        self._watched.value = 1

    def _interrupt(self) -> None:
        if _running.number != self._number.value:
            return
        _running.stop = True
        if not (_running.compiling or _running.asks or self._patient.value):
            raise CallAbandonedError


class _CompileTimes:
    """The processor time in s that the worker has spent on compiling kernels, in shared memory.

    It is spent once per machine and version, so it does not count for the limit of a call.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._done_s = context.Value("d", 0.0)
        self._began_s = context.Value("d", -1.0)

    def watch(self) -> None:
        """Runs in the worker: note the times of its compilations."""
        watch_compilations(self._began, self._ended)

    def spent_s(self, now_s: float) -> float:
        """The time so far; `now_s` is the processor time that the worker has used."""
        began_s = self._began_s.value
        under_way_s = max(0.0, now_s - began_s) if began_s >= 0 else 0.0
        return float(self._done_s.value + under_way_s)

    def _began(self) -> None:
        _running.compiling = True
        self._began_s.value = time.process_time()

    def _ended(self) -> None:
        self._done_s.value += time.process_time() - self._began_s.value
        self._began_s.value = -1.0
        _running.compiling = False


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
        self._sender: ObjectSender
        self._number = 0
        self._argument: object = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._under_way: asyncio.Task[Any] | None = None
        self._start = (topology, ecn, artefacts, guard)
        self._niceness = niceness if host_clock else 0
        self._pool = self._new_pool()
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
                pool, done = self._pool, False
                self._under_way = asyncio.current_task()
                try:
                    message = self._sender.message((function.func, function.args, function.keywords))
                    self._number += 1
                    self._argument = function.args[0] if function.args else None
                    call = asyncio.wrap_future(pool.submit(_timed, self._number, message))
                    if self._limited:
                        await self._within_limits(pool, call, cpu_limit_s)
                    answer, cpu_s, number = await call
                    result = self._sender.result(answer)
                    done = True
                    if number:
                        self._sender.know(number, result)
                    return result, cpu_s
                except BrokenProcessPool:
                    log.error("the worker process died; a new one takes its place and repeats the call")
                    self._replace(pool)
                except _CallTooLongError as error:
                    self._replace(pool)
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
                        # The worker may not have read the message.
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
        for process in _processes(self._pool):
            if process.pid is not None and process.is_alive():
                self._abandoned.request(self._number, process.pid, patient=patient)

    async def _within_limits(
        self, pool: ProcessPoolExecutor, call: asyncio.Future[Any], cpu_limit_s: float
    ) -> None:
        """Wait until a call has ended; raises _CallTooLongError if it exceeds a limit."""
        began, before = time.monotonic(), self._working_s(pool)
        try:
            while not (await asyncio.wait([call], timeout=LOOK_S))[0]:
                if self._working_s(pool) - before > cpu_limit_s:
                    raise _CallTooLongError(f"{cpu_limit_s:g} s of processor time")
                if time.monotonic() - began > CALL_TIMEOUT_S:
                    raise _CallTooLongError(f"{CALL_TIMEOUT_S:g} s")
        finally:
            # Nobody waits for it any more. If it has ended, this does nothing.
            call.cancel()

    def _working_s(self, pool: ProcessPoolExecutor) -> float:
        """The processor time of a pool's process in s, without the compilation of kernels."""
        used_s = _cpu_s(pool)
        return used_s - self._compile_times.spent_s(used_s)

    async def run_in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `function(*args)`, computed in a thread of this process."""
        return await asyncio.wrap_future(self._thread.submit(function, *args, **kwargs))

    def close(self) -> None:
        """End the process; calls that it has not finished are dropped."""
        for call in self._calls:
            call.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)
        for process in _shut_down(self._pool):
            process.terminate()

    def _replace(self, pool: ProcessPoolExecutor) -> None:
        for process in _shut_down(pool):
            process.kill()
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        self._compile_times = _CompileTimes()
        self._abandoned = _AbandonedCall()
        arguments = (self._compile_times, self._abandoned, self._niceness, *self._start)
        self._sender = ObjectSender(self._start[0])
        return ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=arguments
        )


@dataclass
class _Running:
    """The call that runs in this worker process: its number, 0 between calls, and whether it compiles.

    `asks`: it has asked whether it shall stop, so it will ask again. `stop`: it shall. `interrupt` ends it if
    that was requested.
    """

    number: int = 0
    compiling: bool = False
    asks: bool = False
    stop: bool = False
    interrupt: Callable[[], None] = lambda: None


_running = _Running()


def stop_requested() -> bool:
    """Runs in the worker: whether the call shall end with what it has, as `WorkerProcess.abandon` asks."""
    _running.asks = True
    return _running.stop


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
        _running.asks = _running.stop = False
        _running.number = number
        # The request may have come while the call was on its way.
        _running.interrupt()
        result = function(*args, **kwargs)
        _running.number = 0
        used_s = time.process_time() - before
        return _received.answer(result), used_s, _received.keep(result)
    finally:
        _running.number = 0
        gc.enable()


def _processes(pool: ProcessPoolExecutor) -> list[BaseProcess]:
    """The process of a pool; none before the first call and after `shutdown`."""
    return list((getattr(pool, "_processes", None) or {}).values())


def _cpu_s(pool: ProcessPoolExecutor) -> float:
    """The processor time that a pool's process has used, in s; 0 where the system does not tell."""
    used = 0
    for process in _processes(pool):
        try:
            words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            used += int(words[11]) + int(words[12])
        except OSError:
            continue
    return used / os.sysconf("SC_CLK_TCK")


def _shut_down(pool: ProcessPoolExecutor) -> list[BaseProcess]:
    """Drop the calls of a pool; returns its processes, which may still work on one."""
    processes = _processes(pool)
    pool.shutdown(wait=False, cancel_futures=True)
    return processes


def _start_worker(
    compile_times: _CompileTimes, abandoned: _AbandonedCall, niceness: int, topology: Topology, *others: Any
) -> None:
    compile_times.watch()
    abandoned.watch()
    if niceness:
        lower_priority(niceness)
    # A call that needs more raises MemoryError, and the machine keeps its other processes.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > MEMORY_LIMIT_BYTES:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT_BYTES, hard))
    table_writes.start_worker(topology, *others)
    _received.give(topology)
    # The imported modules stay for good, so the garbage collector need not visit them.
    gc.freeze()
