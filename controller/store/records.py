# SPDX-License-Identifier: Apache-2.0
"""The records of a store as JSON: what each kind means, and how it is read back.

A field that a later version adds has a default value, so records of earlier versions stay readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from controller.store.interface import StoreRefusedError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Workers:
    """The ranks of a job's workers that have joined. `arrived`: all of them had joined at one time.
    `requested`: a REST request has declared the job for all of them.
    """

    ranks: tuple[int, ...]
    arrived: bool
    requested: bool = False


@dataclass(frozen=True, slots=True)
class PlanInForce:
    """Which plan of the history is in force. `boot` names the clock that its times count by: it differs
    after the controller's host has started again, and on another host.
    """

    version: int
    boot: str


def encode(value: object) -> bytes:
    """A record as JSON. `value` is a dataclass, a mapping or a sequence of plain values."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: object) -> object:
    """What msgspec does not know by itself: the flows of a plan, which are a mapping of another kind."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"a {type(value).__name__} has no JSON form")


def decode(data: bytes, kind: type[T], where: str) -> T:
    """The value of a record.

    Raises:
        StoreRefusedError: the record is not what its kind asks for; the message names it with `where`.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise StoreRefusedError(f"{where} is not readable: {error}; restore a backup") from None
