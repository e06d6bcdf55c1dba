# SPDX-License-Identifier: Apache-2.0
"""The control loop: passes inputs to the core in order and carries out the core's effects.

Everything runs on one asyncio loop, in steps. In the embedded fabric a step is a tick of the fabric's clock:
the loop waits for every message that the tick announces, handles them, plans, writes tables and sends all
answers; then it settles the tick. On the host's clock a step handles the inputs that have come in, and
planning runs beside the steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from controller.agents.channels import ChannelCounts
from controller.agents.server import AgentServer
from controller.live.core import Core
from controller.live.messages import (
    FlowAsked,
    Input,
    SendFrame,
)
from controller.live.notices import Notice
from controller.live.views import Surroundings
from controller.model.plan import Plan
from controller.planner.emergency import event_name
from controller.process.cable_orders import CableOrders
from controller.process.clock import EmbeddedClock, HostClock, PeriodicTimer
from controller.process.durable_state import DurableState
from controller.process.input_queue import InputQueue
from controller.process.loop_options import LoopOptions
from controller.process.planning import Planning
from controller.process.precompute import Precomputation
from controller.process.progress import Progress
from controller.process.switch_inputs import SwitchInputs
from controller.process.view_publisher import ViewPublisher
from controller.process.workers import WorkerProcesses
from controller.southbound.fleet import PreparedWrites, RunnerError, SwitchFleet, log_refused
from controller.southbound.table_writes import DesiredState
from controller.wire import agent_pb2 as wire
from controller.wire.log_lines import PLAN
from polyrhythm_files import listed

log = logging.getLogger(__name__)

T = TypeVar("T")

# Host time that the loop waits for the switches at the start, on the host's clock. Chosen.
READY_TIMEOUT_S = 10.0
# Host time after which the loop gives up, in the embedded fabric, what a tick has announced and the switches.
# Chosen: longer than any pause of a slow machine, which must change no result.
SILENCE_S = 120.0
# Host time: the pause between two pieces of work when a plan comes into force. Chosen: long enough for a
# request of an agent to pass gRPC's threads.
PAUSE_S = 0.001


class ControlLoop:
    """Owns the inbox and the clock, and carries out what the core asks for."""

    def __init__(
        self,
        core: Core,
        clock: EmbeddedClock | HostClock,
        *,
        workers: WorkerProcesses,
        options: LoopOptions,
        publish: Callable[[Notice], None],
        state: DurableState | None,
    ) -> None:
        self.channels = ChannelCounts()
        self._core = core
        self._clock = clock
        self.planning = Planning(workers.plans, stands_still=isinstance(clock, EmbeddedClock))
        self._options = options
        self._publish = publish
        self._state = state
        self._fleet: SwitchFleet | None = None
        self._agents: AgentServer | None = None
        self._inbox = InputQueue()
        self._wake = asyncio.Event()
        self.switches = SwitchInputs(self.put, self.channels)
        self._frames_sent: dict[str, int] = {}
        self._announced: dict[str, int] = {}
        self._applying: asyncio.Task[None] | None = None
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._precomputation = Precomputation(workers, with_writes=isinstance(clock, HostClock))
        self._read_backs = PeriodicTimer(options.read_back_ns)
        self._publisher = ViewPublisher(core, clock, publish, options, state)
        self.recorder, self.reasons = self._publisher.recorder, self._publisher.reasons
        self.board, self.outdate_views = self._publisher.board, self._publisher.outdate
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.progress = Progress()
        self.cable_orders = CableOrders()

    def connect(
        self, fleet: SwitchFleet, agents: AgentServer, surroundings: Surroundings | None = None
    ) -> None:
        """Set the switches and the agents that the loop works with, and what its alarms are derived from."""
        self._fleet, self._agents = fleet, agents
        self.switches.expect(fleet.clients)
        if self._state is not None:
            self._state.connect(agents.send)
        self._publisher.connect(fleet, surroundings)

    def close(self) -> None:
        """Stop the computations and the reads in the background, and store what was measured last."""
        if self._state is not None and (measured := self.recorder.history.under_way()) is not None:
            self._state.save(self._core.plan, measured=(measured,))
        self._precomputation.close()
        for task in self._reading.values():
            task.cancel()

    # Inputs.

    def put(self, node: str, channel: str, item: Input) -> None:
        """Add an input for the next step. The inputs of a node keep their order on each channel.

        On the host's clock a question for a flow is answered now, unless an earlier input of its channel
        waits: it would wait for a step with the messages of all workers of an arriving job.
        """
        at_once = isinstance(self._clock, HostClock) and not self._failure.done()
        if at_once and isinstance(item, FlowAsked) and not self._inbox.holds(node, channel):
            self._answer(item)
            return
        self._inbox.put(node, channel, item)
        self._wake.set()

    def _answer(self, item: FlowAsked) -> None:
        self._core.now_ns = self._clock.now_ns
        try:
            for effect in self._core.answered(item):
                if self._agents is not None and not isinstance(effect, SendFrame):
                    self._agents.send(effect)
        except Exception as error:  # as in a step, it ends the control loop
            self._failure.set_exception(error)
            self._wake.set()

    # The embedded fabric's clock.

    async def tick(self, tick: wire.Tick) -> wire.Settled:
        """Handle a tick and everything that it announces; returns the answer that settles it."""
        return await self._watched(self._tick(tick))

    async def _tick(self, tick: wire.Tick) -> wire.Settled:
        if not self.switches.all_ready.is_set():
            await self._wait_for_switches()
        late = await self.channels.wait(dict(tick.sent), SILENCE_S)
        if late:
            raise ConnectionError(
                f"tick {tick.sequence} announced messages that did not arrive within {SILENCE_S:g} s on: "
                f"{', '.join(late)}"
            )
        if isinstance(self._clock, EmbeddedClock):
            self._clock.advance(tick.time_ns)
        await self._step()
        if tick.last:
            await self._publisher.poll()
            self._publisher.now()
        sent = {**(self._agents.sent if self._agents is not None else {}), **self._frames_sent}
        news = {channel: n for channel, n in sent.items() if self._announced.get(channel) != n}
        self._announced.update(news)
        orders, due_ns = [] if tick.last else self.cable_orders.take(), self._next_timer_ns() or 0
        return wire.Settled(sequence=tick.sequence, sent=news, next_timer_ns=due_ns, orders=orders)

    def time_lost(self) -> None:
        """The connection to the fabric's clock is lost: fabric time stands still, the page stays up."""
        log.error(
            "the connection to the fabric's clock is lost; fabric time stands at %.3f s",
            self._clock.now_ns / 1e9,
        )

    # The host's clock.

    async def run(self) -> None:
        """Run until cancelled. On the host's clock this makes the steps; otherwise the ticks make them.

        An error in a step ends the control loop with that error: a controller that does not work must not
        look alive.
        """
        if isinstance(self._clock, EmbeddedClock):
            await self._failure
        while not self._failure.done():
            with self.progress.step():
                await self._step()
            due = self._next_timer_ns()
            timeout = None if due is None else max(0.0, (due - self._clock.now_ns) / 1e9)
            # A new subscriber of the page does not wake this loop, so wake up once per poll interval.
            poll = self._options.poll_ns / 1e9
            self._wake.clear()
            if not self._inbox:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(poll if timeout is None else min(poll, timeout)):
                        await self._wake.wait()
        self._failure.result()

    # Steps.

    async def _step(self) -> None:
        core = self._core
        core.now_ns = self._clock.now_ns
        for item in self._inbox.take():
            core.handle(item)
        core.run_timers()
        await self._carry_out()
        self.planning.look_at(core)
        if self._wants_work:
            self._applying = self._applying or self._watched(self._apply())
        if self._applying is not None and isinstance(self._clock, EmbeddedClock):
            await self._applying
        if self._applying is None and self._read_backs.due(self._clock.now_ns) and self._fleet is not None:
            await self._read("tables", self._fleet.read_back)
        if self._fleet is not None and self._fleet.keeps_found and core.reannouncement.over:
            await self._read("found entries", self._fleet.forget_found)
        if self._publisher.poll_due():
            await self._read("counters", self._publisher.poll)
        self._publisher.soon()

    async def _read(self, what: str, read: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Read from the switches: within the step in the embedded fabric, where time stands still meanwhile.

        On the host's clock the step does not wait, because a switch may answer slowly or not at all. A read
        that is due while the last one of its kind still runs is left out.
        """
        if isinstance(self._clock, EmbeddedClock):
            await read()
        elif what not in self._reading:
            task = self._reading[what] = self._watched(read())
            task.add_done_callback(lambda _: self._reading.pop(what, None))

    def _watched(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` as a task; if it fails, the control loop ends with its error."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._look_at)
        return task

    def _look_at(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)
            self._wake.set()

    @property
    def _wants_work(self) -> bool:
        core, wanted = self._core, self.planning.wanted(self._core)
        return core.wants_tables or wanted or core.resumes or core.lookahead_jobs is not None

    async def _apply(self) -> None:
        """Write tables and make plans until the core asks for neither."""
        core = self._core
        self._precomputation.cancel()
        try:
            # Agents may connect before the switches are in service. They receive no path that switches do
            # not have yet.
            if not self.switches.all_ready.is_set():
                await self._wait_for_switches()
            while self._wants_work:
                if core.resumes:
                    core.resume()
                PLAN.set(core.plan.version if core.plan is not None else None)
                if core.wants_tables and self._fleet is not None:
                    await self._new_condition()
                if self.planning.wanted(core):
                    core.now_ns = self._clock.now_ns
                    try:
                        with self.progress.planning():
                            made = await self.planning.plan(core, self._new_condition)
                    except RunnerError as error:
                        log.error("no plan could be made, so the last one stays in force: %s", error)
                        core.plan_failed(self.progress.no_plan(error))
                    else:
                        self.progress.plan_failure = ""
                        if made is None:
                            continue
                        PLAN.set(made.version)
                        # Write the tables first, so that no agent receives a path that switches do not have.
                        wanted = DesiredState.of(core.condition, core.in_force(made))
                        await self._pause()
                        self._save(core.in_force(made))
                        if wanted != core.desired:
                            await self._write(wanted)
                        core.now_ns = self._clock.now_ns
                        core.adopt(made)
                        # Not all of its probes are sent in one go.
                        self._wake.set()
                        self.progress.in_force(made.jobs)
                        # A measurement may have ended during the write, and with it the job's raised level.
                        if core.desired != wanted:
                            await self._write(core.desired)
                        await self._pause()
                active, core.lookahead_jobs = core.lookahead_jobs, None
                if active is not None:
                    await self._assign_lookahead_paths(active)
                await self._carry_out()
            self._precomputation.begin(core, self._watched)
            await self._pause()
            self._publisher.now()
        finally:
            self._applying = None

    async def _pause(self) -> None:
        """On the host's clock, answer waiting requests of agents before the next piece of work. A request
        passes gRPC's threads first, so one round of the asyncio loop is not enough.
        """
        if isinstance(self._clock, HostClock):
            await asyncio.sleep(PAUSE_S)

    async def _write(self, wanted: DesiredState, ready: PreparedWrites | None = None) -> None:
        if self._fleet is not None:
            with self.progress.writing():
                log_refused(await self._fleet.apply(wanted, ready))

    async def _new_condition(self) -> None:
        """Write the tables for the links and switches that are down now. After a single failure, also move
        the affected flows at once. The answer was prepared, or is computed now with the same result.
        """
        core, failovers = self._core, self._core.failovers
        condition = core.take_condition()
        self._save(core.plan)
        writes = failovers.writes(condition)
        wanted = core.desired
        await self._write(wanted, PreparedWrites(failovers.desired, writes) if writes is not None else None)
        event = failovers.event_of(condition)
        if several := failovers.unanswered(condition):
            log.warning("down since the last plan: %s; the next plan moves their flows", listed(several))
        if event is None or failovers.plan is None:
            return
        answer, ready = await self._precomputation.answer(failovers, event)
        if answer is None:
            return
        emergency = answer.reroutes.emergency(failovers.plan)
        core.fail_over(emergency)
        if core.desired != wanted:
            await self._write(core.desired)
        await self._carry_out()
        how = "prepared" if ready else "computed now"
        words = "failure of %s: %s (the answer was %s); a full plan follows"
        log.info(words, event_name(event), emergency.words(), how)

    async def _assign_lookahead_paths(self, active: frozenset[str]) -> None:
        """Assign paths for just the jobs that are about to send (lookahead)."""
        core = self._core
        try:
            made, ready = await self._precomputation.paths(core.lookahead_input(active))
        except RunnerError as error:
            words = "lookahead: no paths for the jobs %s, so the plan stays as it is: %s"
            log.error(words, ", ".join(sorted(active)), error)
            return
        core.now_ns = self._clock.now_ns
        moved = core.adopt_lookahead(made)
        how = "were prepared" if ready else "were computed now"
        log.info(
            "lookahead: the jobs %s send next, so %d flows move to other paths (the paths %s)",
            ", ".join(sorted(active)),
            moved,
            how,
        )

    async def _carry_out(self) -> None:
        core = self._core
        for effect in core.take_effects():
            if isinstance(effect, SendFrame):
                await self._send_frame(effect)
            elif self._agents is not None:
                self._agents.send(effect)
        notices = core.take_notices()
        self.progress.noticed(notices)
        for notice in notices:
            self._publisher.noticed(notice)
            self._publish(notice)
        self._save(core.plan, notices)

    def _save(self, plan: Plan | None, notices: tuple[Notice, ...] = ()) -> None:
        """Store what has changed, and then acknowledge workers. `plan` comes into force now, or is."""
        joined = self._core.registry.take_joined()
        if self._state is not None:
            self._state.save(plan, notices, joined, self.recorder.history.take_finished())

    async def _send_frame(self, frame: SendFrame) -> None:
        if self._fleet is None:
            return
        if isinstance(self._clock, HostClock):
            self._fleet.post_frame(frame.switch, frame.payload, frame.egress_port, frame.submit_to_ingress)
            return
        channel = f"packet_out:{frame.switch}"
        if await self._fleet.packet_out(
            frame.switch, frame.payload, frame.egress_port, frame.submit_to_ingress
        ):
            self._frames_sent[channel] = self._frames_sent.get(channel, 0) + 1

    async def _wait_for_switches(self) -> None:
        embedded = isinstance(self._clock, EmbeddedClock)
        limit_s = SILENCE_S if embedded else READY_TIMEOUT_S
        try:
            async with asyncio.timeout(limit_s):
                await self.switches.all_ready.wait()
        except TimeoutError:
            late = f"not in service after {limit_s:g} s: {', '.join(self.switches.missing)}"
            if embedded:
                raise ConnectionError(late) from None
            log.error("%s; the controller goes on without these switches", late)
            self.switches.all_ready.set()

    def _next_timer_ns(self) -> int | None:
        timed = (self._core, self._publisher, self.planning)
        times = (*(t.next_timer_ns for t in timed), self._read_backs.next_ns)
        return min((t for t in times if t is not None), default=None)
