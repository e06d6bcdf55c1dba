# SPDX-License-Identifier: Apache-2.0
"""What the control plane writes into a table: match values, entries, and the errors of a write."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Exact:
    """The field equals `value`."""

    value: int


@dataclass(frozen=True, slots=True)
class Lpm:
    """The first `prefix_len` bits of the field equal those of `value`; the longest prefix wins."""

    value: int
    prefix_len: int


@dataclass(frozen=True, slots=True)
class Ternary:
    """`field & mask == value & mask`."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Range:
    """`low <= field <= high`."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Optional:
    """The field equals `value`, or is anything where `value` is None."""

    value: int | None


MatchValue: TypeAlias = Exact | Lpm | Ternary | Range | Optional


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One entry of a table: `match` in the order of the table's key, `params` in that of the action's.

    `priority` is P4Runtime's (the larger wins), 0 where every match is exact or LPM. `action` is the
    full name in the program's JSON. All integers are unsigned. In a table with an action profile
    `member` or `group` takes the place of the action. `timeout_ns` of 0 means that it never ages.
    """

    match: tuple[MatchValue, ...]
    priority: int
    action: str
    params: tuple[int, ...] = ()
    member: int | None = None
    group: int | None = None
    timeout_ns: int = 0


@dataclass(frozen=True, slots=True)
class MeterConfig:
    """A meter's committed and peak rate per second, and their bursts, in bytes or packets."""

    cir: int
    cburst: int
    pir: int
    pburst: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member's place in a group: chosen `weight` times as often, not at all while its port is down."""

    member: int
    weight: int = 1
    watch_port: int | None = None


class EntryFault(Enum):
    """Why an entry was refused."""

    INVALID = "invalid"
    EXISTS = "already exists"
    MISSING = "not found"
    FULL = "table full"
    CONSTANT = "constant"
    IN_USE = "in use"


class TableEntryError(ValueError):
    """A write that the table refuses. `fault` is the kind of error; the message names the table and the
    value.
    """

    def __init__(self, fault: EntryFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault
