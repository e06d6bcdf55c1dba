# SPDX-License-Identifier: Apache-2.0
"""What a controller may rely on, of every form of the store alike."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from aetcd import rpc
from etcd_rig import Cluster, needs_etcd

from controller.store.etcd.members import Etcd
from controller.store.etcd.state_store import EtcdStore
from controller.store.interface import Batch, Change, Event, Kind, StateStore, StoredPlan, StoreLimits
from controller.store.sqlite import SqliteStore

S = 10**9
_PREFIXES = itertools.count()
Open = Callable[[], StateStore]


def leading(etcd: Etcd) -> int:
    """Write the leader's key; returns its revision."""
    key = etcd.address.key("leader")
    put = [rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=b"{}"))]
    clear = [rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))]
    etcd.txn(rpc.TxnRequest(success=clear), 5.0)
    return int(etcd.txn(rpc.TxnRequest(success=put), 5.0).header.revision)


@pytest.fixture(params=["sqlite", pytest.param("etcd", marks=needs_etcd)])
def reopened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the store; a second call closes it first and opens it again, as after a restart."""
    with ExitStack() as stack:
        if request.param == "etcd":
            running: Cluster = request.getfixturevalue("cluster")
            etcd = Etcd(running.address(f"interface{next(_PREFIXES)}"))
            stack.callback(etcd.close)
        opened: list[StateStore] = []

        def again() -> StateStore:
            while opened:
                opened.pop().close()
            new = SqliteStore(tmp_path / "s") if request.param == "sqlite" else EtcdStore(etcd, leading(etcd))
            opened.append(new)
            return new

        yield again
        for store in opened:
            store.close()


def test_what_is_committed_is_loaded(reopened: Open) -> None:
    store = reopened()
    assert store.load().last_version == 0
    store.commit(Batch([Change(Kind.JOB, "a/b", b"1"), Change(Kind.WORKERS, "a", b"2")]))
    store.commit(Batch([Change(Kind.JOB, "a/b", b"3"), Change(Kind.WORKERS, "a", None)]))
    store.commit(
        Batch(
            [Change(Kind.JOB, "never", None), Change(Kind.JOB, "e", b"")],
            [StoredPlan(7, 5, "p", b"y" * 5000)],
            [Event(1, "x", "y", "ü")],
        )
    )
    store = reopened()
    loaded = store.load()
    assert {kind: dict(found) for kind, found in loaded.records.items() if found} == {
        Kind.JOB: {"a/b": b"3", "e": b""}
    }
    assert loaded.last_version == 7
    assert store.plan(7) == StoredPlan(7, 5, "p", b"y" * 5000)
    assert store.plan(8) is None
    assert store.plans(3) == (StoredPlan(7, 5, "p", b"y" * 5000),)
    assert [(e.number, e.event) for e in store.events(9)] == [(1, Event(1, "x", "y", "ü"))]


def test_plans_and_events_are_pruned_by_number_size_and_age(reopened: Open) -> None:
    store = reopened()

    def versions() -> list[int]:
        return [p.version for p in store.plans(100)]

    for i in range(1, 11):
        store.commit(Batch((), [StoredPlan(i, i * S, "p", b"x" * 100)], [Event(i * S, "e", str(i))]))
    store.prune(10 * S, StoreLimits(plans=8, plan_bytes=10_000, events=7, age_s=100))
    assert versions() == [10, 9, 8, 7, 6, 5, 4, 3]
    assert [p.version for p in store.plans(2, before=6)] == [5, 4]
    assert store.plans(2, before=3) == ()
    assert [e.event.subject for e in store.events(100)] == ["10", "9", "8", "7", "6", "5", "4"]
    store.prune(10 * S, StoreLimits(plans=8, plan_bytes=500, events=7, age_s=100))
    assert versions() == [10, 9, 8, 7, 6]
    store.prune(10 * S, StoreLimits(plans=8, plan_bytes=500, events=7, age_s=2.5))
    assert versions() == [10, 9, 8]
    assert [e.number for e in store.events(100)] == [10, 9, 8]
    store.prune(1000 * S, StoreLimits(plans=0, plan_bytes=0, events=0, age_s=0))
    assert versions() == [10], "the newest plan may be in force"
    assert store.events(100) == ()
    store = reopened()
    store.commit(Batch(events=[Event(1, "e", "next")]))
    assert [e.number for e in store.events(100)] == [11], "numbers are never used again"


def test_events_are_read_page_by_page(reopened: Open) -> None:
    store = reopened()
    store.commit(Batch(events=[Event(i, "e", str(i)) for i in range(1, 6)]))
    first = store.events(2)
    assert [e.event.subject for e in first] == ["5", "4"]
    assert [e.event.subject for e in store.events(9, first[-1].number)] == ["3", "2", "1"]


def test_a_large_batch_is_written(reopened: Open) -> None:
    store = reopened()
    bodies = {f"j{i}": os.urandom(20_000) for i in range(150)}
    store.commit(Batch([Change(Kind.JOB, name, body) for name, body in bodies.items()]))
    assert reopened().load().records[Kind.JOB] == bodies
