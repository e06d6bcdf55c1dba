# SPDX-License-Identifier: Apache-2.0
"""Entity tags: a caller changes what it has seen, or is told that somebody else changed it (RFC 9110, 8.8.3).

The tag of a resource names the part of it that callers can change, and not its figures, which change by
themselves.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Header

from controller.northbound.problems import OperationError

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="Tags of the resource as the caller has seen it; if it has another one by now: 412.",
        max_length=1000,
    ),
]


def tag_of(value: object) -> str:
    """The tag of a value, which must have the same `repr` in each process."""
    return f'"{hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()[:16]}"'


def check_match(tags: str | None, tag: str) -> None:
    """Raise OperationError unless `tags`, a header If-Match, allow to change what has the tag now."""
    if tags is None or tags.strip() == "*":
        return
    if tag not in (one.strip() for one in tags.split(",")):
        raise OperationError(
            412, f"it was changed meanwhile: its tag is {tag}, not {tags:.100}; read it again, then decide"
        )


class Changes:
    """The changes of the resources of one kind, one after another. A change may wait: the next one is checked
    when it is done, against what it has made."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def checked(self, tags: str | None, tag: Callable[[], str]) -> AsyncIterator[None]:
        """A change that `tags` must allow, as in `check_match`; `tag` gives the tag when its turn comes."""
        async with self._turn:
            check_match(tags, tag())
            yield
