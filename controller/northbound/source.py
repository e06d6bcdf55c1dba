# SPDX-License-Identifier: Apache-2.0
"""The source of views for the web server: a protocol, and the board on which the controller publishes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from controller.model.view import View
from controller.northbound.problems import OperationError

NOT_CONNECTED = "the controller has not connected to its fabric yet: try again in a second"


class ViewSource(Protocol):
    """Provides the newest view of the controller."""

    def snapshot(self) -> View | None:
        """The newest view; None before the first."""

    def absence(self) -> str:
        """Why there is no view yet."""

    def watching(self) -> AbstractContextManager[None]:
        """Within it, somebody reads views from time to time, so counters are polled."""

    @property
    def watched(self) -> bool:
        """Whether somebody watches, so that counters are polled."""

    def subscribe(self) -> AsyncGenerator[View]:
        """The newest view, again after each change. A slow reader misses views in between."""


def current_view(source: ViewSource) -> View:
    """The newest view. Raises OperationError before the first."""
    view = source.snapshot()
    if view is None:
        raise OperationError(503, source.absence())
    return view


class ViewBoard:
    """A `ViewSource` that holds one view. Use it from one event loop only.

    `absence` says why there is no view as long as there is none.
    """

    def __init__(self, absence: Callable[[], str] = lambda: NOT_CONNECTED) -> None:
        self._absence = absence
        self._view: View | None = None
        self._version = 0
        self._newer = asyncio.Event()

    def publish(self, view: View) -> None:
        """Replace the view and wake every subscriber."""
        self._view = view
        self._version += 1
        stale, self._newer = self._newer, asyncio.Event()
        stale.set()

    def snapshot(self) -> View | None:
        """The newest view; None before the first."""
        return self._view

    @property
    def published(self) -> View | None:
        """The view that was published last, if nothing has changed since. Any thread may ask."""
        return self._view

    def absence(self) -> str:
        """Why there is no view yet."""
        return self._absence()

    def watching(self) -> AbstractContextManager[None]:
        """Nothing is polled for this board."""
        return nullcontext()

    @property
    def watched(self) -> bool:
        """Nothing is polled for this board."""
        return False

    async def subscribe(self) -> AsyncGenerator[View]:
        """The present view at once, if there is one, then the newest view after each change."""
        seen = 0
        while True:
            while self._view is None or self._version == seen:
                await self._newer.wait()
            seen = self._version
            yield self._view
