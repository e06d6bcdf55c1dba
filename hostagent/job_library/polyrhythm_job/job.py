# SPDX-License-Identifier: Apache-2.0
"""What training code uses: `with polyrhythm_job(...) as job: ... job.step()`.

The library talks to the agent of its host over a Unix socket, in the process and on the thread of the
training code. It never breaks the job: without an agent, or after the agent has ended, every call returns at
once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from types import TracebackType
from typing import Any

from polyrhythm_job.connection import CONNECT_S, AgentConnection
from polyrhythm_job.pcie import PcieLink
from polyrhythm_job.protocol import DEFAULT_SOCKET, NO_LEVEL, FlowPlacement, read_flows, read_schedule
from polyrhythm_job.schedule import Schedule, Slot, next_slot

log = logging.getLogger(__name__)

MAX_TRANSFER_WAIT_S = 1.0
"""The longest wait for a PCIe link. Chosen: a process that hangs while it has the link delays others by no
more than this."""
_ANSWER_S = 0.1
"""The longest wait for the agent's answer about a flow. Chosen: ten times the agent's own deadline."""
_MEASURED = 5
"""Iterations that are measured before the job joins, if its profile is not given. Chosen: enough for a
median."""
_WARM_UP = 1
"""Iterations left out before: the first one compiles kernels and opens connections."""
_NO_AGENT = FlowPlacement(0, 0, "nobody")


class polyrhythm_job:  # noqa: N801 - used as a word of the language, like `open`
    """A training job on this host. Use it as a context manager and call `step()` once an iteration.

    `hosts`: the names of the job's hosts in the fabric's description, in the order of their ranks. `rank`:
    the place of this host among them. Under torchrun only the first process of a host (LOCAL_RANK 0) talks to
    the agent; then `rank` follows from GROUP_RANK, `gpus` is WORLD_SIZE, and `hosts` may come from
    POLYRHYTHM_HOSTS (names with commas between).

    `period_ms` and `phases_ms` give the profile of an iteration that runs alone; `phases_ms` lists (start,
    end) of each Up phase, counted from the start of the first. `lead_ms` is the time from `step()` to the
    first Up phase. Without them the first five iterations are measured, with `communicating()` marking the Up
    phases. `bytes_per_flow`: the bytes that each flow carries in an iteration. `flops_per_iteration`: of the
    whole job.

    `traffic` says what the job is instead of `bytes_per_flow`: its collective, its parallelism and the bytes
    of each group, with the keys of docs/jobs.md. The agent makes the job's flows of it.

    `rails`: so many neighbours in `hosts` are NICs of one server; `rank` is then the place of the server's
    first NIC. The process joins for all NICs of its server. Without `traffic` the job is a ring on each rail.

    `pcie` (or POLYRHYTHM_PCIE): the PCIe link that this process shares with others of the host, see
    `pcie_transfer()`. `pcie_gbps`: the rate of that link in Gbit/s; with it the plan knows which jobs share
    it. `agent` (or POLYRHYTHM_AGENT): the agent's socket.

    `active`: whether this process talks to the agent. `placements`: source port and DSCP of each flow of the
    job here. `held_ns`: how long `step()` has waited so far. `level`: the job's priority level in the plan, 0
    the highest, NO_LEVEL without one.
    """

    def __init__(
        self,
        name: str,
        hosts: Sequence[str] = (),
        *,
        rank: int | None = None,
        model: str = "",
        gpus: int = 0,
        flops_per_iteration: float = 0.0,
        bytes_per_flow: int = 0,
        period_ms: float = 0.0,
        phases_ms: Sequence[tuple[float, float]] = (),
        lead_ms: float = 0.0,
        traffic: Mapping[str, Any] | None = None,
        rails: int = 1,
        agent: str = "",
        pcie: str = "",
        pcie_gbps: float = 0.0,
    ) -> None:
        environment = os.environ
        named = [n for n in environment.get("POLYRHYTHM_HOSTS", "").split(",") if n]
        self.name = name
        self.active = environment.get("LOCAL_RANK", "0") == "0"
        self.placements: dict[str, FlowPlacement] = {}
        self.held_ns = 0
        self.level = NO_LEVEL
        self._join: dict[str, Any] = {
            "op": "join",
            "job": name,
            "hosts": list(hosts) or named or [socket.gethostname()],
            "rank": rails * _number(environment.get("GROUP_RANK", "0")) if rank is None else rank,
            "model": model,
            "gpus": gpus or _number(environment.get("WORLD_SIZE", "0")),
            "flops_per_iteration": float(flops_per_iteration),
            "bytes_per_flow": bytes_per_flow,
        }
        if period_ms:
            self._join["period_ns"] = int(period_ms * 1e6)
            self._join["phases"] = [[int(start * 1e6), int(end * 1e6)] for start, end in phases_ms]
        if traffic is not None:
            self._join["traffic"] = dict(traffic)
        if rails != 1:
            self._join["rails"] = rails
        self._lead_ns = int(lead_ms * 1e6)
        self._connection = AgentConnection(agent or environment.get("POLYRHYTHM_AGENT", DEFAULT_SOCKET))
        self._joined = False
        self._schedule: Schedule | None = None
        self._last_schedule: Schedule | None = None
        self._error_ns = 0
        self._index = 0
        self._began_ns = 0
        self._slot = Slot()
        self._marks: list[tuple[int, int]] = []
        self._measured: list[tuple[int, list[tuple[int, int]]]] = []
        self._movers: dict[str, Callable[[int], None]] = {}
        self._answers: dict[int, FlowPlacement] = {}
        self._requests = 0
        pcie = pcie or environment.get("POLYRHYTHM_PCIE", "")
        self._pcie = _shared_link(pcie)
        if pcie and pcie_gbps > 0:
            self._join |= {"pcie_link": pcie, "pcie_bps": int(pcie_gbps * 1e9)}

    def __enter__(self) -> polyrhythm_job:
        self._began_ns = time.monotonic_ns()
        if self.active:
            self._announce()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        if self._pcie is not None:
            self._pcie.close()

    @property
    def connected(self) -> bool:
        """Whether the job is connected with an agent, and has joined."""
        return self._connection.up and self._joined

    @contextlib.contextmanager
    def communicating(self) -> Iterator[None]:
        """Mark an Up phase: the code inside communicates."""
        began = time.monotonic_ns()
        try:
            yield
        finally:
            self.mark(began, time.monotonic_ns())

    def mark(self, start_ns: int, end_ns: int) -> None:
        """Mark an Up phase that is over, by its times on the monotonic clock. Any thread may call this before
        the `step()` of its iteration.
        """
        self._marks.append((start_ns, end_ns))

    @contextlib.contextmanager
    def pcie_transfer(self) -> Iterator[None]:
        """Move data over the shared PCIe link inside this context.

        It begins when no job of a higher level in the plan uses the link or waits for it, after
        MAX_TRANSFER_WAIT_S at the latest, and at once without an agent or a link. Split long transfers into
        pieces of a few milliseconds, each in a context of its own.
        """
        if self.active and self._connection.up:
            self._receive()
        if self._pcie is None or not self._connection.up:
            yield
            return
        with self._pcie.acquired(self.level, MAX_TRANSFER_WAIT_S):
            yield

    def step(self) -> None:
        """End an iteration: report it, then wait for the job's slot if it has one.

        Waits at most one period, and not at all without an agent.
        """
        if not self.active:
            return
        ended = time.monotonic_ns()
        self._receive()
        held = self._wait_for_slot(ended)
        now = time.monotonic_ns()
        self._report(now, held)
        if "period_ns" not in self._join:
            self._measure(ended)
        self._marks = []
        self._began_ns = now
        self._index += 1
        self.held_ns += held
        self._announce()

    def flow(self, name: str, size: int) -> FlowPlacement:
        """Ask for the source port and DSCP of a new flow of `size` bytes that leaves this host.

        `name` is `JOB/SRC>DST`, or another name that the controller knows. Returns within the agent's
        deadline (10 ms unless it is configured otherwise), and after 0.1 s at the latest.
        """
        if not self.active or not self._connection.connect():
            return _NO_AGENT
        self._requests = number = self._requests + 1
        self._connection.send({"op": "flow", "id": number, "flow": name, "bytes": size})
        deadline = time.monotonic() + _ANSWER_S
        while (
            number not in self._answers and (left := deadline - time.monotonic()) > 0 and self._connection.up
        ):
            self._receive(left)
        return self._answers.pop(number, None) or _NO_AGENT

    def end_flow(self, name: str) -> None:
        """A flow that was asked for with `flow()` has ended."""
        self._connection.send({"op": "end", "flow": name})

    def adopt(self, flow: str, move: Callable[[int], None]) -> None:
        """Pin a queue pair of this process: `move(source_port)` is called now if the flow's port is known,
        and inside `step()` whenever the plan moves the flow.

        For mlx5 pass `functools.partial(Verbs().move, queue_pair)`, or pyverbs' Mlx5QP.modify_udp_sport.
        """
        self._movers[flow] = move
        if flow in self.placements:
            self._move(flow, self.placements[flow].source_port)

    def _announce(self) -> None:
        """Join as soon as the profile is known and there is an agent; join again after the agent was away."""
        if not self._connection.up:
            self._joined = False
            self._schedule = None
        if not self._joined and "period_ns" in self._join and self._connection.connect():
            self._connection.send(self._join)
            self._joined = self._connection.up
            self._receive(CONNECT_S)

    def _receive(self, wait_s: float = 0.0) -> None:
        for event in self._connection.receive(wait_s):
            try:
                self._handle(event)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                log.warning("polyrhythm: the agent sent an event that cannot be read: %r", error)

    def _handle(self, event: Mapping[str, Any]) -> None:
        kind = event.get("event")
        if kind == "schedule":
            self._schedule, self._error_ns = read_schedule(event)
        elif kind == "level":
            self.level = int(event["level"])
        elif kind == "flows":
            for flow, placement in read_flows(event).items():
                if self.placements.get(flow) != placement:
                    self.placements[flow] = placement
                    self._move(flow, placement.source_port)
        elif kind == "flow":
            self._answers[int(event["id"])] = FlowPlacement.read(event)
        elif kind == "error":
            log.warning("polyrhythm: the agent refuses job %s: %s", self.name, event.get("what"))

    def _move(self, flow: str, port: int) -> None:
        move = self._movers.get(flow)
        if move is None or not port:
            return
        try:
            move(port)
        except (OSError, ValueError, RuntimeError) as error:
            log.warning("polyrhythm: %s is not moved to port %d: %s", flow, port, error)

    def _wait_for_slot(self, now: int) -> int:
        """Wait until the first Up phase, which comes `lead_ms` later, is at the job's slot.

        Returns how long that was in ns.
        """
        schedule = self._schedule
        if schedule is None or not self._connection.up or schedule.period_ns <= 0:
            self._slot = Slot()
            return 0
        kept, self._last_schedule = schedule.keeps(self._last_schedule), schedule
        self._slot = next_slot(now + self._lead_ns, schedule, self._error_ns, kept=kept)
        delay = min(self._slot.delay_ns, schedule.period_ns)
        if delay > 0:
            time.sleep(delay / 1e9)
        return max(0, delay)

    def _report(self, now: int, held: int) -> None:
        if not self._joined:
            return
        slot = self._slot
        self._connection.send(
            {
                "op": "step",
                "index": self._index,
                "start_ns": self._began_ns + self._lead_ns,
                "end_ns": now + self._lead_ns,
                "communication_ns": sum(end - start for start, end in self._marks),
                "held_ns": held,
                "drift_ns": slot.drift_ns,
                "realigned": slot.realigned,
            }
        )

    def _measure(self, ended: int) -> None:
        """Note the times of an iteration. After enough of them their medians become the profile."""
        marks = [(start - self._began_ns, end - self._began_ns) for start, end in self._marks]
        self._measured.append((ended - self._began_ns, marks))
        if len(self._measured) < _WARM_UP + _MEASURED:
            return
        kept = self._measured[_WARM_UP:]
        count = int(median(len(marks) for _, marks in kept))
        alike = [(length, marks) for length, marks in kept if len(marks) == count] or kept[-1:]
        period = max(1, int(median(length for length, _ in alike)))
        phases = []
        for index in range(count):
            start = int(median(marks[index][0] for _, marks in alike))
            end = int(median(marks[index][1] for _, marks in alike))
            phases.append((start, max(end, start + 1)))
        self._measured.clear()
        if phases:
            self._lead_ns = first = phases[0][0]
            phases = [(start - first, min(end - first, period)) for start, end in phases]
        self._join["period_ns"] = period
        self._join["phases"] = [list(phase) for phase in _disjoint(phases)]


def _shared_link(name: str) -> PcieLink | None:
    """The PCIe link of that name. None without a name, or if it cannot be opened: then the job never waits
    for it."""
    if not name:
        return None
    try:
        return PcieLink(name)
    except (OSError, ValueError) as error:
        log.warning("polyrhythm: PCIe transfers do not wait for other jobs: %s", error)
        return None


def _disjoint(phases: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted phases without overlap. Medians over iterations may overlap even if no iteration's phases
    did."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(phases):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        elif end > start:
            result.append((start, end))
    return result


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
