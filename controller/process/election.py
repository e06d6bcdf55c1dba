# SPDX-License-Identifier: Apache-2.0
"""Which of several controllers leads: the one that holds a key in etcd, bound to a lease that it renews.

The leader must have stopped to write before its lease can expire. So its time runs from the moment at which
it sent the last renewal that etcd has answered, never from the answer. A leader whose time is over ends its
process at once (`on_lost`): then nothing of it can write, and whatever restarts it makes it a standby.

The election runs in a thread of its own: no other work of the controller delays a renewal.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from aetcd import rpc

from controller.process.lease_guard import LeaseGuard
from controller.southbound.election_ids import ElectionIds
from controller.store.etcd.address import EtcdAddress
from controller.store.etcd.members import Etcd, EtcdError

log = logging.getLogger(__name__)

# Chosen, in seconds: etcd elects a leader of its own anew within 3, and a partition must be over within 10.
TTL_S = 5
# Chosen: a leader stops this long before its lease can expire, whatever its clock's drift.
MARGIN_S = 1.0
# Chosen: between two renewals. Four may fail.
RENEW_S = 0.8
# Chosen: how long one renewal may take, so that another one can follow it.
RENEWAL_S = 1.5
# Chosen: between two looks of a standby at the leader's key, and its deadline for a call.
POLL_S = 0.2
CALL_S = 3.0


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads: the controller's name, and its addresses for agents and for the REST API."""

    name: str
    agents: str
    web: str


@dataclass(frozen=True, slots=True)
class Standing:
    """The place of this controller among several.

    `leader`: who leads; None: nobody, as far as this controller knows. `ids`: the election ids of this
    controller while it leads. `trouble`: why etcd does not answer; empty: it does.
    """

    leads: bool = False
    leader: Leader | None = None
    ids: ElectionIds | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Term:
    """A time as leader: `revision` of the leader's key, under `lease`."""

    revision: int
    lease: int
    ids: ElectionIds


