# SPDX-License-Identifier: Apache-2.0
"""The audit log: who asked the REST API to change something, when, from where, and what was answered.

Each request is a line of the log. With a file, it is also a JSON object on a line of that file, which is only
ever appended to. A thread of its own writes it, so a slow disk delays no request.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections import deque
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from controller.wire.limits import MAX_AUDIT_KEPT, MAX_AUDIT_WAITING
from controller.wire.log_lines import printable
from polyrhythm_files import ConfigError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A request that would change something. `caller` is empty if nobody was recognised."""

    time: str
    caller: str
    role: str
    peer: str
    method: str
    path: str
    status: int


class AuditLog:
    """Writes records, and keeps the last MAX_AUDIT_KEPT; `path` None: to the log only.

    One thread (that of the event loop) records and reads.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Open the file. Raises ConfigError."""
        self._path = path
        self._count = 0
        self._kept: deque[AuditRecord] = deque(maxlen=MAX_AUDIT_KEPT)
        self._waiting: queue.SimpleQueue[AuditRecord] = queue.SimpleQueue()
        if path is not None:
            try:
                self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise ConfigError(f"--audit: {path}: {error.strerror}") from None
            threading.Thread(target=self._write, name="audit", daemon=True).start()

    def record(self, caller: str, role: str, peer: str, method: str, path: str, status: int) -> None:
        """Record a request that has been answered."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        made = AuditRecord(now, caller, role, peer, method, path[:1000], status)
        self._count += 1
        self._kept.append(made)
        log.info(
            "%s (%s) at %s: %s %s was answered %d",
            caller or "nobody", role or "no role", peer, method, printable(made.path), status,
        )  # fmt: skip
        if self._path is None:
            return
        if self._waiting.qsize() < MAX_AUDIT_WAITING:
            self._waiting.put(made)
        else:
            log.error("%s: cannot be written fast enough, so a record is only here in the log", self._path)

    def newest(
        self, most: int, before: int | None = None
    ) -> tuple[tuple[tuple[int, AuditRecord], ...], int | None]:
        """The newest kept records with their numbers, and the number of the last of them if older ones are
        kept, else None.

        At most `most`, the newest first. Records are numbered from 1 in their order. With `before`, only
        records with a smaller number: a page goes on where the one before it ended, whatever has been
        recorded since.
        """
        oldest = self._count - len(self._kept) + 1
        end = self._count if before is None else min(before - 1, self._count)
        start = max(end - most + 1, oldest)
        found = tuple((number, self._kept[number - oldest]) for number in range(end, start - 1, -1))
        return found, start if found and start > oldest else None

    def _write(self) -> None:
        whole = True
        while True:
            line = json.dumps(asdict(self._waiting.get())) + "\n"
            left = line.encode() if whole else b"\n" + line.encode()
            try:
                # A disk that fills up takes a part; the next record then begins on a line of its own.
                while left:
                    left = left[os.write(self._descriptor, left) :]
                    whole = not left
                os.fsync(self._descriptor)
            except OSError as error:
                log.error(
                    "%s: %s; the record is only in the log: %s", self._path, error.strerror, line.strip()
                )
