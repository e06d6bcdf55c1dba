# SPDX-License-Identifier: Apache-2.0
"""One of several controllers before it leads: it refuses agents, says who leads, and follows the state."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from controller.agents.standby import StandbyAgentServer
from controller.northbound.health import NotReady, Place, Readiness
from controller.northbound.metrics import ControllerCounts
from controller.northbound.source import ViewBoard
from controller.process.election import Election, Leader, Term, now_s
from controller.process.state_options import SharedState
from controller.store.etcd.members import Etcd
from controller.store.etcd.state_store import EtcdStore
from controller.store.interface import Kind, StoreError
from controller.wire.log_lines import lines_left_out
from controller.wire.server_tls import ServerTls

log = logging.getLogger(__name__)

# Chosen: a standby reads the state at most so often, in seconds. It reads all of it.
FOLLOW_S = 1.0


class Leadership:
    """A controller that leads, as one of several: its election ids, its store, and its end."""

    def __init__(self, election: Election, term: Term) -> None:
        self.ids = term.ids
        self.leads = election.leads
        self.store = EtcdStore(election.etcd, term.revision)
        self._election = election

    def place(self) -> Place:
        """The place of this controller among several."""
        leader = self._election.standing.leader
        return Place("leader", leader.name if leader else "", leader.web if leader else "", self.ids.first)

    def trouble(self) -> str:
        """Why etcd does not answer; empty: it does."""
        return self._election.standing.trouble

    async def close(self) -> None:
        """Give the leadership up, when nothing is written any more."""
        await asyncio.to_thread(self._election.close)


class Standby:
    """The `MetricsSource` of a standby, and what it has read of the state."""

    def __init__(self) -> None:
        self.election: Election | None = None
        self._jobs: int | None = None
        self._plan: int | None = None
        self._seen = -1
        self._read_s = 0.0
        self._unreadable = ""

    def stalled(self) -> str:
        """Nothing can stall."""
        return ""

    def readiness(self) -> Readiness:
        """A standby is not ready: requests belong to the leader."""
        leader, trouble = self._leader, self.election.standing.trouble if self.election else ""
        missing = [NotReady("leader", leader.name if leader else "nobody", self.words())]
        missing += [NotReady("store", "etcd", why) for why in (trouble, self._unreadable) if why]
        place = Place(
            "standby", leader.name if leader else "", leader.web if leader else "", 0, self._jobs, self._plan
        )
        return Readiness(missing, switches=0, hosts=0, agents_needed=0, place=place)

    def counts(self) -> ControllerCounts:
        """A standby counts nothing but the lines of its log."""
        return ControllerCounts(log_lines_left_out=lines_left_out())

    def words(self) -> str:
        """What a standby answers, to agents and to callers of the REST API."""
        leader = self._leader
        if leader is None:
            return "this controller is standby, and knows of none that leads: try again in a second"
        return f"this controller is standby: {leader.name} leads (agents {leader.agents}, REST {leader.web})"

    def follow(self, etcd: Etcd) -> None:
        """Read the state if it has changed. Runs in the election's thread."""
        if now_s() < self._read_s + FOLLOW_S:
            return
        self._read_s = now_s()
        store = EtcdStore(etcd, None)
        try:
            newest = store.last_change()
            if newest == self._seen:
                return
            state = store.load()
        except StoreError as error:
            if not self._unreadable:
                log.warning("the state cannot be followed: %s", error)
            self._unreadable = str(error)
            return
        self._seen, self._unreadable = newest, ""
        self._jobs, self._plan = len(state.records[Kind.JOB]), state.last_version

    @property
    def _leader(self) -> Leader | None:
        return self.election.standing.leader if self.election is not None else None


CloseWeb = Callable[[], Coroutine[Any, Any, None]]


async def stand_by(
    shared: SharedState,
    tls: ServerTls | None,
    listen: Callable[[StandbyAgentServer], Awaitable[str]],
    serve_web: Callable[[ViewBoard, Standby], Awaitable[tuple[str, CloseWeb]]],
    on_lost: Callable[[str], None],
    ready: Callable[[str, str], None],
) -> tuple[Leadership, str, str]:
    """Stand by until this controller leads; returns its leadership, and its addresses for agents and REST.

    `listen` and `serve_web` open the ports, which are free again afterwards. `ready(agents, web)` is called
    once they are open. `on_lost(why)` is called from any thread when the leadership is lost: the process must
    then end at once.
    """
    loop = asyncio.get_running_loop()
    won: asyncio.Future[Term] = loop.create_future()

    def elected(term: Term) -> None:
        # The loop may have ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(begin, term)

    def begin(term: Term) -> None:
        if not won.done():
            won.set_result(term)

    standby = Standby()
    hub = StandbyAgentServer(standby.words, tls)
    close_web: CloseWeb | None = None
    election: Election | None = None
    try:
        agents = await listen(hub)
        web, close_web = await serve_web(ViewBoard(standby.words), standby)
        me = Leader(shared.name, agents, web)
        election = Election(shared.address, me, on_won=elected, on_lost=on_lost, on_poll=standby.follow)
        standby.election = election
        election.start()
        ready(agents, web)
        term = await won
    except BaseException:
        if election is not None:
            await asyncio.to_thread(election.close)
        raise
    finally:
        await asyncio.gather(hub.stop(), close_web() if close_web is not None else asyncio.sleep(0))
    return Leadership(election, term), agents, web
