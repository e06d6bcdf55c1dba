# SPDX-License-Identifier: Apache-2.0
"""The controller as a process: `python -m polyrhythm controller`.

The main thread runs the Ryu applications. One asyncio loop, in a thread of its own, owns all state and serves
switches, agents and the web. Worker processes compute plans and table writes. When agents can connect, one
line goes to standard output: `{"ready": true, "agents": "host:port", "web": "http://..."}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from controller.agents.server import AgentServer
from controller.agents.standby import StandbyAgentServer
from controller.agents.translate import WelcomeTerms
from controller.app import RyuApplications, RyuError
from controller.live.core import Core
from controller.live.measuring import MeasureSettings
from controller.live.messages import FrameAsked
from controller.live.settings import CoreSettings
from controller.live.verify import FABRIC_TIME_PROBES, HOST_CLOCK_PROBES
from controller.model.traffic import TRAFFIC_CLASSES
from controller.northbound.api import create_app
from controller.northbound.health import ControllerRole, Place
from controller.northbound.metrics import MetricsSource
from controller.northbound.operations import Operations
from controller.northbound.source import ViewBoard
from controller.northbound.web import AddressError, WebServer, assets_dir, serve
from controller.process.chosen_store import open_store
from controller.process.circles import RunningCircles
from controller.process.clock import EmbeddedClock, HostClock
from controller.process.control_loop import ControlLoop
from controller.process.cutting import RunningCuts
from controller.process.draining import RunningDrains
from controller.process.durable_state import DurableState
from controller.process.latency import QUIET_S, GarbageCollection, switch_threads_often, watch_pauses
from controller.process.listeners import Listeners
from controller.process.loop_options import LoopOptions
from controller.process.measured_past import RunningHistory
from controller.process.placing import RunningPlacements
from controller.process.plan_operations import RunningPlans
from controller.process.policy_choice import RunningPolicy
from controller.process.requested_jobs import RunningJobs
from controller.process.standby import Leadership, stand_by
from controller.process.start_options import StartOptions
from controller.process.state_options import SharedState
from controller.process.status import ControllerStatus
from controller.process.stop_request import StopRequest
from controller.process.switch_tables import RunningTables
from controller.process.web_thread import WebThread
from controller.process.what_if import RunningWhatIf, Simulate
from controller.process.workers import WorkerProcesses
from controller.southbound.artefacts import ArtefactError, load_artefacts
from controller.southbound.codec import Codec, PipelineError
from controller.southbound.election_ids import ElectionIds, Outbids
from controller.southbound.fleet import SwitchFleet
from controller.southbound.heartbeat import Heartbeat
from controller.store.interface import StoreError, StoreRefusedError
from controller.wire.time_slices import short_time_slices

log = logging.getLogger(__name__)

# Host time for a clean stop; a thread that takes longer is abandoned. Chosen.
STOP_TIMEOUT_S = 1.5
# The exit code of a leader that does not lead any more. Start it again: it then stands by.
DEPOSED = 3
# Open files that the process asks for. Chosen: thousands of connections, each one file.
_OPEN_FILES = 65_536


def run(start: StartOptions, simulate: Simulate | None = None) -> int:
    """Serve until SIGTERM, SIGINT or the end of standard input.

    The caller has configured the log. `simulate` answers the question what other policies would do; None: it
    is not answered. Returns the exit code: 0 after a stop, 1 after a failure, 2 for bad input. A leader that
    has lost its leadership ends with DEPOSED.
    """
    for talkative in ("os_ken", "uvicorn", "finsy"):
        logging.getLogger(talkative).setLevel(logging.WARNING)
    try:
        # The artefacts are loaded again where they are used; here they are checked before anything starts.
        Codec(load_artefacts(start.artefacts))
        frame = RyuApplications(start.apps)
    except (ArtefactError, PipelineError, RyuError) as error:
        print(f"polyrhythm controller: {error}", file=sys.stderr)
        return 2
    _allow_connections()
    stop = StopRequest()
    stop.on_signals(signal.SIGTERM, signal.SIGINT)
    _watch_input(stop)
    service = _Service(start, frame, stop, simulate)
    service.thread.start()
    stop.wait()
    service.stop()
    frame.stop()
    sys.stdout.flush()
    if threading.active_count() > 1:
        # A thread does not end: the handler of an application, or one that waits for the end of a worker
        # process. End the process without it; worker processes then end too.
        logging.shutdown()
        os._exit(service.code)
    return service.code


class _Service:
    """The thread of the asyncio loop: everything except the Ryu applications."""

    def __init__(
        self, start: StartOptions, frame: RyuApplications, stop: StopRequest, simulate: Simulate | None
    ) -> None:
        self.code = 0
        self.thread = threading.Thread(target=self._thread, name="controller", daemon=True)
        self._start = start
        self._frame = frame
        self._stop = stop
        self._simulate = simulate
        self._loop = asyncio.new_event_loop()
        self._main: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Ask the loop to end, and wait for it for STOP_TIMEOUT_S at most."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
        self.thread.join(STOP_TIMEOUT_S)

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _thread(self) -> None:
        if self._start.fabric.clock == "host":
            short_time_slices()
            switch_threads_often()
        asyncio.set_event_loop(self._loop)
        self._main = self._loop.create_task(self._serve())
        try:
            self._loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            log.info("the controller has stopped")
        except (StoreError, ArtefactError, PipelineError, AddressError) as error:
            print(f"polyrhythm controller: {error}", file=sys.stderr)
            # etcd may not answer when this controller begins to lead: perhaps another one does better.
            again = isinstance(error, StoreError) and not isinstance(error, StoreRefusedError)
            self.code = DEPOSED if again and isinstance(self._start.state, SharedState) else 2
        finally:
            # The end of the loop ends the process. An error that is not caught above shows its traceback.
            self.code = self.code or (0 if self._main.cancelled() else 1)
            self._stop.make()

    async def _serve(self) -> None:
        if not isinstance(self._start.state, SharedState):
            workers = WorkerProcesses(self._start.fabric, self._start.artefacts)
            try:
                await self._serve_fabric(self._start, None, workers)
            finally:
                workers.close()
            return
        # They are warm when this controller begins to lead.
        workers = WorkerProcesses(self._start.fabric, self._start.artefacts)
        warm = asyncio.create_task(workers.warm_up())
        leadership: Leadership | None = None
        try:
            leadership, start = await self._stand_by(self._start.state)
            await warm
            await self._serve_fabric(start, leadership, workers)
        finally:
            warm.cancel()
            workers.close()
            if leadership is not None:
                await leadership.close()

    async def _stand_by(self, shared: SharedState) -> tuple[Leadership, StartOptions]:
        """Stand by until this controller leads, which then serves on the same ports."""
        listeners = self._start.listeners
        leadership, agents, web = await stand_by(
            shared,
            listeners.agents_tls,
            lambda hub: _listen(hub, listeners),
            lambda board, standby: _serve_web(board, standby, listeners),
            _end_deposed,
            lambda agents, web: _say_ready(agents, web, "standby"),
        )
        agents_port = listeners.agents_port
        if not agents.startswith("unix:"):
            agents_port = int(agents.rpartition(":")[2])
        bound = replace(listeners, agents_port=agents_port, web_port=int(web.rpartition(":")[2]))
        return leadership, replace(self._start, listeners=bound)

    async def _serve_fabric(
        self, start: StartOptions, leadership: Leadership | None, workers: WorkerProcesses
    ) -> None:
        fabric = start.fabric
        embedded = fabric.clock == "embedded"
        warm = asyncio.create_task(workers.warm_up())
        artefacts = load_artefacts(start.artefacts)
        settings = CoreSettings(
            topology=fabric.topology,
            policy=start.policy,
            seed=start.seed,
            verify=fabric.verify,
            elephant_bytes=fabric.elephant_bytes,
            probe_options=FABRIC_TIME_PROBES if embedded else HOST_CLOCK_PROBES,
            measure=MeasureSettings(enabled=fabric.measured, window_ns=fabric.profile_window_ns),
            grace_ns=fabric.grace_ns,
            lease_ns=fabric.lease_ns,
            pin_capacity=Codec(artefacts).table_size("pinned_flow"),
            restart_grace_ns=0 if embedded else fabric.restart_grace_ns,
        )
        clock = EmbeddedClock() if embedded else HostClock()
        core = Core(settings)
        core.now_ns = clock.now_ns
        store = open_store(start, leadership)
        if store is None and not embedded:
            log.warning(
                "no state is stored: jobs, plans and profiles are lost when this process ends (--state)"
            )
        state = await DurableState.open(store, core, clock.boot) if store is not None else None
        control_loop = ControlLoop(
            core,
            clock,
            workers=workers,
            options=LoopOptions(fabric.scenario, fabric.poll_ns, start.poll, fabric.read_back_ns),
            publish=self._frame.publish,
            state=state,
        )
        fleet = SwitchFleet(
            fabric.topology,
            fabric.targets,
            artefacts,
            workers.tables,
            control_loop.switches,
            # In the embedded fabric a slow computer must change no result: there only a broken connection
            # counts.
            heartbeat=None if embedded else Heartbeat(),
        )
        agents = AgentServer(
            fabric.topology.host,
            WelcomeTerms(
                core.settings.policy.name,
                TRAFFIC_CLASSES,
                fabric.elephant_bytes,
                answer_deadline_ns=fabric.answer_deadline_ns,
                realign=fabric.realign,
                profiles=core.measuring.enabled,
            ),
            inbox=control_loop,
            channels=control_loop.channels,
            ticks=control_loop if embedded else None,
            delay_s=start.rpc_delay_s,
            tls=start.listeners.agents_tls,
        )
        if not embedded:
            fleet.take_up(core.desired)
        status = ControllerStatus(
            fabric.topology,
            control_loop,
            fleet,
            agents,
            agents_needed=start.agents_needed,
            store_failure=lambda: (
                (leadership.trouble() if leadership is not None else "")
                or (state.writer.failure if state is not None else "")
            ),
            stored=state is not None,
            place=leadership.place if leadership is not None else Place,
        )
        control_loop.connect(fleet, agents, status)
        close_web: Callable[[], Coroutine[Any, Any, None]] = _nothing
        try:
            address = await _listen(agents, start.listeners)
            if leadership is None:
                outbids = Outbids.ONCE if start.take_over else Outbids.NEVER
                fleet.start(ElectionIds(outbids=outbids), lambda: True)
            else:
                fleet.start(leadership.ids, leadership.leads)
            self._frame.start(self._sender(control_loop))
            command = partial(control_loop.put, "operator", "operator")
            operations = Operations(
                RunningPlans(core, control_loop.planning, workers.plans, store, control_loop.reasons),
                RunningPlacements(core, workers.another),
                RunningDrains(core, command, workers.tables),
                RunningPolicy(core, command, agents),
                RunningJobs(core, command, control_loop.outdate_views),
                RunningCircles(core, workers.plans),
                RunningTables(core, fleet, workers.tables),
                RunningHistory(core, control_loop.recorder, control_loop.reasons),
                RunningCuts(core.topology, control_loop.cable_orders if embedded else None),
                self._simulate and RunningWhatIf(core, control_loop.recorder, self._simulate, workers.aside),
            )
            url, close_web = await _serve_web(control_loop.board, status, start.listeners, operations)
            _say_ready(address, url, "leader" if leadership is not None else "alone")
            await warm
            collector = GarbageCollection()
            collecting = asyncio.create_task(_collect_garbage(collector, agents))
            watching = asyncio.create_task(watch_pauses(control_loop.progress.pauses))
            try:
                await control_loop.run()
            finally:
                watching.cancel()
                collecting.cancel()
                collector.close()
        finally:
            await asyncio.gather(close_web(), agents.stop(), fleet.stop(), return_exceptions=True)
            control_loop.close()
            workers.close()
            if state is not None:
                state.close()

    def _sender(self, control_loop: ControlLoop) -> Callable[[str, bytes, int, bool], None]:
        def send(switch: str, payload: bytes, egress_port: int, submit_to_ingress: bool) -> None:
            frame = FrameAsked(switch, payload, egress_port, submit_to_ingress)
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(control_loop.put, switch, "application", frame)

        return send


async def _listen(agents: AgentServer | StandbyAgentServer, listeners: Listeners) -> str:
    try:
        return await agents.start(listeners.agents_address, listeners.agents_port)
    except OSError as error:
        raise AddressError(f"--agents-address: {error}") from None


async def _serve_web(
    board: ViewBoard,
    status: MetricsSource,
    listeners: Listeners,
    operations: Operations = Operations(),  # noqa: B008 - frozen
) -> tuple[str, Callable[[], Coroutine[Any, Any, None]]]:
    """Start the API and the page; returns their address and the function that stops them."""
    try:
        assets = assets_dir()
    except FileNotFoundError as error:
        log.warning("only the REST API is served, not the page: %s", error)
        assets = None
    web, port = WebThread(), listeners.web_port

    async def serving() -> WebServer:
        views, found = web.views(board), web.operations(operations)
        app = create_app(views, assets, web.status(status), rules=listeners.access, operations=found)
        return await serve(app, listeners.web_address, port, listeners.web_tls)

    try:
        server = await web.start(serving)
    except AddressError as error:
        raise AddressError(f"--web-address, --web-port: {error}") from None
    if port and server.port != port:
        log.warning("port %d is busy, so the page and the API use port %d", port, server.port)
    return server.url.rstrip("/"), web.close


async def _collect_garbage(collector: GarbageCollection, agents: AgentServer) -> None:
    """Make full garbage collections when they are due."""
    while True:
        await asyncio.sleep(QUIET_S)
        collector.collect_if_due(time.monotonic(), agents.asked_s)


async def _nothing() -> None:
    pass


def _say_ready(agents: str, web: str, role: ControllerRole) -> None:
    sys.stdout.write(json.dumps({"ready": True, "role": role, "agents": agents, "web": web}) + "\n")
    sys.stdout.flush()


def _end_deposed(why: str) -> None:
    """End the process at once: what has ended writes to no switch."""
    print(f"polyrhythm controller: it does not lead any more, so it ends: {why}", file=sys.stderr, flush=True)
    logging.shutdown()
    os._exit(DEPOSED)


def _allow_connections() -> None:
    """Raise the limit of open files as far as allowed: many idle connections must not keep an agent out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _watch_input(stop: StopRequest) -> None:
    """If standard input is a pipe, stop when it closes: then the parent process has ended."""
    try:
        piped = stat.S_ISFIFO(os.fstat(0).st_mode) or stat.S_ISSOCK(os.fstat(0).st_mode)
    except OSError:
        return
    if not piped:
        return

    def watch() -> None:
        while os.read(0, 4096):
            pass
        stop.make()

    threading.Thread(target=watch, name="parent", daemon=True).start()
