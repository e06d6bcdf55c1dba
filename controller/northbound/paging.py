# SPDX-License-Identifier: Apache-2.0
"""Long lists in pages. A cursor names the last item of a page, so a list may change between two pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Annotated

from fastapi import Query

from controller.northbound.problems import OperationError

# Chosen: a page of flows has some 100 KB.
USUAL = 200
MOST = 1_000

Cursor = Annotated[
    str | None,
    Query(max_length=8_000, description="`next` of the page before; none: the first page."),
]
Most = Annotated[int, Query(ge=1, le=MOST, description="Items of a page.")]


def cursor_after(name: str) -> str:
    """The cursor of the page after an item."""
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode()


def parsed_number(cursor: str) -> int:
    """The number that a cursor was made of. Raises OperationError for another cursor."""
    name = _name_of(cursor)
    if not (name.isascii() and name.isdecimal() and len(name) < 19):
        raise _unknown()
    return int(name)


def page(names: Iterable[str], cursor: str | None, most: int) -> tuple[list[str], str | None]:
    """The names of a page, and the cursor of the next one; None: it is the last. `names` are sorted.

    Raises:
        OperationError: the cursor is none of `cursor_after`.
    """
    last = "" if cursor is None else _name_of(cursor)
    found: list[str] = []
    for name in names:
        if cursor is not None and name <= last:
            continue
        if len(found) == most:
            return found, cursor_after(found[-1])
        found.append(name)
    return found, None


def _name_of(cursor: str) -> str:
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        raise _unknown() from None


def _unknown() -> OperationError:
    return OperationError(404, "no such cursor; legal: `next` of a page")
