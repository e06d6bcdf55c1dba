# SPDX-License-Identifier: Apache-2.0
"""The stream as data: keyframe plus differences is the state, in bounded events, whatever changes."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
from fake_source import TOPOLOGY, view
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model.view import Alarm
from controller.northbound.differences import MOST_BYTES, DifferenceLog
from controller.northbound.stream_state import StreamFabric, StreamState
from topo.generate import leaf_spine

FABRIC = StreamFabric(TOPOLOGY)


class Reader:
    """A client as the page is one."""

    def __init__(self, keyframe: bytes) -> None:
        found = json.loads(keyframe)
        self.seq, self.tables, self.links = found["seq"], found["tables"], found["links"]

    def read(self, data: bytes) -> None:
        found = json.loads(data)
        assert found["seq"] == self.seq + 1
        self.seq = found["seq"]
        for table, keys in found.get("gone", {}).items():
            for key in keys:
                del self.tables[table][key]
        for table, rows in found.get("set", {}).items():
            for key, fields in rows.items():
                self.tables.setdefault(table, {}).setdefault(key, {}).update(fields)
        links = found.get("links", {})
        if "all_load" in links:
            self.links["load"] = [None if b == 255 else b for b in base64.b64decode(links["all_load"])]
        for column in ("load", "marks", "queue_packets"):
            for place, value in zip(links.get("i", ()), links.get(column, ()), strict=False):
                self.links[column][place] = value


def shown(state: StreamState) -> tuple[object, object]:
    columns = {
        name: [None if v < 0 else v for v in row.tolist()]
        for name, row in zip(("load", "marks", "queue_packets"), state.links, strict=True)
    }
    return json.loads(json.dumps(state.tables)), columns


def settled(log: DifferenceLog, reader: Reader, state: StreamState, most: int = 200) -> int:
    """Read until nothing differs; returns the differences that it took."""
    idle = taken = 0
    while idle < 6:
        event = log.advance(state)
        if event is None:
            idle += 1
            continue
        idle = 0
        taken += 1
        assert len(event.data) <= MOST_BYTES
        reader.read(event.data)
        assert taken < most, "it does not converge"
    return taken


def test_a_fabric_at_rest_has_no_differences() -> None:
    state = FABRIC.state(view(0))
    log = DifferenceLog(FABRIC, state)
    assert log.advance(state) is None
    reader = Reader(log.keyframe().data)
    assert (reader.tables, reader.links) == shown(state)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 5))
def test_keyframe_and_differences_are_the_state(steps: list[int], later: int) -> None:
    log = DifferenceLog(FABRIC, FABRIC.state(view(0)))
    readers = [Reader(log.keyframe().data)]
    for number, step in enumerate(steps):
        value = view(step)
        if number % 2:
            alarm = Alarm("silent_switch", "leaf1", 1, "it is down")
            value = replace(value, alarms=(alarm,), jobs=value.jobs[1:], plan=None)
        event = log.advance(FABRIC.state(value))
        if event is not None:
            for reader in readers:
                reader.read(event.data)
        if number == later:
            readers.append(Reader(log.keyframe().data))
    last = FABRIC.state(view(steps[-1]))
    for reader in readers[1:]:
        assert (reader.tables, reader.links) == (readers[0].tables, readers[0].links)
    settled(log, readers[0], last)
    assert (readers[0].tables, readers[0].links) == shown(last)


def random_links(rng: np.random.Generator, n: int) -> np.ndarray:
    load = rng.integers(-1, 101, n)
    return np.array([load, rng.integers(-1, 5_000, n), rng.integers(-1, 100, n)], np.int32)


@pytest.mark.parametrize("leaves", [2, 64])
def test_a_fabric_where_everything_changes_stays_within_its_bytes_and_is_caught_up_with(leaves: int) -> None:
    fabric = StreamFabric(leaf_spine(leaves, 32, 32, host_bps=1, fabric_bps=1))
    rng = np.random.default_rng(1)
    rows = {f"job{n}": {"iterations": 0, "last_ms": 1.5, "hosts": list(range(8))} for n in range(500)}

    def state(turn: int) -> StreamState:
        jobs = {name: {**row, "iterations": turn, "last_ms": 1.5 + turn} for name, row in rows.items()}
        return StreamState(turn, "test", {"jobs": jobs, "alarms": {}}, random_links(rng, fabric.directions))

    log = DifferenceLog(fabric, state(0))
    keyframe = log.keyframe().data
    assert len(gzip.compress(keyframe, 5)) <= 300_000
    reader = Reader(keyframe)
    now = state(0)
    for turn in range(1, 20):
        now = state(turn)
        event = log.advance(now)
        assert event is not None
        assert len(event.data) <= MOST_BYTES
        reader.read(event.data)
    alarm = {"silent_switch/leaf1": {"kind": "silent_switch"}}
    event = log.advance(replace(now, tables={**now.tables, "alarms": alarm}))
    assert event is not None
    reader.read(event.data)
    assert reader.tables["alarms"] == alarm, "what is urgent does not wait"
    now = replace(now, tables={**now.tables, "alarms": alarm})
    settled(log, reader, now)
    assert (reader.tables, reader.links) == shown(now)


def test_who_missed_some_gets_them_and_who_missed_too_many_does_not() -> None:
    log = DifferenceLog(FABRIC, FABRIC.state(view(0)), kept=3)
    for step in range(1, 6):
        assert log.advance(FABRIC.state(view(step))) is not None
    assert [e.seq for e in log.since(3) or ()] == [4, 5]
    assert log.since(5) == ()
    assert log.since(1) is None
    assert log.since(6) is None, "a number that was never given"
    assert log.since(-1) is None


def test_a_row_larger_than_a_difference_is_sent_all_the_same() -> None:
    first = StreamState(0, "x", {"jobs": {}}, FABRIC.state(view(0)).links)
    log = DifferenceLog(FABRIC, first, most_bytes=2_000)
    row = {"hosts": list(range(2_000))}
    event = log.advance(replace(first, tables={"jobs": {"wide": row}}))
    assert event is not None
    assert json.loads(event.data)["set"]["jobs"]["wide"] == row
