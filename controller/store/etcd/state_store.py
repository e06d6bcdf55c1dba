# SPDX-License-Identifier: Apache-2.0
"""The store of several controllers: keys in etcd, written by the one that leads.

Every transaction compares the leader's key, so that a late commit of a deposed leader changes nothing. A
batch that is too large for one transaction of etcd is staged first: its parts are written beside the state,
one transaction makes them valid, and then they are carried out, by this leader or by the next one.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from aetcd import rpc

from controller.store.etcd.members import Etcd, EtcdError
from controller.store.interface import (
    LIMITS,
    SCHEMA,
    Batch,
    Event,
    Kind,
    LoadedState,
    LoggedEvent,
    StoredPlan,
    StoreError,
    StoreLimits,
    StoreRefusedError,
)

# Chosen, in seconds: how long a call waits for the members of etcd.
CALL_S = 3.0
# Chosen, in seconds: as long as a lease lasts, a leader tries a read again, for etcd may be electing a leader
# of its own; and the pause between two attempts.
PATIENCE_S = 5.0
RETRY_S = 0.1
# etcd refuses more than 1.5 MiB and 128 operations in a request (--max-request-bytes, --max-txn-ops). Chosen:
# below that, with room for keys and for the operations that every transaction has.
MOST_BYTES = 1 << 20
MOST_OPERATIONS = 100
# Chosen: what is shorter is not worth the time.
_COMPRESSED_FROM = 1 << 10
_PLAIN, _COMPRESSED = b"=", b"z"
# Chosen: keys that one transaction of `prune` removes.
_PRUNED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class _Write:
    """`value` replaces that of `key`; None removes the key."""

    key: bytes
    value: bytes | None

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value or b"")


class EtcdStore:
    """A `StateStore` in etcd.

    `revision`: that of the leader's key, by which this controller leads; None: it only reads.
    """

    def __init__(self, etcd: Etcd, revision: int | None) -> None:
        self._etcd = etcd
        self._revision = revision
        self._key = etcd.address.key
        self._last_event: int | None = None
        # Whether a batch may be staged that is not carried out yet: by the last leader, or before an error.
        self._unfinished = revision is not None

    def load(self) -> LoadedState:
        """The present state. A leader carries out first what its predecessor has staged."""
        self._carry_out_staged()
        parts = (self._key("schema"), self._key("record", ""), self._key("plan", ""))
        schema, records, plans = self._read(
            rpc.RangeRequest(key=parts[0]),
            _below(parts[1]),
            _below(parts[2], limit=1, sort_order=rpc.RangeRequest.DESCEND, keys_only=True),
        )
        version = int(schema[0].value) if schema else SCHEMA
        if version > SCHEMA:
            raise StoreRefusedError(
                f"{self._etcd.address}: its schema has version {version}, and this Polyrhythm knows versions "
                f"up to {SCHEMA} only: use a newer Polyrhythm"
            )
        found: dict[Kind, dict[str, bytes]] = {kind: {} for kind in Kind}
        for item in records:
            kind, _, key = item.key[len(parts[1]) :].decode().partition("/")
            found[Kind(kind)][key] = _unpacked(item.value)
        return LoadedState(found, _number(plans[0].key) if plans else 0)

    def commit(self, batch: Batch) -> None:
        """Write a batch, and wait until most members have it on their disks."""
        self._carry_out_staged()
        last = self._last_number()
        writes = [
            *(_Write(self._record(c.kind, c.key), _packed(c.value)) for c in batch.changes),
            *(write for plan in batch.plans for write in self._plan_writes(plan)),
            *(
                _Write(self._numbered("event", number), _packed(msgspec.msgpack.encode(event)))
                for number, event in enumerate(batch.events, last + 1)
            ),
            _Write(self._key("schema"), b"%d" % SCHEMA),
            # Also what tells a standby that something has changed.
            _Write(self._key("last"), b"%d" % (last + len(batch.events))),
        ]
        # A transaction names a key once. Of several changes of one key the last one counts.
        writes = list({write.key: write for write in writes}.values())
        groups = tuple(_groups(writes))
        if len(groups) == 1:
            self._write(groups[0])
        else:
            self._stage(writes)
            self._carry_out_staged()
        self._last_event = last + len(batch.events)

    def plan(self, version: int) -> StoredPlan | None:
        """A plan of the history; None if it has none of that version."""
        (found,) = self._read(rpc.RangeRequest(key=self._numbered("plan", version)))
        return _decoded(found[0].value, StoredPlan) if found else None

    def plans(self, most: int, before: int | None = None) -> tuple[StoredPlan, ...]:
        """The last `most` plans of the history, the newest first; with `before`, those of a lower version."""
        request = _below(self._key("plan", ""), limit=most, sort_order=rpc.RangeRequest.DESCEND)
        if before is not None:
            request.range_end = self._numbered("plan", before)
        (found,) = self._read(request)
        return tuple(_decoded(item.value, StoredPlan) for item in found)

    def events(self, most: int, before: int | None = None) -> tuple[LoggedEvent, ...]:
        """The last `most` events, the newest first; with `before`, those of a lower number."""
        request = _below(self._key("event", ""), limit=most, sort_order=rpc.RangeRequest.DESCEND)
        if before is not None:
            request.range_end = self._numbered("event", before)
        (found,) = self._read(request)
        return tuple(LoggedEvent(_number(item.key), _decoded(item.value, Event)) for item in found)

    def prune(self, now_ns: int, limits: StoreLimits = LIMITS) -> None:
        """Remove old plans and events."""
        oldest_ns = now_ns - round(limits.age_s * 1e9)
        (sizes,) = self._read(_below(self._key("plan_size", ""), sort_order=rpc.RangeRequest.DESCEND))
        gone: list[_Write] = []
        size = 0
        for place, item in enumerate(sizes):
            time_ns, length = msgspec.msgpack.decode(item.value, type=tuple[int, int])
            size += length
            # The newest plan stays whatever its age and size: it may be in force.
            if place and (place >= limits.plans or size > limits.plan_bytes or time_ns < oldest_ns):
                number = _number(item.key)
                gone += (_Write(self._numbered(part, number), None) for part in ("plan", "plan_size"))
        for start in range(0, len(gone), _PRUNED_AT_ONCE):
            self._write(gone[start : start + _PRUNED_AT_ONCE])
        self._prune_events(oldest_ns, limits.events)

    def close(self) -> None:
        """Do nothing: the connections belong to the election."""

    def last_change(self) -> int:
        """The revision of the last commit; 0: there is none."""
        (found,) = self._read(rpc.RangeRequest(key=self._key("last")))
        return int(found[0].mod_revision) if found else 0

    def _prune_events(self, oldest_ns: int, most: int) -> None:
        first, last = self._key("event", ""), self._last_number()
        # Events are in the order of their times: look for the first one that stays.
        low, high = max(1, last - most + 1), last + 1
        while low < high:
            middle = (low + high) // 2
            start = self._numbered("event", middle)
            (found,) = self._read(rpc.RangeRequest(key=start, range_end=_end(first), limit=1))
            if found and _decoded(found[0].value, Event).time_ns < oldest_ns:
                low = _number(found[0].key) + 1
            else:
                high = middle
        remove = rpc.DeleteRangeRequest(key=first, range_end=self._numbered("event", low))
        self._commit([rpc.RequestOp(request_delete_range=remove)])

    # Batches that do not fit into one transaction.

    def _stage(self, writes: Sequence[_Write]) -> None:
        groups = tuple(_groups(writes))
        self._unfinished = True
        for number, group in enumerate(groups):
            body = msgspec.msgpack.encode([(write.key, write.value) for write in group])
            self._write([_Write(self._numbered("staged", number), body)])
        self._write([_Write(self._key("staged_parts"), b"%d" % len(groups))])

    def _carry_out_staged(self) -> None:
        if not self._unfinished:
            return
        parts, staged = self._read(
            rpc.RangeRequest(key=self._key("staged_parts")), _below(self._key("staged", ""))
        )
        if parts and len(staged) == int(parts[0].value):
            for item in staged:
                pairs = msgspec.msgpack.decode(item.value, type=list[tuple[bytes, bytes | None]])
                self._write([_Write(key, value) for key, value in pairs])
        if staged or parts:
            self._remove_staged()
        self._unfinished = False

    def _remove_staged(self) -> None:
        below = self._key("staged", "")
        self._commit(
            [
                _operation(_Write(self._key("staged_parts"), None)),
                rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=below, range_end=_end(below))),
            ]
        )

    # Transactions.

    def _write(self, writes: Iterable[_Write]) -> None:
        self._commit([_operation(write) for write in writes])

    def _commit(self, operations: Sequence[Any]) -> None:
        if self._revision is None:
            raise StoreRefusedError(f"{self._etcd.address}: this controller is standby, so it writes nothing")
        try:
            reply = self._etcd.txn(self._guarded(operations), CALL_S)
        except EtcdError as error:
            raise StoreError(str(error)) from None
        if not reply.succeeded:
            raise StoreRefusedError(f"{self._etcd.address}: this controller does not lead any more")

    def _guarded(self, operations: Sequence[Any]) -> Any:
        ours = rpc.Compare(
            key=self._key("leader"),
            target=rpc.Compare.CREATE,
            result=rpc.Compare.EQUAL,
            create_revision=self._revision,
        )
        return rpc.TxnRequest(compare=[ours], success=operations)

    def _read(self, *requests: Any) -> tuple[Any, ...]:
        """The keys of several ranges at one revision."""
        operations = [rpc.RequestOp(request_range=request) for request in requests]
        deadline = time.monotonic() + (PATIENCE_S if self._revision is not None else 0.0)
        while True:
            try:
                reply = self._etcd.txn(rpc.TxnRequest(success=operations), CALL_S)
                break
            except EtcdError as error:
                if not error.unreachable or time.monotonic() >= deadline:
                    raise StoreError(str(error)) from None
            time.sleep(RETRY_S)
        return tuple(response.response_range.kvs for response in reply.responses)

    # Keys and values.

    def _record(self, kind: Kind, key: str) -> bytes:
        return self._key("record", kind, key)

    def _numbered(self, part: str, number: int) -> bytes:
        """A key that sorts by its number."""
        return self._key(part, f"{number:020d}")

    def _plan_writes(self, plan: StoredPlan) -> Iterator[_Write]:
        yield _Write(self._numbered("plan", plan.version), _packed(msgspec.msgpack.encode(plan)))
        size = msgspec.msgpack.encode((plan.time_ns, len(plan.body)))
        yield _Write(self._numbered("plan_size", plan.version), size)

    def _last_number(self) -> int:
        """The number of the last event, also of one that is pruned."""
        if self._last_event is None:
            (found,) = self._read(rpc.RangeRequest(key=self._key("last")))
            self._last_event = int(found[0].value) if found else 0
        return self._last_event


def _end(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with `prefix`, which ends with "/"."""
    return prefix[:-1] + b"0"


