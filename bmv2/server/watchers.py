# SPDX-License-Identifier: Apache-2.0
"""What watches the data plane for clients: digest lists and idle time-outs (P4Runtime 1.5, 9.8 and 9.1.8).

All of it runs on the data-plane thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TypeAlias

from finsy.proto import p4d, p4r

from bmv2.entries import TableEntry
from bmv2.server.resources import DigestInfo
from bmv2.switch import EmbeddedSwitch

# Sends a message to the primary; the first argument is its channel's kind.
Notify: TypeAlias = Callable[[str, p4r.StreamMessageResponse], None]

# Digest messages in a list (the specification leaves it to the server where the client sets no limit), and
# those that were sent and not acknowledged. Chosen: some megabytes at most, whatever time-outs a client sets.
_MAX_LIST = 1024
_MAX_UNACKNOWLEDGED = 65_536
# No entry is looked at more often.
_MIN_INTERVAL_NS = 1_000_000
# Chosen: so many forgotten entries are not worth a clearance.
_FEW = 64


@dataclass(slots=True)
class _Learning:
    """A digest that is enabled. `since` is when the oldest message of the buffer came."""

    digest: DigestInfo
    config: p4r.DigestEntry.Config
    since: int = 0
    expected: bool = False
    buffer: dict[tuple[int, ...], None] = field(default_factory=dict)
    # What was sent and not yet acknowledged, with its list and the time it was sent at.
    cache: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)
    lists: int = 0


class DigestLists:
    """Collects digest messages into lists, and holds back messages that a client has received but not
    acknowledged.
    """

    def __init__(self, switch: EmbeddedSwitch, notify: Notify) -> None:
        self._switch = switch
        self._notify = notify
        self._learning: dict[str, _Learning] = {}
        switch.digest = self._learn

    def clear(self) -> None:
        """Disable all digests: another program runs."""
        self._learning.clear()

    def configure(self, digest: DigestInfo, config: p4r.DigestEntry.Config | None) -> None:
        """Enable a digest, or change its parameters; None disables it, and what it had gathered is lost."""
        if config is None:
            self._learning.pop(digest.source, None)
        elif digest.source in self._learning:
            self._learning[digest.source].config = config
        else:
            self._learning[digest.source] = _Learning(digest, config)

    def acknowledge(self, digest_id: int, list_id: int) -> None:
        """Forget a list: its messages may be sent again."""
        for learning in self._learning.values():
            if learning.digest.id == digest_id:
                cache = learning.cache
                learning.cache = {key: sent for key, sent in cache.items() if sent[0] != list_id}

    def _learn(self, name: str, values: tuple[int, ...]) -> None:
        learning = self._learning.get(name)
        if learning is None:
            return
        config, now = learning.config, self._switch.clock.now
        if values in learning.cache and now - learning.cache[values][1] >= config.ack_timeout_ns:
            del learning.cache[values]
        if values in learning.cache or values in learning.buffer:
            return
        if not learning.buffer:
            learning.since = now
        learning.buffer[values] = None
        full = min(config.max_list_size or _MAX_LIST, _MAX_LIST)
        if config.max_timeout_ns == 0 or len(learning.buffer) >= full:
            self._send(learning)
        else:
            self._expect(learning)

    def _expect(self, learning: _Learning) -> None:
        """Look when the buffer's oldest message has waited long enough: one event waits for each digest."""
        if not learning.expected:
            learning.expected = True
            due = learning.since + learning.config.max_timeout_ns
            self._switch.clock.call_at(max(due, self._switch.clock.now), self._expire, learning)

    def _expire(self, learning: _Learning) -> None:
        """Send what has waited long enough; a list that has begun since then waits on."""
        learning.expected = False
        if self._learning.get(learning.digest.source) is not learning or not learning.buffer:
            return
        if self._switch.clock.now - learning.since >= learning.config.max_timeout_ns:
            self._send(learning)
        else:
            self._expect(learning)

    def _send(self, learning: _Learning) -> None:
        digest, now = learning.digest, self._switch.clock.now
        learning.lists += 1
        message = p4r.DigestList(digest_id=digest.id, list_id=learning.lists, timestamp=now)
        for values in learning.buffer:
            message.data.append(_data(digest, values))
            if learning.config.ack_timeout_ns:
                learning.cache[values] = (learning.lists, now)
        while len(learning.cache) > _MAX_UNACKNOWLEDGED:
            # The oldest may be sent again, which a client must expect anyway.
            del learning.cache[next(iter(learning.cache))]
        learning.buffer.clear()
        self._notify("digest", p4r.StreamMessageResponse(digest=message))


