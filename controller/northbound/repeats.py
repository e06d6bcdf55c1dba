# SPDX-License-Identifier: Apache-2.0
"""Requests that are sent twice: the header Idempotency-Key makes the second one have the answer of the first.

As the IETF's draft "The Idempotency-Key HTTP Header Field" says.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Annotated, Generic, TypeVar

from fastapi import Header

from controller.northbound.problems import OperationError

T = TypeVar("T")
# Chosen: a scheduler that starts a thousand jobs at once can repeat any of these requests.
MOST_KEPT = 1_024

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="A text that names this request: repeated with it, it is carried out once.",
        min_length=1,
        max_length=200,
    ),
]


class Repeats(Generic[T]):
    """The answers to the last requests with a key, in memory. Refused requests are not kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[object, asyncio.Future[T]]] = OrderedDict()

    async def once(self, caller: str, key: str | None, asked: object, work: Callable[[], Awaitable[T]]) -> T:
        """The answer to a request of a caller: `work()` makes it, unless the key has one.

        Raises:
            OperationError: the key was for another request.
        """
        if key is None:
            return await work()
        known = self._kept.get((caller, key))
        if known is not None:
            before, answer = known
            if before != asked:
                raise OperationError(409, "Idempotency-Key: another request had this key; legal: a new key")
            return await asyncio.shield(answer)
        made = asyncio.ensure_future(work())
        self._kept[caller, key] = asked, made
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        try:
            # Who hangs up ends the wait, and not the work.
            return await asyncio.shield(made)
        except Exception:
            self._kept.pop((caller, key), None)
            raise
