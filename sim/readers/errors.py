# SPDX-License-Identifier: Apache-2.0
"""Read tables strictly. An error names the file, the row and the column."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

MAX_FILE_BYTES = 512 << 20
# As other tools write numbers: Python alone reads "1_0" as 10.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_TIME_FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%Y-%m-%d %H:%M")


class TraceError(ValueError):
    """One line for a person: file, row, column, what is wrong and what is legal."""


class Row:
    """A row of a table, by column name. Every reading may raise TraceError."""

    def __init__(self, path: Path, number: int, values: Mapping[str, str | None]) -> None:
        self._where = f"{path}: row {number}"
        self._values = values

    def text(self, column: str) -> str:
        """A cell that is not empty."""
        value = (self._values.get(column) or "").strip()
        if not value:
            raise self.error(column, "is empty; legal: a value in every row")
        return value

    def number(self, column: str, least: float = 0.0, most: float = 1e15) -> float:
        """A finite number in [least, most]."""
        text = self.text(column)
        if not _NUMBER.fullmatch(text):
            raise self.error(column, f"{text!r:.60} is no number; legal: {least:g} to {most:g}")
        value = float(text)
        if not least <= value <= most:
            raise self.error(column, f"{text:.60} is out of range; legal: {least:g} to {most:g}")
        return value

    def whole(self, column: str, least: int = 0, most: int = 10**15) -> int:
        """A whole number in [least, most]."""
        value = self.number(column, least, most)
        if value != int(value):
            raise self.error(
                column, f"{value:g} is no whole number; legal: whole numbers from {least:g} to {most:g}"
            )
        return int(value)

    def moment(self, column: str) -> float:
        """A time of day, or a number of seconds, as seconds."""
        text = self.text(column)
        for form in _TIME_FORMATS:
            try:
                return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
            except ValueError:
                continue
        return self.number(column)

    def error(self, column: str, what: str) -> TraceError:
        """An error at a column of this row."""
        return TraceError(f"{self.at(column)}: {what}")

    def at(self, column: str) -> str:
        """Where a column of this row is: "file: row 2, column num_gpu"."""
        return f"{self._where}, column {column}"


def read_text(path: Path) -> str:
    """The text of a file of a sane size."""
    try:
        # A pipe or a device has no size before it is read.
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise TraceError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB; cut the trace")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text (byte {error.start})") from error


def header(path: Path) -> list[str]:
    """The first row of a CSV file; empty for an empty file.

    Raises:
        TraceError: the file cannot be read, or is not CSV.
    """
    try:
        return next(csv.reader(read_text(path).splitlines()), [])
    except csv.Error as error:
        raise TraceError(f"{path}: row 1: not CSV: {error}") from error


def rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a CSV file that must have these columns; row 1 is the header."""
    reader = csv.DictReader(read_text(path).splitlines(), strict=True)
    try:
        heads = reader.fieldnames or ()
        twice = next((c for c in heads if list(heads).count(c) > 1), None)
        if twice is not None:
            raise TraceError(f"{path}: row 1, column {twice}: is there twice")
        missing = [c for c in columns if c not in heads]
        if missing:
            raise TraceError(
                f"{path}: row 1: no column {', '.join(missing)}; needed: {', '.join(columns)}; "
                f"there are: {', '.join(heads) or 'none'}"
            )
        for number, values in enumerate(reader, start=2):
            beyond = values.get(None)
            if beyond:
                raise TraceError(
                    f"{path}: row {number}, column {len(heads) + 1}: {beyond[0]!r} is beyond the header's "
                    f"{len(heads)} columns"
                )
            yield Row(path, number, values)
    except csv.Error as error:
        raise TraceError(f"{path}: row {reader.reader.line_num}: not CSV: {error}") from error
