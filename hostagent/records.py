# SPDX-License-Identifier: Apache-2.0
"""Records of a job's communication, made by NCCL or from the NIC's counters; read as a whole or while they
grow.

There are three formats: the lines of NCCL's inspector (a JSON object for each collective, with its end and
duration), the trace of NCCL's example profiler (Chrome's trace format), and readings of `port_xmit_data`
(lines `time_ns,value`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from hostagent.counts import OCTETS

_EVENTS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AllToAll", "Send", "Recv")
_LONGEST_LINE = 1 << 20
_MOST_BEGUN = 65_536


@dataclass(frozen=True, slots=True)
class CommunicationInterval:
    """`size` bytes that were sent evenly from `start_ns` to `end_ns`."""

    start_ns: int
    end_ns: int
    size: int


class _RecordFormat(Protocol):
    """One format of records. `line` raises ValueError for a line that is not of this format."""

    def line(self, text: str) -> CommunicationInterval | None: ...


class InspectorRecord:
    """The output of NCCL's inspector: each line is complete in itself."""

    def line(self, text: str) -> CommunicationInterval | None:
        """The interval of a collective or of point-to-point traffic; None for a line about anything else."""
        try:
            record = json.loads(text)
            kind = next((k for k in ("coll", "p2p") if record.get(f"{k}_perf") is not None), None)
            if kind is None:
                return None
            performance = record[f"{kind}_perf"]
            end = int(record["metadata"]["dump_timestamp_us"]) * 1000
            length = int(float(performance[f"{kind}_exec_time_us"]) * 1000)
            return CommunicationInterval(end - length, end, int(performance[f"{kind}_msg_size_bytes"]))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a line of NCCL's inspector: {error!r}") from None


class ProfilerTrace:
    """The trace of the example profiler, one event a line: collectives and point-to-point events, each with a
    begin ("b") and an end ("e"); `ts` is in us.
    """

    def __init__(self) -> None:
        self._begun: dict[tuple[Any, ...], dict[str, Any]] = {}

    def line(self, text: str) -> CommunicationInterval | None:
        """The interval of the event that this line ends; None if it ends none."""
        text = text.strip().lstrip("[").rstrip(",]").strip()
        return self.event(json.loads(text)) if text else None

    def event(self, event: object) -> CommunicationInterval | None:
        """The same for a parsed event."""
        if (
            not isinstance(event, dict)
            or event.get("name") not in _EVENTS
            or str(event.get("cat", "")).endswith("_API")
        ):
            return None
        try:
            key = tuple(event.get(k) for k in ("name", "cat", "id", "pid", "tid"))
            if event["ph"] == "b":
                if len(self._begun) >= _MOST_BEGUN:
                    del self._begun[next(iter(self._begun))]
                self._begun[key] = event
            elif event["ph"] == "e" and key in self._begun:
                start = self._begun.pop(key)
                size = int(start.get("args", {}).get("Count", 1))
                return CommunicationInterval(
                    int(float(start["ts"]) * 1000), int(float(event["ts"]) * 1000), max(1, size)
                )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"an event of the trace is not complete: {error!r}") from None
        return None


class CounterReadings:
    """Readings of port_xmit_data, which counts words of four octets.

    A value below the last one means that the counter started again from 0.
    """

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None

    def line(self, text: str) -> CommunicationInterval | None:
        """The interval since the last reading."""
        text = text.partition("#")[0].strip()
        if not text:
            return None
        try:
            time_ns, value = map(int, text.split(","))
        except ValueError:
            raise ValueError("not time_ns,value") from None
        return self.reading(time_ns, value)

    def reading(self, time_ns: int, value: int) -> CommunicationInterval | None:
        """The same for numbers. None for the first reading. Raises ValueError unless time advances."""
        before, self._before = self._before, (time_ns, value)
        if before is None:
            return None
        if time_ns <= before[0]:
            raise ValueError("time does not advance")
        grown = value - before[1] if value >= before[1] else value
        return CommunicationInterval(before[0], time_ns, OCTETS * grown)


class RecordReader:
    """Reads a record that grows, in any of the formats. It keeps an incomplete line until the rest comes.

    A line that cannot be read is skipped, and its error goes to `complain`.
    """

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._kind: _RecordFormat | None = None
        self._rest = b""

    def feed(self, fresh: bytes) -> list[CommunicationInterval]:
        """The intervals in the whole lines that the bytes `fresh` complete."""
        *lines, self._rest = (self._rest + fresh).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            self._complain("a line is longer than 1 MiB")
            self._rest = b""
        found = []
        for line in lines:
            text = line.decode(errors="replace")
            if self._kind is None:
                self._kind = _format_of(text)
            try:
                interval = self._kind.line(text) if text.strip() and self._kind is not None else None
            except (ValueError, RecursionError) as error:
                self._complain(f"{error}: {text:.80}")
                continue
            if interval is not None:
                found.append(interval)
        return found


def read_record(text: str) -> list[CommunicationInterval]:
    """The intervals of a complete record. Raises ValueError, with the line number, for another format."""
    if text.lstrip()[:1] == "[":
        return _whole_trace(text)
    kind = _format_of(text.lstrip().partition("\n")[0]) or CounterReadings()
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            interval = kind.line(line) if line.strip() else None
        except ValueError as error:
            separator = ": " if str(error).startswith("time") else " is "
            raise ValueError(f"line {number}{separator}{error}") from None
        if interval is not None:
            found.append(interval)
    return found


def _format_of(line: str) -> _RecordFormat | None:
    """The format of a record, from its first line; None if the line is empty."""
    head = line.lstrip()[:1]
    if not head:
        return None
    # A trace that is read from its middle begins with an event, which has a key ph.
    if head == "[" or (head == "{" and '"ph"' in line):
        return ProfilerTrace()
    return InspectorRecord() if head == "{" else CounterReadings()


def _whole_trace(text: str) -> list[CommunicationInterval]:
    text = text.rstrip().rstrip(",]").rstrip() or "["
    try:
        # The plugin may leave out the last bracket, or leave a comma before it.
        events = json.loads(f"{text}]")
    except ValueError as error:
        raise ValueError(f"not a trace of NCCL's profiler: {error}") from None
    trace = ProfilerTrace()
    return [interval for interval in map(trace.event, events) if interval is not None]
