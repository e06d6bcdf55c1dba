# SPDX-License-Identifier: Apache-2.0
"""The store of a controller's durable state, as a protocol: SQLite and etcd implement it alike.

A store knows bytes only. What they mean is in `controller/store/records.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

SCHEMA = 2
"""The version of the stored state: of its kinds, keys and values. A store of a newer version is refused."""


class StoreError(Exception):
    """The store cannot be read or written now; the message says which one and why. Trying again may help."""


class StoreRefusedError(StoreError):
    """Trying again does not help: no store, a store of a newer version, or of another controller by now."""


class Kind(StrEnum):
    """The kinds of records that are replaced as a whole. The comments say what their keys are."""

    JOB = "job"  # the job's name; what its workers announced
    WORKERS = "workers"  # the job's name; its workers that have joined
    PROFILE = "profile"  # the job's name; the job with what was measured of it
    PORT_MAP = "port_map"  # "SOURCE>DESTINATION", names of hosts; learned source ports
    NIC = "nic"  # the host's name; what its agent has reported about its NIC
    QUEUE_PAIR = "queue_pair"  # the flow's name; its open queue pair, where the NIC chooses port or DSCP
    HISTORY = "history"  # begin of a bucket, Unix time in ns; what was measured in it
    FABRIC = "fabric"  # "condition": what is down; "drained"; "plan": that in force; "policy": the chosen one


@dataclass(frozen=True, slots=True)
class Change:
    """`value` replaces the record of a kind and a key; None removes it."""

    kind: Kind
    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan that was in force. `time_ns` is Unix time. `body` is the plan as records.py encodes it."""

    version: int
    time_ns: int
    policy: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of the log. `time_ns` is Unix time, `what` the kind of event ("job arrived"), `subject` the
    name that it is about, `details` free text.
    """

    time_ns: int
    what: str
    subject: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event with its number in the log, from 1 on without reuse."""

    number: int
    event: Event


@dataclass(frozen=True, slots=True)
class Batch:
    """What one commit writes, all of it or nothing. A plan replaces a stored plan of the same version.

    The plan in force is patched under its version, for instance after a failed link. Its time stays.
    """

    changes: Sequence[Change] = ()
    plans: Sequence[StoredPlan] = ()
    events: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class LoadedState:
    """Everything of a store that a controller needs to go on. `last_version`: of the newest plan; 0: none."""

    records: Mapping[Kind, Mapping[str, bytes]] = field(default_factory=dict)
    last_version: int = 0


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """What `prune` leaves: the newest plans and events, within a number, an age and a size.

    All values are chosen. A plan of a hundred jobs takes about 200 KB. The plan in force always stays.
    """

    plans: int = 1_000
    plan_bytes: int = 256 << 20
    events: int = 100_000
    age_s: float = 90 * 86_400.0


LIMITS = StoreLimits()


class StateStore(Protocol):
    """A store that one controller writes. Every method may block on a disk or a network, so it never runs on
    the event loop. One thread commits; other threads may read meanwhile.

    Every method raises StoreError if the store does not work now, and StoreRefusedError if it never will.
    """

    def load(self) -> LoadedState:
        """The present state."""

    def commit(self, batch: Batch) -> None:
        """Write a batch. When this returns, the batch outlasts a power cut; when it raises, nothing of it is
        written, or, if the connection broke, perhaps all of it: the same batch may be committed again, though
        its events may then be in the log twice.
        """

    def plan(self, version: int) -> StoredPlan | None:
        """A plan of the history; None if it has none of that version."""

    def plans(self, most: int, before: int | None = None) -> tuple[StoredPlan, ...]:
        """The last `most` plans of the history, the newest first; with `before`, those of a lower version."""

    def events(self, most: int, before: int | None = None) -> tuple[LoggedEvent, ...]:
        """The last `most` events, the newest first; with `before`, those of a lower number."""

    def prune(self, now_ns: int, limits: StoreLimits = LIMITS) -> None:
        """Remove old plans and events. `now_ns` is Unix time."""

    def close(self) -> None:
        """Release the store. It raises nothing."""