def _below(prefix: bytes, **options: Any) -> Any:
    """The range of all keys that begin with `prefix`, which ends with "/"."""
    return rpc.RangeRequest(key=prefix, range_end=_end(prefix), **options)


def _operation(write: _Write) -> Any:
    if write.value is None:
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=write.key))
    return rpc.RequestOp(request_put=rpc.PutRequest(key=write.key, value=write.value))


def _groups(writes: Iterable[_Write]) -> Iterator[list[_Write]]:
    """The writes in order, in groups that fit into one transaction each.

    Raises:
        StoreRefusedError: one write alone is too large.
    """
    group: list[_Write] = []
    size = 0
    for write in writes:
        if write.size > MOST_BYTES:
            raise StoreRefusedError(
                f"{write.key.decode()}: {write.size} bytes are too many for etcd; legal: up to {MOST_BYTES}"
            )
        if group and (len(group) == MOST_OPERATIONS or size + write.size > MOST_BYTES):
            yield group
            group, size = [], 0
        group.append(write)
        size += write.size
    if group:
        yield group


def _packed(value: bytes | None) -> bytes | None:
    if value is None or len(value) < _COMPRESSED_FROM:
        return value if value is None else _PLAIN + value
    return _COMPRESSED + zlib.compress(value, 1)


def _unpacked(value: bytes) -> bytes:
    return zlib.decompress(value[1:]) if value[:1] == _COMPRESSED else value[1:]


def _decoded(value: bytes, kind: Any) -> Any:
    return msgspec.msgpack.decode(_unpacked(value), type=kind)


def _number(key: bytes) -> int:
    return int(key.rpartition(b"/")[2])
