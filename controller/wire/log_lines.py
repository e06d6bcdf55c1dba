# SPDX-License-Identifier: Apache-2.0
"""The log of a process: one line for each record, with its time and its fields, as text or as JSON.

The fields of a record are the switch, host, job, flow and plan that its template names: `"switch %s: ..."`
gives the field `switch`. A record without a plan in its template gets that of `PLAN`. What others have named
(jobs, flows, hosts) may hold any character. A line shows those that are not printed as escapes, so no name
can make a line of its own. A template that comes too often is left out, and a line says how often.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import threading
import traceback
import unicodedata
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TextIO

from controller.wire.immediate_writes import ImmediateWriter

LogFormat = Literal["text", "json"]

PLAN: ContextVar[int | None] = ContextVar("plan", default=None)
"""The version of the plan that the present task makes or writes; None: no plan."""

# Chosen: a burst holds one line of each of 64 switches; afterwards a person can still read along.
BURST = 100
LINES_PER_S = 5.0
# Chosen, in seconds: how often a line says what was left out.
SUMMARY_S = 10.0
# Chosen: templates that are counted apart. A library may make its own text of each record; all others then
# share one count.
_MOST_TEMPLATES = 1_000
# Chosen: characters of a message or of a traceback. The rest is cut off.
_LONGEST = 4_000
# Chosen: lines that wait for the stream's reader; and, in seconds, how long the end of the process waits.
MOST_WAITING = 2_000
FLUSH_S = 2.0
# Chosen, in seconds: how long a call waits for a stream that has taken all lines so far.
PATIENCE_S = 0.1

_CONVERSION = re.compile(r"%(?:%|[-#0 +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[diouxXeEfFgGcrsa])")
_SUBJECT = re.compile(r"\b(switch|host|job|flow|plan) $")
# Control, format, surrogate and private characters, and what Unicode calls line and paragraph separators.
_NOT_PRINTED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    """The text with every character that is not printed as an escape, `\\x0a` or `\\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if unicodedata.category(c) in _NOT_PRINTED else c for c in text)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def fields(record: logging.LogRecord) -> Mapping[str, str | int]:
    """The switch, host, job, flow and plan that a record's template names, each with its first value."""
    found: dict[str, str | int] = {}
    args = record.args
    if isinstance(args, tuple) and isinstance(record.msg, str):
        position = 0
        for match in _CONVERSION.finditer(record.msg):
            if match[0] == "%%":
                continue
            subject = _SUBJECT.search(record.msg, 0, match.start())
            if subject is not None and position < len(args):
                value = args[position]
                found.setdefault(subject[1], value if isinstance(value, int) else str(value))
            position += 1 + match[0].count("*")
    plan = PLAN.get()
    if plan is not None:
        found.setdefault("plan", plan)
    return found


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.000Z WARNING controller.live.core: switch leaf1: ...`: lines for people.

    A plan that the message does not name follows it in brackets. Lines of a traceback are indented, and
    begin with `|`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without the end of line."""
        said = printable(record.getMessage()[:_LONGEST])
        plan = fields(record).get("plan")
        if plan is not None and f"plan {plan}" not in said:
            said += f" [plan {plan}]"
        lines = [f"{_time(record.created)} {record.levelname} {record.name}: {said}"]
        lines += [f"  | {printable(line)}" for line in _traceback(record).splitlines()]
        return "\n".join(lines)


class JsonLines(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, and the fields that apply."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without the end of line."""
        line: dict[str, str | int] = {
            "time": _time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage()[:_LONGEST],
            **fields(record),
        }
        if record.exc_info:
            line["traceback"] = _traceback(record)
        return json.dumps(line)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _traceback(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    return "".join(traceback.format_exception(record.exc_info[1]))[-_LONGEST:]


@dataclass(slots=True)
class _Rate:
    """What one template may still write, as a token bucket, and how often it was left out."""

    tokens: float
    since_s: float
    left_out: int = 0


class RateLimit(logging.Filter):
    """Lets each template through BURST times, and then LINES_PER_S times a second, by the records' times."""

    def __init__(self) -> None:
        super().__init__()
        self._rates: dict[tuple[str, int, str], _Rate] = {}
        self._summary_s = 0.0
        self.left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record may be written."""
        now_s = record.created
        key = (record.name, record.levelno, str(record.msg)[:_LONGEST])
        if key not in self._rates and len(self._rates) >= _MOST_TEMPLATES:
            key = ("", 0, "other messages")
        rate = self._rates.setdefault(key, _Rate(BURST, now_s))
        rate.tokens = min(BURST, rate.tokens + max(0.0, now_s - rate.since_s) * LINES_PER_S)
        rate.since_s = now_s
        if rate.tokens >= 1:
            rate.tokens -= 1
            return True
        rate.left_out += 1
        self.left_out += 1
        return False

    def summary(self, now_s: float | None = None) -> list[logging.LogRecord]:
        """A record for each template that was left out since the last summary: every SUMMARY_S, or at once
        without `now_s`.
        """
        if now_s is not None:
            # The host's clock may have been set back.
            if 0 <= now_s - self._summary_s < SUMMARY_S:
                return []
            self._summary_s = now_s
        records = []
        for (name, level, template), rate in self._rates.items():
            if rate.left_out:
                words = (rate.left_out, template)
                text = "%d more lines like this one were left out: %.200s"
                records.append(logging.LogRecord(name or __name__, level, "", 0, text, words, None))
                rate.left_out = 0
        return records


class LogHandler(logging.Handler):
    """Writes the lines of a process to a stream, at a bounded rate.

    A call returns when its line is written. What the stream does not take at once is written by a thread: if
    the stream's reader stops to read, one call waits for it, for PATIENCE_S, and then none does. Lines that
    wait beyond MOST_WAITING are left out.
    """

    def __init__(self, stream: TextIO, log_format: LogFormat) -> None:
        super().__init__()
        self.setFormatter(JsonLines() if log_format == "json" else TextLines())
        self.limit = RateLimit()
        self._stream = stream
        self._immediate = ImmediateWriter(stream)
        self._waiting: list[str] = []
        self._writing = False
        self._stalled = False
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record soon, unless its template comes too often. `handle` holds the handler's lock."""
        allowed = self.limit.filter(record)
        records = [*self.limit.summary(record.created), *([record] if allowed else ())]
        self._put(records)

    def flush(self) -> None:
        """Wait until all lines are written, for FLUSH_S at most."""
        with self._changed:
            self._changed.wait_for(self._written, FLUSH_S)

    def close(self) -> None:
        """Say what was left out since the last summary, and write what waits."""
        if not self._closed:
            self._put(self.limit.summary())
            self.flush()
            with self._changed:
                self._closed = True
                self._immediate.close()
                self._changed.notify_all()
        super().close()

    def _put(self, records: Iterable[logging.LogRecord]) -> None:
        lines = []
        for record in records:
            try:
                lines.append(self.format(record) + "\n")
            except Exception:
                self.handleError(record)
        with self._changed:
            if self._written():
                lines = self._rest(lines)
            if not lines:
                return
            room = MOST_WAITING - len(self._waiting)
            self._waiting += lines[:room]
            self.limit.left_out += len(lines[room:])
            self._changed.notify_all()
            if not self._stalled:
                self._stalled = not self._changed.wait_for(self._written, PATIENCE_S)

    def _rest(self, lines: list[str]) -> list[str]:
        """What the stream does not take at once: most often nothing. A thread that is called for each line
        would cost the caller some milliseconds on a busy machine.
        """
        for i, line in enumerate(lines):
            encoding = self._stream.encoding or "utf-8"
            data = line.encode(encoding, "backslashreplace")
            written = self._immediate.write(data)
            if written < len(data):
                return [data[written:].decode(encoding, "backslashreplace"), *lines[i + 1 :]]
        return []

    def _written(self) -> bool:
        return not (self._waiting or self._writing)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._writing = self._stalled = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                lines, self._waiting, self._writing = self._waiting, [], True
            # A stream that is closed takes no more lines, and there is no other place to say so.
            with contextlib.suppress(OSError, ValueError):
                self._stream.write("".join(lines))
                self._stream.flush()


def configure_log(log_format: LogFormat = "text", level: int | str = logging.INFO) -> None:
    """Send the log of this process to standard error; call it once, at the start."""
    logging.basicConfig(level=level, handlers=[LogHandler(sys.stderr, log_format)])


def lines_left_out() -> int:
    """How many lines the log of this process has left out."""
    handlers = logging.getLogger().handlers
    return sum(handler.limit.left_out for handler in handlers if isinstance(handler, LogHandler))
