# SPDX-License-Identifier: Apache-2.0
"""Long lists in pages. A cursor names the last item of a page, so a list may change between two pages.

It also names the list, and is refused by every other one.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Generic, TypeVar
from zlib import crc32

from fastapi import Depends, Query, Request

from controller.northbound.problems import OperationError

T = TypeVar("T")
V = TypeVar("V")

# Chosen: a page of flows has some 100 KB.
USUAL = 200
MOST = 1_000
# Hexadecimal digits that name the list of a cursor.
_MARK = 8


@dataclass(frozen=True, slots=True)
class PageStart:
    """Where a page of a list begins: after the item `last`; None: it is the first page."""

    listing: str
    """What the list is called: the path of its resource."""
    last: str | None = None

    def cursor_after(self, name: str) -> str:
        """The cursor of the page after an item of this list."""
        return base64.urlsafe_b64encode((self._mark() + name).encode("utf-8", "surrogatepass")).decode()

    def at(self, cursor: str) -> PageStart:
        """The page of a cursor. Raises OperationError for one that is not of this list."""
        try:
            text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
        except (binascii.Error, ValueError):
            raise _unknown() from None
        if text[:_MARK] != self._mark():
            raise _unknown()
        return PageStart(self.listing, text[_MARK:])

    def number(self) -> int | None:
        """The number of the last item, in a list of numbered ones. Raises OperationError for another item."""
        if self.last is None:
            return None
        if not (self.last.isascii() and self.last.isdecimal() and len(self.last) < 19):
            raise _unknown()
        return int(self.last)

    def _mark(self) -> str:
        return f"{crc32(self.listing.encode('utf-8', 'surrogatepass')):0{_MARK}x}"


async def _page_start(
    request: Request,
    cursor: Annotated[
        str | None,
        Query(max_length=8_000, description="`next` of the page before; none: the first page."),
    ] = None,
) -> PageStart:
    # A plain function would cost each request the way to another thread and back.
    first = PageStart(request.scope["path"])
    return first if cursor is None else first.at(cursor)


Start = Annotated[PageStart, Depends(_page_start)]
Most = Annotated[int, Query(ge=1, le=MOST, description="Items of a page.")]


class SortedOnce(Generic[T, V]):
    """The items of an object by their sorted names, sorted again only for another object.

    A plan or a fabric has very many, and each page of them needs the order.
    """

    def __init__(self, items: Callable[[T], Mapping[str, V]]) -> None:
        self._items = items
        self._last: tuple[T, Sequence[str], Mapping[str, V]] | None = None

    def of(self, owner: T) -> tuple[Sequence[str], Mapping[str, V]]:
        """The sorted names, and the items. Any thread may ask."""
        last = self._last
        if last is None or last[0] is not owner:
            items = self._items(owner)
            last = self._last = owner, sorted(items), items
        return last[1:]


def page(
    names: Sequence[str], start: PageStart, most: int, wanted: Callable[[str], bool] | None = None
) -> tuple[list[str], str | None]:
    """The names of a page, and the cursor of the next one; None: it is the last. `names` are sorted. Only
    those that are `wanted` count.
    """
    first = 0 if start.last is None else bisect_right(names, start.last)
    rest: Iterable[str] = islice(names, first, None)
    found = list(islice(rest if wanted is None else filter(wanted, rest), most + 1))
    return found[:most], start.cursor_after(found[most - 1]) if len(found) > most else None


def page_of_lists(
    lists: Sequence[Sequence[str]], start: PageStart, most: int
) -> tuple[list[Sequence[str]], str | None]:
    """A page of several lists of sorted names, one after the other: the names of each list, and the cursor of
    the next page; None: it is the last.

    Raises:
        OperationError: the page before is none of such a page.
    """
    number, last = (0, None) if start.last is None else _place(start.last, len(lists))
    found: list[Sequence[str]] = [()] * number
    for names in lists[number:]:
        first = 0 if last is None else bisect_right(names, last)
        last = None
        found.append(names[first : first + most])
        most -= len(found[-1])
        if first + len(found[-1]) < len(names):
            break
    else:
        return found, None
    # The last item may be one of a list before: there was no room for any of the next one.
    end = next(n for n in reversed(range(len(found))) if found[n])
    after = start.cursor_after(f"{end}/{found[end][-1]}")
    return found + [()] * (len(lists) - len(found)), after


def _place(item: str, lists: int) -> tuple[int, str]:
    """The list of the item that a page ended with, and the item."""
    number, _, name = item.partition("/")
    if not (number.isascii() and number.isdecimal() and len(number) < 3 and int(number) < lists):
        raise _unknown()
    return int(number), name


def _unknown() -> OperationError:
    return OperationError(404, "no cursor of this list; legal: `next` of a page of it")
