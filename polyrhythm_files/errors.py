# SPDX-License-Identifier: Apache-2.0
"""What is raised for input that cannot be used, and the paths that name a value in a file."""

from __future__ import annotations

Loc = tuple[str | int, ...]
"""The path of a value from the top of its file: keys of tables and indices of lists."""

_MOST_SHOWN = 60
"""Characters of a wrong value that an error repeats (chosen: two thirds of a terminal's line)."""


class ConfigError(ValueError):
    """A file, setting or option that cannot be used.

    The text is one line for a person. For a value in a file it is
    `file:line: path: what is wrong; legal: what would be right`. Characters that would break the line or move
    the cursor are shown as escapes, for the text may quote what the file contains.
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in message))


class InvalidValueError(ValueError):
    """A value that has the right type but makes no sense, such as a host that the fabric does not have.

    `loc` is the path of the value, from the top of the file or from the value that is being checked. The
    caller that knows the file turns this error into a ConfigError (`Document.checks`).
    """

    def __init__(self, loc: Loc, message: str) -> None:
        super().__init__(f"{dotted(loc)}: {message}" if loc else message)
        self.loc = loc
        self.message = message

    def below(self, loc: Loc) -> InvalidValueError:
        """The same error, with `loc` in front of its path."""
        return InvalidValueError((*loc, *self.loc), self.message)


def dotted(loc: Loc) -> str:
    """A path as text: `jobs[2].phases[0].end_ms`."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            # A key from the file may hold anything; an error stays on one line.
            key = part if part.isprintable() else repr(part)
            text += f".{key}" if text else key
    return text


def shown(value: object) -> str:
    """A value from a file as an error repeats it, cut where it is long."""
    if isinstance(value, dict):
        return "a table" if value else "an empty table"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    # Python has no decimal form for whole numbers of thousands of digits.
    text = hex(value) if isinstance(value, int) and value.bit_length() > 256 else repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