class Election:
    """The part of one controller in the election.

    Its callbacks run in its thread: `on_won(term)` once, when this controller begins to lead, and
    `on_lost(why)` once, when it must not write any more. `on_poll(etcd)` is called by a standby after each
    look at the leader's key, so that it can follow the state.
    """

    def __init__(
        self,
        address: EtcdAddress,
        me: Leader,
        *,
        on_won: Callable[[Term], None],
        on_lost: Callable[[str], None],
        on_poll: Callable[[Etcd], None] = lambda _: None,
    ) -> None:
        self.etcd = Etcd(address)
        self.standing = Standing()
        self.looks = self.renewals = 0
        """How often this controller has looked for a leader, and how often it has renewed its lease."""
        self._address = address
        self._me = me
        self._key = address.key("leader")
        self._on_won = on_won
        self._on_lost = on_lost
        self._on_poll = on_poll
        self._guard = LeaseGuard(address)
        self._stopping = threading.Event()
        self._term: Term | None = None
        self._until = 0.0
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    def start(self) -> None:
        """Begin to stand for election."""
        self._thread.start()

    def leads(self) -> bool:
        """Whether this controller may write to switches at this moment."""
        return self._term is not None and now_s() < self._until

    def close(self) -> None:
        """Leave the election. A leader gives its lease back, so another controller leads at once: call it
        when nothing is written any more.
        """
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(CALL_S)
        if self._thread.is_alive():
            # It waits for etcd. The process ends without it.
            self._guard.close()
            return
        term, self._term = self._term, None
        if term is not None:
            try:
                self.etcd.revoke(term.lease, MARGIN_S)
            except EtcdError as error:
                log.warning("the lease was not given back, so it ends by itself in %d s: %s", TTL_S, error)
            else:
                self._guard.release()
        self._guard.close()
        self.etcd.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.looks += 1
            try:
                term = self._stand()
                if term is not None and self._stopping.is_set():
                    self._give_back(term.lease)
                elif term is not None:
                    self._lead(term)
                    return
                self._on_poll(self.etcd)
            except EtcdError as error:
                self._stands_by(self.standing.leader, str(error))
            self._stopping.wait(POLL_S)

    def _stand(self) -> Term | None:
        """Take the leader's key if nobody has it. Raises EtcdError."""
        found = self.etcd.range(rpc.RangeRequest(key=self._key), CALL_S).kvs
        if found:
            self._stands_by(_leader(found[0].value))
            return None
        sent = now_s()
        lease = self.etcd.grant(TTL_S, CALL_S)
        free = rpc.Compare(
            key=self._key, target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL, create_revision=0
        )
        value = json.dumps(asdict(self._me)).encode()
        take = rpc.RequestOp(request_put=rpc.PutRequest(key=self._key, value=value, lease=lease))
        look = rpc.RequestOp(request_range=rpc.RangeRequest(key=self._key))
        try:
            reply = self.etcd.txn(rpc.TxnRequest(compare=[free], success=[take], failure=[look]), CALL_S)
        except EtcdError:
            # Perhaps the key was taken all the same. It goes with the lease.
            self._give_back(lease)
            raise
        revision = reply.header.revision
        if not reply.succeeded:
            kvs = reply.responses[0].response_range.kvs
            if not kvs or kvs[0].lease != lease:
                self._give_back(lease)
                self._stands_by(_leader(kvs[0].value) if kvs else None)
                return None
            # The call was sent twice, and the first one took the key.
            revision = kvs[0].create_revision
        self._until = sent + TTL_S - MARGIN_S
        return Term(revision, lease, ElectionIds.of_leader(self._address.epoch, revision))

    def _give_back(self, lease: int) -> None:
        try:
            self.etcd.revoke(lease, MARGIN_S)
        except EtcdError as error:
            log.debug("a lease that is not used ends by itself: %s", error)

    def _lead(self, term: Term) -> None:
        """Renew the lease until `close`, or until it is lost."""
        self._guard.hold(term.lease)
        self._term = term
        self.standing = Standing(leads=True, leader=self._me, ids=term.ids)
        log.info(
            "this controller leads from now on, elected at revision %d of %s: its election ids begin with %d",
            term.revision,
            self._address,
            term.ids.first,
        )
        self._on_won(term)
        while not self._stopping.wait(RENEW_S):
            sent = now_s()
            left = self._until - sent
            if left <= 0:
                self._lose(f"no renewal of its lease was answered in time ({self.standing.trouble})")
                return
            try:
                if not self._still_ours(term, min(left, RENEWAL_S)):
                    self._lose("another controller holds the leader's key, or nobody does")
                    return
                if not self.etcd.renew(term.lease, min(left, RENEWAL_S)):
                    self._lose("its lease has expired")
                    return
            except EtcdError as error:
                if not self.standing.trouble:
                    log.warning("%s; this controller leads for another %.1f s at most", error, left)
                self.standing = Standing(leads=True, leader=self._me, ids=term.ids, trouble=str(error))
                continue
            if self.standing.trouble:
                log.warning("%s answers again: the lease is renewed", self._address)
                self.standing = Standing(leads=True, leader=self._me, ids=term.ids)
            self._until = sent + TTL_S - MARGIN_S
            self.renewals += 1

    def _still_ours(self, term: Term, limit_s: float) -> bool:
        """Whether the leader's key is the one that this controller made."""
        kvs = self.etcd.range(rpc.RangeRequest(key=self._key), limit_s).kvs
        return bool(kvs) and kvs[0].create_revision == term.revision

    def _lose(self, why: str) -> None:
        self._until = 0.0
        self.standing = Standing(trouble=self.standing.trouble)
        log.error("this controller does not lead any more: %s", why)
        self._on_lost(why)

    def _stands_by(self, leader: Leader | None, trouble: str = "") -> None:
        before, self.standing = self.standing, Standing(leader=leader, trouble=trouble)
        if trouble and not before.trouble:
            log.error("%s; this controller stands by and tries again", trouble)
        elif before.trouble and not trouble:
            log.warning("%s answers", self._address)
        if leader is not None and leader != before.leader:
            log.info(
                "this controller is standby: %s leads (agents at %s, REST at %s)",
                leader.name,
                leader.agents,
                leader.web,
            )


def now_s() -> float:
    """Seconds since boot, in which a suspended machine counts its sleep: a lease runs on meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _leader(value: bytes) -> Leader:
    """The leader of the key's value; one that is not ours names nobody."""
    try:
        given: dict[str, Any] = json.loads(value)
        return Leader(str(given["name"]), str(given["agents"]), str(given["web"]))
    except (ValueError, KeyError, TypeError):
        return Leader("a controller of another kind", "?", "?")
