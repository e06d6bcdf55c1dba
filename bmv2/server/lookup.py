# SPDX-License-Identifier: Apache-2.0
"""Find what a request names: objects of P4Info by their ids, cells of arrays by their index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from bmv2.server.errors import NOT_FOUND, OUT_OF_RANGE, StatusError, invalid


class Named(Protocol):
    """An object of P4Info."""

    @property
    def id(self) -> int:
        """P4Info's id."""

    @property
    def name(self) -> str:
        """P4Info's full name."""


N = TypeVar("N", bound=Named)


class Array(Named, Protocol):
    """An object of P4Info that has cells."""

    @property
    def size(self) -> int:
        """How many cells."""


def find(known: Mapping[int, N], wanted: int, kind: str) -> N:
    """Find an object by id; StatusError (NOT_FOUND) with the known ones if there is none."""
    found = known.get(wanted)
    if found is None:
        legal = ", ".join(f"{item.id:#x} ({item.name})" for item in known.values()) or "none"
        raise StatusError(NOT_FOUND, f"{kind} id {wanted:#x} is unknown; known: {legal}")
    return found


def find_all(known: Mapping[int, N], wanted: int, kind: str) -> Sequence[N]:
    """Find what a read asks for: 0 is every object, another id as in `find`."""
    return [find(known, wanted, kind)] if wanted else list(known.values())


def cell(array: Array, message: Any, kind: str) -> int | None:
    """Read the index of a message; None where it has none, which means every cell.

    Raises StatusError: INVALID_ARGUMENT for a negative index, OUT_OF_RANGE for one that is too large.
    """
    if not message.HasField("index"):
        return None
    index: int = message.index.index
    if index < 0:
        raise invalid(f"{kind} {array.name}: index {index} is below 0")
    if index >= array.size:
        raise StatusError(OUT_OF_RANGE, f"{kind} {array.name}: index {index} is not in 0..{array.size - 1}")
    return index


def cells(array: Array, message: Any, kind: str) -> Sequence[int]:
    """The indices that a read asks for."""
    index = cell(array, message, kind)
    return range(array.size) if index is None else [index]
