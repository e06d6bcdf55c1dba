# SPDX-License-Identifier: Apache-2.0
"""The event stream as data: one keyframe, then numbered differences of bounded size.

All clients get the same differences. So what they know is one state, `DifferenceLog` keeps it, and a keyframe
is that state: a client that begins later goes on with the same differences. What does not fit into a
difference stays different, and comes in a later one.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from controller.northbound.stream_state import LINK_COLUMNS, UNKNOWN, Row, StreamFabric, StreamState

MOST_BYTES = 20_000
"""The most bytes of one difference as an event. Chosen: 200 pages cost 4 MB/s."""
KEPT = 60
"""Differences that a client may have missed. Chosen: a minute, longer than a browser takes to come back."""
_NAMES_BYTES = 400
"""Chosen: room for the names of an event and of its fields, and for the framing of HTTP."""
_LINKS_PART = 0.5
"""The part of a difference that the figures of links get at least, if they need it. Chosen."""
_NOISE = 2
"""A load that differs by less, in per cent, waits for _PATIENCE differences. Chosen: no map shows it."""
_PATIENCE = 5
_NO_BYTE = 255
# Tables whose changes go first: what fails must be seen at once.
_URGENT = ("status", "alarms", "cables", "switches")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event: its number, its name, and its data as one line of JSON."""

    seq: int
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class _Change:
    """A row that differs: the fields to set; None: the row is gone."""

    table: str
    key: str
    fields: Row | None
    data: bytes


