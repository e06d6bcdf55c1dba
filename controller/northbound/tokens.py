# SPDX-License-Identifier: Apache-2.0
"""The file of bearer tokens: who may call the REST API, in which role, and until when.

The file holds the SHA-256 of each token, never the token. It is read again whenever it has changed, so tokens
are added, replaced and taken away while the controller runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from controller.wire.limits import MAX_TOKENS
from polyrhythm_files import ConfigError, InvalidValueError, Section, convert, read_document

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often the file is looked at again, in seconds of host time. Chosen: a token that was taken away works
for a second more."""
_HASH = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


class Role(IntEnum):
    """What a caller may do. Each role may also do what the ones below it may."""

    READ = 1
    """Read jobs, plans, counters and events."""
    JOB = 2
    """Declare and end jobs."""
    OPERATE = 3
    """Apply and roll back plans, and everything else that changes the controller."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request, by the name in the file of tokens."""

    name: str
    role: Role


class TokenEntry(Section, frozen=True, kw_only=True):
    """One token."""

    name: Annotated[str, Meta(description="who uses the token; the audit log shows it")]
    role: Annotated[
        Literal["read", "job", "operate"],
        Meta(description="read: read only; job: also declare and end jobs; operate: everything"),
    ]
    sha256: Annotated[str, Meta(description="SHA-256 of the token, 64 hexadecimal digits in lower case")]
    expires: Annotated[
        str, Meta(description="end of its validity, as 2027-01-31T00:00:00Z; empty: it does not end")
    ] = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidValueError(
                ("name",), f"{self.name!r:.100} is wrong; legal: up to 64 letters, digits and . _ @ -"
            )
        if not _HASH.fullmatch(self.sha256):
            # The value is not shown: somebody may have written the token itself.
            raise InvalidValueError(("sha256",), "no SHA-256; legal: 64 hexadecimal digits in lower case")
        self.end()

    def end(self) -> datetime | None:
        """When the token expires. Raises InvalidValueError for a text that is no time."""
        if not self.expires:
            return None
        try:
            end = datetime.fromisoformat(self.expires)
            known = end.tzinfo is not None
        except ValueError:
            known = False
        if not known:
            raise InvalidValueError(
                ("expires",),
                f"{self.expires!r:.100} is wrong; legal: a time with its zone, as 2027-01-31T00:00:00Z",
            )
        return end


class TokensFile(Section, frozen=True, kw_only=True):
    """Who may call the REST API."""

    tokens: tuple[TokenEntry, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) > MAX_TOKENS:
            raise InvalidValueError(
                ("tokens",), f"{len(self.tokens):,} tokens; legal: at most {MAX_TOKENS:,}"
            )
        seen: set[str] = set()
        for index, entry in enumerate(self.tokens):
            if entry.sha256 in seen:
                raise InvalidValueError(("tokens", index, "sha256"), "is there twice; legal: each once")
            seen.add(entry.sha256)


def load_tokens(path: Path) -> Mapping[str, TokenEntry]:
    """Read and check a file of tokens; returns its entries by their SHA-256. Raises ConfigError."""
    return {entry.sha256: entry for entry in convert(read_document(path), TokensFile).tokens}


def token_hash(token: str) -> str:
    """The SHA-256 of a token as the file has it."""
    return hashlib.sha256(token.encode()).hexdigest()


class Tokens:
    """The tokens of a file, as they are now. A file that has become wrong changes nothing, and is logged."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ConfigError."""
        self._path = path
        self._state = _state(path)
        self._entries = load_tokens(path)
        self._looked_s = time.monotonic()
        self._looking = False

    def caller(self, token: str, now: datetime | None = None) -> Caller | str:
        """Who shows the token, or why nobody may: a text for the caller. `now`: default the present time."""
        entry = self._entries.get(token_hash(token))
        if entry is None:
            return "the token is unknown"
        end = entry.end()
        if end is not None and (now or datetime.now(UTC)) >= end:
            return f"the token of {entry.name} expired at {entry.expires}"
        return Caller(entry.name, Role[entry.role.upper()])

    async def refresh(self) -> None:
        """Read the file again if it has changed, in a thread: a slow disk delays no other request."""
        if self._looking or time.monotonic() - self._looked_s < LOOK_S:
            return
        self._looking = True
        try:
            await asyncio.to_thread(self._look)
        finally:
            self._looking = False
            self._looked_s = time.monotonic()

    def _look(self) -> None:
        state = _state(self._path)
        if state == self._state:
            return
        self._state = state
        try:
            self._entries = load_tokens(self._path)
        except ConfigError as error:
            log.error("the file of tokens cannot be used, so the tokens from before stay valid: %s", error)
        else:
            log.info("%s was read again: %d tokens", self._path, len(self._entries))


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
