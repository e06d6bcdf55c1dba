# SPDX-License-Identifier: Apache-2.0
"""The store in etcd: what a deposed leader, a standby and a broken connection can do to it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest
from aetcd import rpc
from etcd_rig import Cluster, needs_etcd

from controller.store.etcd.members import Etcd
from controller.store.etcd.state_store import EtcdStore
from controller.store.interface import SCHEMA, Batch, Change, Event, Kind, StoreError, StoreRefusedError

pytestmark = needs_etcd
_PREFIXES = itertools.count()


@pytest.fixture
def etcd(cluster: Cluster) -> Iterator[Etcd]:
    made = Etcd(cluster.address(f"store{next(_PREFIXES)}"))
    yield made
    made.close()


def put(etcd: Etcd, key: str, value: bytes | None) -> int:
    name = etcd.address.key(key)
    if value is None:
        operation = rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=name))
    else:
        operation = rpc.RequestOp(request_put=rpc.PutRequest(key=name, value=value))
    return int(etcd.txn(rpc.TxnRequest(success=[operation]), 5.0).header.revision)


def test_a_late_commit_of_a_deposed_leader_changes_nothing(etcd: Etcd) -> None:
    deposed = EtcdStore(etcd, put(etcd, "leader", b"one"))
    deposed.commit(Batch([Change(Kind.JOB, "a", b"1")]))
    put(etcd, "leader", None)
    leader = EtcdStore(etcd, put(etcd, "leader", b"two"))
    with pytest.raises(StoreRefusedError, match="does not lead any more"):
        deposed.commit(Batch([Change(Kind.JOB, "a", b"2")]))
    large = Batch([Change(Kind.JOB, str(i), os.urandom(20_000)) for i in range(150)])
    with pytest.raises(StoreRefusedError, match="does not lead any more"):
        deposed.commit(large)
    assert leader.load().records[Kind.JOB] == {"a": b"1"}
    leader.commit(Batch([Change(Kind.JOB, "a", b"3")]))
    assert EtcdStore(etcd, None).load().records[Kind.JOB] == {"a": b"3"}


def test_a_standby_reads_and_sees_each_change_but_writes_nothing(etcd: Etcd) -> None:
    leader, standby = EtcdStore(etcd, put(etcd, "leader", b"one")), EtcdStore(etcd, None)
    assert standby.last_change() == 0
    seen = set()
    for change in (b"1", b"1", None):
        leader.commit(Batch([Change(Kind.JOB, "a", change)]))
        seen.add(standby.last_change())
    assert len(seen) == 3
    with pytest.raises(StoreRefusedError, match="standby"):
        standby.commit(Batch([Change(Kind.JOB, "a", b"1")]))


class Broken(Etcd):
    """Loses the connection after some transactions."""

    def __init__(self, etcd: Etcd, transactions: int) -> None:
        super().__init__(etcd.address)
        self.left = transactions

    def txn(self, request: Any, timeout_s: float) -> Any:
        if request.compare:
            if not self.left:
                raise StoreError("the connection is lost")
            self.left -= 1
        return super().txn(request, timeout_s)


def test_a_batch_of_several_transactions_is_there_whole_or_not_at_all(etcd: Etcd) -> None:
    """Whatever the transaction after which the leader died, its successor sees all of the batch or nothing."""
    before = {str(i): b"old" for i in range(150)}
    after = {str(i): os.urandom(20_000) for i in range(150)}
    outcomes = set()
    for survived in range(9):
        revision = put(etcd, "leader", None)
        revision = put(etcd, "leader", b"")
        EtcdStore(etcd, revision).load()
        EtcdStore(etcd, revision).commit(Batch([Change(Kind.JOB, *item) for item in before.items()]))
        broken = Broken(etcd, survived)
        try:
            EtcdStore(broken, revision).commit(Batch([Change(Kind.JOB, *item) for item in after.items()]))
        except StoreError:
            pass
        finally:
            broken.close()
        put(etcd, "leader", None)
        found = EtcdStore(etcd, put(etcd, "leader", b"")).load().records[Kind.JOB]
        assert found in (before, after)
        outcomes.add(found == after)
    assert outcomes == {True, False}


def test_a_small_commit_after_a_failed_large_one_is_not_undone(etcd: Etcd) -> None:
    revision = put(etcd, "leader", b"")
    broken = Broken(etcd, 5)
    store = EtcdStore(broken, revision)
    with pytest.raises(StoreError):
        store.commit(Batch([Change(Kind.JOB, str(i), os.urandom(20_000)) for i in range(150)]))
    broken.left = 1000
    store.commit(Batch([Change(Kind.JOB, "7", b"new")]))
    assert EtcdStore(etcd, revision).load().records[Kind.JOB]["7"] == b"new"
    broken.close()


def test_a_batch_that_is_committed_again_writes_its_events_once(etcd: Etcd) -> None:
    class Deaf(Etcd):
        def txn(self, request: Any, timeout_s: float) -> Any:
            reply = super().txn(request, timeout_s)
            if request.compare:
                raise StoreError("the answer is lost")
            return reply

    deaf = Deaf(etcd.address)
    revision = put(etcd, "leader", b"")
    store = EtcdStore(deaf, revision)
    batch = Batch(events=[Event(1, "job arrived", "a")])
    for _ in range(3):
        with pytest.raises(StoreError):
            store.commit(batch)
    deaf.close()
    assert [e.number for e in EtcdStore(etcd, revision).events(10)] == [1]


def test_a_newer_schema_is_refused(etcd: Etcd) -> None:
    put(etcd, "schema", b"%d" % (SCHEMA + 1))
    with pytest.raises(StoreRefusedError, match="use a newer Polyrhythm"):
        EtcdStore(etcd, None).load()


def test_a_value_that_etcd_cannot_hold_is_refused_in_words(etcd: Etcd) -> None:
    store = EtcdStore(etcd, put(etcd, "leader", b""))
    with pytest.raises(StoreRefusedError, match="too many for etcd"):
        store.commit(Batch([Change(Kind.JOB, "huge", os.urandom(2 << 20))]))
    store.commit(Batch([Change(Kind.JOB, "well", b"1")]))
    assert store.load().records[Kind.JOB] == {"well": b"1"}


def test_etcd_that_does_not_answer_is_an_error_to_try_again(cluster: Cluster) -> None:
    nowhere = Etcd(type(cluster.address())(("127.0.0.1:1", "127.0.0.1:2")))
    with pytest.raises(StoreError, match="does not answer") as caught:
        EtcdStore(nowhere, None).load()
    assert not isinstance(caught.value, StoreRefusedError)
    assert "\n" not in str(caught.value)
    nowhere.close()