class DifferenceLog:
    """What every client knows, and the last differences that led there. Plain values: no socket, no clock."""

    def __init__(
        self, fabric: StreamFabric, first: StreamState, most_bytes: int = MOST_BYTES, kept: int = KEPT
    ) -> None:
        """The stream begins with `first`."""
        self.seq = 0
        self._fabric = fabric
        self._most_bytes = most_bytes
        self._time_ns = first.time_ns
        self._scenario = first.scenario
        self._tables = {name: {key: dict(row) for key, row in t.items()} for name, t in first.tables.items()}
        self._links = first.links.copy()
        self._links_age = np.zeros(first.links.shape[1], np.int32)
        self._rows_sent: dict[tuple[str, str], int] = {}
        self._log: deque[StreamEvent] = deque(maxlen=kept)

    def keyframe(self) -> StreamEvent:
        """All that clients know."""
        data = msgspec.json.encode(
            {
                "seq": self.seq,
                "time_ns": self._time_ns,
                "scenario": self._scenario,
                "fabric": self._fabric.columns,
                "links": {name: _shown(self._links[number]) for number, name in enumerate(LINK_COLUMNS)},
                "tables": self._tables,
            }
        )
        return StreamEvent(self.seq, "keyframe", data)

    def since(self, seq: int) -> tuple[StreamEvent, ...] | None:
        """The differences after number `seq`; None: they are not all known any more, or never were."""
        if not 0 <= self.seq - seq <= len(self._log):
            return None
        return tuple(event for event in self._log if event.seq > seq)

    def advance(self, now: StreamState) -> StreamEvent | None:
        """The next difference towards the state `now`; None: nothing differs."""
        room = self._most_bytes - _NAMES_BYTES
        links_differ = self._links_age_now(now)
        changes = self._chosen(now, round((1 - _LINKS_PART) * room) if links_differ.any() else room)
        room -= sum(len(change.data) for change in changes)
        links = self._links_part(now, links_differ, room) if links_differ.any() else {}
        if not changes and not links:
            return None
        self.seq += 1
        self._time_ns = now.time_ns
        body: dict[str, Any] = {"seq": self.seq, "time_ns": now.time_ns}
        for change in changes:
            self._apply(change)
            if change.fields is None:
                body.setdefault("gone", {}).setdefault(change.table, []).append(change.key)
            else:
                body.setdefault("set", {}).setdefault(change.table, {})[change.key] = change.fields
        if links:
            body["links"] = links
        event = StreamEvent(self.seq, "difference", msgspec.json.encode(body))
        self._log.append(event)
        return event

    # Tables.

    def _chosen(self, now: StreamState, room: int) -> list[_Change]:
        """The changes of rows that fit: urgent ones first, then those that were sent longest ago."""

        def order(change: _Change) -> tuple[int, int]:
            urgent = _URGENT.index(change.table) if change.table in _URGENT else len(_URGENT)
            # A row that goes or is new comes before figures that move all the time.
            structural = change.fields is None or change.key not in self._tables[change.table]
            return urgent, -1 if structural else self._rows_sent.get((change.table, change.key), 0)

        chosen: list[_Change] = []
        for change in sorted(self._changes(now), key=order):
            # The first one goes whatever its size: a row cannot be divided.
            if chosen and len(change.data) > room:
                break
            room -= len(change.data)
            chosen.append(change)
        return chosen

    def _changes(self, now: StreamState) -> Iterator[_Change]:
        for table, rows in now.tables.items():
            known = self._tables.setdefault(table, {})
            for key in known.keys() - rows.keys():
                yield _Change(table, key, None, msgspec.json.encode(key) + b",")
            for key, row in rows.items():
                before = known.get(key, {})
                fields = {f: value for f, value in row.items() if before.get(f, _MISSING) != value}
                if fields:
                    yield _Change(table, key, fields, msgspec.json.encode({key: fields}))

    def _apply(self, change: _Change) -> None:
        rows = self._tables[change.table]
        if change.fields is None:
            del rows[change.key]
            self._rows_sent.pop((change.table, change.key), None)
        else:
            rows.setdefault(change.key, {}).update(change.fields)
            self._rows_sent[change.table, change.key] = self.seq

    # Links.

    def _links_age_now(self, now: StreamState) -> NDArray[np.bool_]:
        """Which directions differ enough, or have differed for long enough, to be sent; counts how long."""
        differs = (now.links != self._links).any(0)
        self._links_age = np.where(differs, self._links_age + 1, 0)
        noise = (
            (np.abs(now.links[0] - self._links[0]) < _NOISE)
            & (now.links[0] > 0)
            & (self._links[0] > 0)
            & (now.links[1:] == self._links[1:]).all(0)
        )
        found: NDArray[np.bool_] = differs & (~noise | (self._links_age >= _PATIENCE))
        return found

    def _links_part(self, now: StreamState, differs: NDArray[np.bool_], room: int) -> dict[str, Any]:
        """The figures of the directions that changed most, as far as there is room."""
        at = np.flatnonzero(differs)
        shown: dict[str, Any] = {}
        dense = 4 * -(-len(differs) // 3) + len('"all_load":"",')
        loads_differ = now.links[0, at] != self._links[0, at]
        if dense <= room and dense < 9 * np.count_nonzero(loads_differ):
            shown["all_load"] = base64.b64encode(
                np.where(now.links[0] == UNKNOWN, _NO_BYTE, now.links[0]).astype(np.uint8).tobytes()
            ).decode()
            room -= dense
            self._links[0] = now.links[0]
            at = at[(now.links[1:, at] != self._links[1:, at]).any(0)]
        at = at[np.argsort(-self._weight(now, at), kind="stable")]
        while len(at):
            part = self._columns(now, np.sort(at))
            size = len(msgspec.json.encode(part))
            if size <= room:
                for number, name in enumerate(LINK_COLUMNS):
                    if name in part:
                        self._links[number, at] = now.links[number, at]
                self._links_age[at] = 0
                return shown | part
            at = at[: max(0, min(len(at) - 1, int(0.95 * len(at) * room / size)))]
        return shown

    def _columns(self, now: StreamState, at: NDArray[np.intp]) -> dict[str, Any]:
        part: dict[str, Any] = {"i": at.tolist()}
        for number, name in enumerate(LINK_COLUMNS):
            values = now.links[number, at]
            if (values != self._links[number, at]).any():
                part[name] = _shown(values)
        return part

    def _weight(self, now: StreamState, at: NDArray[np.intp]) -> NDArray[np.float64]:
        """How much each direction has changed, and for how long it has waited."""
        new, old = now.links[:, at].astype(np.float64), self._links[:, at].astype(np.float64)
        counts = np.abs(np.log2(new[1:] + 2) - np.log2(old[1:] + 2)).sum(0)
        weight: NDArray[np.float64] = np.abs(new[0] - old[0]) + 5 * counts + 3 * self._links_age[at]
        return weight


def _shown(values: NDArray[np.int32]) -> list[int | None]:
    return [None if value == UNKNOWN else value for value in values.tolist()]
