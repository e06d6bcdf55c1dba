# SPDX-License-Identifier: Apache-2.0
"""What the parsers of the three formats share: bounds, positions and their error."""

from __future__ import annotations

from polyrhythm_files.errors import Loc

Position = tuple[Loc, int]
"""The path of a value and its line, counting from 1. The line of a table's value is that of its key."""

MAX_DEPTH = 64
"""Tables and lists inside one another (chosen: the deepest of our files has 6 levels)."""
MAX_DIGITS = 77
"""Of a whole number: as many as 256 bits have (chosen: no setting needs more than 31)."""


class TextError(ValueError):
    """A text that is not of its format, or is beyond a bound; `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
