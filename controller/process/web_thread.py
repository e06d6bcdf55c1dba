# SPDX-License-Identifier: Apache-2.0
"""The web server in a thread of its own, with an event loop of its own.

Two hundred event streams that are written at once, or one long answer, would hold up the control loop, which
owes agents their answers. What the API reads and does is still read and done on the control loop, one short
call each.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing, contextmanager
from dataclasses import fields
from typing import Any, TypeVar, cast

from controller.model.view import View
from controller.northbound.health import Readiness
from controller.northbound.metrics import ControllerCounts, MetricsSource
from controller.northbound.operations import Operations
from controller.northbound.problems import OperationError
from controller.northbound.source import ViewBoard
from controller.northbound.web import WebServer

T = TypeVar("T")

# Host time that a request waits at most for the control loop. Chosen: longer than any step that makes
# progress; a health check says when none is made.
CALL_S = 10.0


class _ControlLoop:
    """Calls from the web thread to the control loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def call(self, function: Callable[[], T]) -> T:
        """The result of a short function on the control loop. Raises OperationError if it does not answer."""
        answer: Future[T] = Future()

        def run() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(function())
                except BaseException as error:
                    answer.set_exception(error)

        try:
            self.loop.call_soon_threadsafe(run)
            return answer.result(CALL_S)
        except (TimeoutError, RuntimeError) as error:
            answer.cancel()
            if isinstance(error, RuntimeError) and not self.loop.is_closed():
                raise
            raise OperationError(503, "the controller does not answer: try again in a second") from None

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the control loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))


class ViewsFromAfar:
    """The `ViewSource` of the web thread: the views of a board that lives on the control loop."""

    def __init__(self, board: ViewBoard, control: _ControlLoop) -> None:
        self._board = board
        self._control = control

    def snapshot(self) -> View | None:
        """The view of the present state; None before the first."""
        return self._board.published or self._control.call(self._board.snapshot)

    def absence(self) -> str:
        """Why there is no view yet."""
        return self._control.call(self._board.absence)

    @property
    def watched(self) -> bool:
        """Whether counters are polled."""
        return self._board.watched

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within it, counters are polled."""
        watch = self._board.watching()
        self._control.call(watch.__enter__)
        try:
            yield
        finally:
            with contextlib.suppress(OperationError):
                self._control.call(lambda: watch.__exit__(None, None, None))

    async def subscribe(self) -> AsyncGenerator[View]:
        """The newest view, again after each change. A slow reader misses views in between."""
        here, newer, newest = asyncio.get_running_loop(), asyncio.Event(), list[View]()

        def show(view: View) -> None:
            newest[:] = [view]
            newer.set()

        async def follow() -> None:
            async with aclosing(self._board.subscribe()) as views:
                async for view in views:
                    here.call_soon_threadsafe(show, view)

        following = asyncio.run_coroutine_threadsafe(follow(), self._control.loop)
        try:
            while True:
                await newer.wait()
                newer.clear()
                yield newest[0]
        finally:
            following.cancel()


class StatusFromAfar:
    """The `MetricsSource` of the web thread. Whether the control loop makes progress is asked without it."""

    def __init__(self, status: MetricsSource, control: _ControlLoop) -> None:
        self._status = status
        self._control = control

    def stalled(self) -> str:
        """Why the controller makes no progress; empty: it does."""
        return self._status.stalled()

    def readiness(self) -> Readiness:
        """What is not ready now."""
        return self._control.call(self._status.readiness)

    def counts(self) -> ControllerCounts:
        """What was counted since the start."""
        return self._control.call(self._status.counts)


class _FromAfar:
    """Calls each method of an object on the control loop."""

    def __init__(self, owner: object, control: _ControlLoop) -> None:
        self._owner = owner
        self._control = control

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._owner, name)
        if inspect.iscoroutinefunction(method):
            return lambda *args, **options: self._control.wait(method(*args, **options))
        return lambda *args, **options: self._control.call(lambda: method(*args, **options))


class WebThread:
    """Runs a web server in a thread of its own, and makes the parts of its application for that thread."""

    def __init__(self) -> None:
        """Called on the control loop."""
        self._control = _ControlLoop(asyncio.get_running_loop())
        self._loop = asyncio.new_event_loop()
        self._server: WebServer | None = None
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    def views(self, board: ViewBoard) -> ViewsFromAfar:
        """The views of a board on the control loop."""
        return ViewsFromAfar(board, self._control)

    def status(self, status: MetricsSource) -> StatusFromAfar:
        """A status that is kept on the control loop."""
        return StatusFromAfar(status, self._control)

    def operations(self, operations: Operations) -> Operations:
        """Operations that work on the control loop."""
        found = {field.name: getattr(operations, field.name) for field in fields(operations)}
        return Operations(
            **{
                name: None if part is None else cast(Any, _FromAfar(part, self._control))
                for name, part in found.items()
            }
        )

    async def start(self, serving: Callable[[], Coroutine[Any, Any, WebServer]]) -> WebServer:
        """Start the thread and the server, and wait until it listens. Raises what `serving` raises."""
        self._thread.start()
        try:
            self._server = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(serving(), self._loop))
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise
        return self._server

    async def close(self) -> None:
        """End the server and the thread."""
        if self._server is not None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._server.close(), self._loop))
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
