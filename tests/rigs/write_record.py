# SPDX-License-Identifier: Apache-2.0
"""What switches of this process themselves record: who became their primary, and whose writes they took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from bmv2.server.arbitration import Arbiter
from controller.southbound.election_ids import ATTEMPT_BITS


@dataclass
class SwitchRecord:
    """One switch, in its own order: the election ids whose writes it took and refused, and each new primary's
    id with the time in s.
    """

    taken: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    primaries: list[tuple[float, int]] = field(default_factory=list)

    def terms(self) -> list[int]:
        """The term of each write that it took; a term is an election id without the leader's attempts."""
        return [election_id >> ATTEMPT_BITS for election_id in self.taken]


class WriteRecord(dict[Arbiter, SwitchRecord]):
    """The records of all switches."""

    def __missing__(self, arbiter: Arbiter) -> SwitchRecord:
        return self.setdefault(arbiter, SwitchRecord())

    def primaries_above(self, term: int) -> list[float]:
        """When each switch had its first primary of a later term; shorter while some have none."""
        first = [[at for at, i in r.primaries if i >> ATTEMPT_BITS > term] for r in list(self.values())]
        return [times[0] for times in first if times]

    def newest_term(self) -> int:
        """The highest term of all primaries."""
        return max((i >> ATTEMPT_BITS for r in list(self.values()) for _, i in r.primaries), default=0)

    def check_one_writer(self) -> None:
        """No switch took a write of an earlier term after one of a later term had become its primary."""
        for record in self.values():
            assert record.terms() == sorted(record.terms()), record
            assert [i for _, i in record.primaries] == sorted(i for _, i in record.primaries), record


@contextmanager
def recorded_writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteRecord]:
    """Record at the place where a switch decides who is primary, and whether a write may pass."""
    record = WriteRecord()
    check, update = Arbiter.check_primary, Arbiter.update

    def checked(self: Arbiter, role: str, election_id: int) -> None:
        try:
            check(self, role, election_id)
        except Exception:
            record[self].refused.append(election_id)
            raise
        record[self].taken.append(election_id)

    def updated(self: Arbiter, stream: Any, message: Any) -> None:
        update(self, stream, message)
        if self.is_primary(stream):
            given = message.election_id
            record[self].primaries.append((time.monotonic(), given.high << 64 | given.low))

    monkeypatch.setattr(Arbiter, "check_primary", checked)
    monkeypatch.setattr(Arbiter, "update", updated)
    yield record
