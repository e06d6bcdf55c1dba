# SPDX-License-Identifier: Apache-2.0
"""Work on many switches, a few of them at once: what waits for the loop is not held up by all in a row."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

BEGUN_AT_ONCE = 4
PASSES = 3
"""How many works `begun_in_turn` begins for so many passes of the event loop. Chosen: the beginning of four
writes takes about a millisecond, in three passes."""


async def few_at_once(most: int, work: Callable[[str], Awaitable[T]], names: Iterable[str]) -> list[T]:
    """The results of `work` for each name in order, with at most `most` of them under way."""
    turns = asyncio.Semaphore(most)

    async def in_turn(name: str) -> T:
        async with turns:
            return await work(name)

    return await asyncio.gather(*map(in_turn, names))


async def begun_in_turn(work: Callable[[str], Coroutine[Any, Any, T]], names: Iterable[str]) -> list[T]:
    """The results of `work` for each name in order. None waits for another one, but few begin at once: what
    else is ready to run, such as an answer to an agent, does not wait for the beginnings of all."""
    tasks: list[asyncio.Task[T]] = []
    try:
        for number, name in enumerate(names, 1):
            tasks.append(asyncio.create_task(work(name)))
            if number % BEGUN_AT_ONCE == 0:
                for _ in range(PASSES):
                    await asyncio.sleep(0)
        return await asyncio.gather(*tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        raise