def _data(digest: DigestInfo, values: tuple[int, ...]) -> p4d.P4Data:
    members = [kind.encode(value) for kind, value in zip(digest.types, values, strict=True)]
    if not digest.container:
        return members[0]
    data = p4d.P4Data()
    (data.struct if digest.container == "struct" else data.tuple).members.extend(members)
    return data


@dataclass(slots=True)
class _Aged:
    table: str
    entry: TableEntry
    message: p4r.TableEntry
    since: int


class Ageing:
    """Notifies the primary of entries that no packet has hit for their time-out, and again after each further
    time-out.

    The entries wait in a heap by the time at which each is looked at next. Those that are followed no longer
    stay in it until their time comes or they are more than the others.
    """

    def __init__(self, switch: EmbeddedSwitch, notify: Notify) -> None:
        self._switch = switch
        self._notify = notify
        self._aged: dict[tuple[str, object], _Aged] = {}
        self._waiting: list[tuple[int, int, _Aged]] = []
        self._order = count()
        # When the clock calls next.
        self._next: int | None = None

    def clear(self) -> None:
        """Forget all: another program runs."""
        self._aged.clear()
        self._waiting.clear()

    def watch(self, table: str, entry: TableEntry, message: p4r.TableEntry) -> None:
        """Follow an entry just written, or no longer where it has no time-out; `message` is sent of it."""
        self.forget(table, entry)
        if entry.timeout_ns:
            aged = _Aged(table, entry, message, self._switch.clock.now)
            self._aged[table, (entry.match, entry.priority)] = aged
            self._look_later(aged)
            if len(self._waiting) > 2 * len(self._aged) + _FEW:
                self._waiting = [item for item in self._waiting if self._followed(item[2])]
                heapify(self._waiting)

    def forget(self, table: str, entry: TableEntry) -> None:
        """Follow an entry no longer."""
        self._aged.pop((table, (entry.match, entry.priority)), None)

    def _followed(self, aged: _Aged) -> bool:
        return self._aged.get((aged.table, (aged.entry.match, aged.entry.priority))) is aged

    def _look_later(self, aged: _Aged) -> None:
        due = max(aged.since + aged.entry.timeout_ns, self._switch.clock.now + _MIN_INTERVAL_NS)
        heappush(self._waiting, (due, next(self._order), aged))
        self._call()

    def _call(self) -> None:
        """Have the clock call when the first entry is due."""
        if self._waiting and (self._next is None or self._waiting[0][0] < self._next):
            self._next = self._waiting[0][0]
            self._switch.clock.call_at(self._next, self._look, self._next)

    def _look(self, called: int) -> None:
        """Look at all entries whose time has come."""
        if called != self._next:
            # An entry that came later was due earlier: that call has taken this one's place.
            return
        now, self._next = self._switch.clock.now, None
        due: list[_Aged] = []
        while self._waiting and self._waiting[0][0] <= now:
            due.append(heappop(self._waiting)[2])
        for aged in filter(self._followed, due):
            self._look_at(aged, now)
            self._look_later(aged)
        self._call()

    def _look_at(self, aged: _Aged, now: int) -> None:
        entry = aged.entry
        aged.since = max(aged.since, self._switch.entry_hit_time(aged.table, entry))
        if now - aged.since >= entry.timeout_ns:
            aged.since = now
            notification = p4r.IdleTimeoutNotification(table_entry=[aged.message], timestamp=now)
            self._notify("idle_timeout", p4r.StreamMessageResponse(idle_timeout_notification=notification))
