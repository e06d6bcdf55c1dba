# SPDX-License-Identifier: Apache-2.0
"""The election against a real etcd: one leads, and never two."""

from __future__ import annotations

import itertools
import logging
import queue
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from aetcd import rpc
from control_rig import PATIENCE_S, eventually
from etcd_rig import Cluster, needs_etcd
from silent_proxy import SilentProxy

from controller.process import election
from controller.process.election import Election, Leader, Term
from controller.store.etcd.address import EtcdAddress
from controller.store.etcd.members import Etcd

pytestmark = needs_etcd
_PREFIXES = itertools.count()


class Candidate:
    """A controller's part in an election; what happens to all candidates is one sequence."""

    def __init__(self, name: str, address: EtcdAddress, events: queue.SimpleQueue[tuple[str, str]]) -> None:
        self.name = name
        self.terms: list[Term] = []
        self.lost: list[str] = []
        self._events = events
        me = Leader(name, f"{name}:9560", f"http://{name}:8080")
        self.election = Election(address, me, on_won=self._won, on_lost=self._lost)
        self.election.start()

    def _won(self, term: Term) -> None:
        self.terms.append(term)
        self._events.put(("leads", self.name))

    def _lost(self, why: str) -> None:
        self.lost.append(why)
        self._events.put(("lost", self.name))


class Events(queue.SimpleQueue[tuple[str, str]]):
    def next(self) -> tuple[str, str]:
        return self.get(timeout=PATIENCE_S)


Start = Callable[..., Candidate]


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def address(cluster: Cluster) -> EtcdAddress:
    return cluster.address(f"election{next(_PREFIXES)}")


@pytest.fixture
def start(events: Events, address: EtcdAddress) -> Iterator[Start]:
    with ExitStack() as stack:

        def start_one(name: str, at: EtcdAddress = address) -> Candidate:
            made = Candidate(name, at, events)
            stack.callback(made.election.close)
            return made

        yield start_one


def test_one_leads_and_the_other_follows_at_once_when_it_leaves(start: Start, events: Events) -> None:
    one = start("one")
    assert events.next() == ("leads", "one")
    two = start("two")
    eventually(lambda: two.election.standing.leader, "the standby knows who leads")
    assert two.election.standing.leader == Leader("one", "one:9560", "http://one:8080")
    assert (one.election.leads(), two.election.leads()) == (True, False)
    assert (one.election.standing.leads, two.election.standing.leads) == (True, False)
    one.election.close()
    assert events.next() == ("leads", "two")
    assert (one.election.leads(), two.election.leads()) == (False, True)
    assert two.terms[0].ids.first > one.terms[0].ids.last
    assert one.lost == []


def test_a_leader_that_is_cut_off_stops_before_another_one_leads(
    start: Start, events: Events, address: EtcdAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Shorter than for users, for the sake of time. The margin stays.
    monkeypatch.setattr(election, "TTL_S", 2)
    monkeypatch.setattr(election, "RENEW_S", 0.2)
    proxy = SilentProxy(address.members[0])
    one = start("one", EtcdAddress((proxy.address,), address.prefix))
    assert events.next() == ("leads", "one")
    start("two")
    proxy.silence()
    assert events.next() == ("lost", "one")
    assert not one.election.leads()
    assert events.next() == ("leads", "two")
    assert "no renewal of its lease was answered in time" in one.lost[0]
    proxy.close()


def test_a_leader_whose_key_is_removed_stops(start: Start, events: Events, address: EtcdAddress) -> None:
    one = start("one")
    assert events.next() == ("leads", "one")
    etcd = Etcd(address)
    remove = rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=address.key("leader")))
    etcd.txn(rpc.TxnRequest(success=[remove]), 5.0)
    etcd.close()
    assert events.next() == ("lost", "one")
    assert not one.election.leads()


@pytest.mark.slow
def test_a_silent_member_is_left_for_another_one(start: Start, events: Events, address: EtcdAddress) -> None:
    """The leader's first member goes silent; the lease is renewed through the other one."""
    proxy = SilentProxy(address.members[0])
    one = start("one", EtcdAddress((proxy.address, *address.members), address.prefix))
    assert events.next() == ("leads", "one")
    proxy.silence()
    renewals = one.election.renewals
    eventually(lambda: one.election.renewals > renewals + 2, "renewals through the other member")
    assert one.election.leads()
    proxy.close()


@pytest.mark.slow
def test_etcd_may_be_down_at_the_start_and_restart_under_a_leader(
    start: Start, events: Events, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.end()
    with caplog.at_level(logging.INFO):
        one = start("one")
        eventually(lambda: one.election.standing.trouble, "the candidate says that etcd is down")
        eventually(lambda: one.election.looks > 5, "it tries again")
        cluster.start()
        assert events.next() == ("leads", "one")
        cluster.end(signal.SIGKILL)
        eventually(lambda: one.election.standing.trouble, "the leader says that etcd is down")
        cluster.start()
        eventually(lambda: not one.election.standing.trouble, "etcd answers again")
    assert one.lost == []
    assert one.election.leads()
    said = [r.message for r in caplog.records if "stands by and tries again" in r.message]
    assert len(said) == 1, "one line, however often it tries"
    assert "does not answer: UNAVAILABLE" in said[0]
    assert "\n" not in said[0]
