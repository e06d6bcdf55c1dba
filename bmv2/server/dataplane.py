# SPDX-License-Identifier: Apache-2.0
"""The data plane as the server writes to it: the switch, and the objects that watch it on its own thread.

Digest lists and idle time-outs follow P4Runtime 1.5, sections 9.9 and 9.1.7. All of it runs on the data-plane
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from finsy.proto import p4d, p4r

from bmv2.entries import TableEntry
from bmv2.program import P4Program
from bmv2.server.resources import DigestInfo
from bmv2.switch import EmbeddedSwitch

Effect: TypeAlias = Callable[["DataPlane"], None]
# Sends a message to the primary; the first argument is its channel's kind.
Notify: TypeAlias = Callable[[str, p4r.StreamMessageResponse], None]
# The replica itself, then those that stand in for it while its port is down, as (port, instance).
Alternatives: TypeAlias = tuple[tuple[int, int], ...]

# No entry is looked at more often.
_MIN_INTERVAL_NS = 1_000_000


class DataPlane:
    """A switch with the objects that watch it. Sets the `digest` hook of the switch."""

    def __init__(self, switch: EmbeddedSwitch, notify: Notify) -> None:
        self.switch = switch
        self.groups = StandbyGroups(switch)
        self.digests = DigestLists(switch, notify)
        self.ageing = Ageing(switch, notify)

    def load(self, program: P4Program, preinitialised: Mapping[str, int]) -> None:
        """Run another program: nothing is left of what was written.

        `preinitialised` has the tables whose initial entries clients may change, with their sizes.
        """
        self.switch.load(program)
        for table, size in preinitialised.items():
            self.switch.table(table).open(size)
        self.groups.clear()
        self.digests.clear()
        self.ageing.clear()


class StandbyGroups:
    """Multicast groups in the data plane. For each replica it uses the first place whose port is up.

    Runs on the data-plane thread. A replica without a port that is up goes to its own port and is lost.
    """

    def __init__(self, switch: EmbeddedSwitch) -> None:
        self._switch = switch
        self._with_backups: dict[int, tuple[Alternatives, ...]] = {}

    def clear(self) -> None:
        """Forget all: another program runs."""
        self._with_backups.clear()

    def set(self, group: int, replicas: tuple[Alternatives, ...]) -> None:
        """Give a group its replicas; none deletes it."""
        if any(len(choices) > 1 for choices in replicas):
            self._with_backups[group] = replicas
        else:
            self._with_backups.pop(group, None)
        self._choose(group, replicas)

    def port_changed(self) -> None:
        """Choose again, for a port has gone up or down."""
        for group, replicas in self._with_backups.items():
            self._choose(group, replicas)

    def _choose(self, group: int, replicas: tuple[Alternatives, ...]) -> None:
        chosen = dict.fromkeys(self._first_up(choices) for choices in replicas)
        self._switch.set_multicast_group(group, tuple(chosen))

    def _first_up(self, choices: Alternatives) -> tuple[int, int]:
        for port, instance in choices:
            if port in self._switch.ports and self._switch.port_up(port):
                return port, instance
        return choices[0]


@dataclass(slots=True)
class _Learning:
    digest: DigestInfo
    config: p4r.DigestEntry.Config
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
        learning.buffer[values] = None
        if config.max_timeout_ns == 0 or len(learning.buffer) == config.max_list_size:
            self._send(learning)
        elif len(learning.buffer) == 1:
            self._switch.clock.call_at(now + config.max_timeout_ns, self._expire, learning, learning.lists)

    def _expire(self, learning: _Learning, lists: int) -> None:
        """Send what has waited long enough, unless its list has filled up before."""
        enabled = self._learning.get(learning.digest.source) is learning
        if enabled and learning.lists == lists and learning.buffer:
            self._send(learning)

    def _send(self, learning: _Learning) -> None:
        digest, now = learning.digest, self._switch.clock.now
        learning.lists += 1
        message = p4r.DigestList(digest_id=digest.id, list_id=learning.lists, timestamp=now)
        for values in learning.buffer:
            message.data.append(_data(digest, values))
            if learning.config.ack_timeout_ns:
                learning.cache[values] = (learning.lists, now)
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
    """

    def __init__(self, switch: EmbeddedSwitch, notify: Notify) -> None:
        self._switch = switch
        self._notify = notify
        self._aged: dict[tuple[str, object], _Aged] = {}

    def clear(self) -> None:
        """Forget all: another program runs."""
        self._aged.clear()

    def watch(self, table: str, entry: TableEntry, message: p4r.TableEntry) -> None:
        """Follow an entry just written, or no longer where it has no time-out; `message` is sent of it."""
        self.forget(table, entry)
        if entry.timeout_ns:
            aged = _Aged(table, entry, message, self._switch.clock.now)
            self._aged[table, (entry.match, entry.priority)] = aged
            self._look_later(aged)

    def forget(self, table: str, entry: TableEntry) -> None:
        """Follow an entry no longer."""
        self._aged.pop((table, (entry.match, entry.priority)), None)

    def _look_later(self, aged: _Aged) -> None:
        now = self._switch.clock.now
        due = max(aged.since + aged.entry.timeout_ns, now + _MIN_INTERVAL_NS)
        self._switch.clock.call_at(due, self._look, aged)

    def _look(self, aged: _Aged) -> None:
        entry = aged.entry
        if self._aged.get((aged.table, (entry.match, entry.priority))) is not aged:
            return
        now = self._switch.clock.now
        aged.since = max(aged.since, self._switch.entry_hit_time(aged.table, entry))
        if now - aged.since >= entry.timeout_ns:
            aged.since = now
            notification = p4r.IdleTimeoutNotification(table_entry=[aged.message], timestamp=now)
            self._notify("idle_timeout", p4r.StreamMessageResponse(idle_timeout_notification=notification))
        self._look_later(aged)
