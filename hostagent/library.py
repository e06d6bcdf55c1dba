# SPDX-License-Identifier: Apache-2.0
"""What training code uses: `with polyrhythm_job(...) as job: ... job.step()`.

It speaks to the agent of its host through a Unix socket, in the process of the job and on its thread, and
never breaks the job: without an agent, or when the agent ends, every call returns at once and holds nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import TracebackType
from typing import Any

from hostagent.agentlink import CONNECT_S, AgentLink
from hostagent.job import LATE_TOLERANCE, UNPLANNED, Schedule, Slot, next_slot
from hostagent.pcie import PcieLink

log = logging.getLogger(__name__)

DEFAULT_SOCKET = "/run/polyrhythm/agent.sock"
PATIENCE_S = 1.0
"""The longest that data waits for its turn on a PCIe link: a process that hangs with it stops nobody."""
_ANSWER_S = 0.1
_MEASURED = 5
"""Iterations measured before the job is announced, where its profile is not given."""
_FIRST_LEFT_OUT = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a flow goes. `by` is the agent's reason, or "nobody" when there is no agent; then
    `source_port` is 0: leave the choice to the NIC."""

    source_port: int
    dscp: int
    by: str


class polyrhythm_job:  # noqa: N801 - used as a word of the language, like `open`
    """A training job on this host; use it as a context manager and call `step()` once an iteration.

    `hosts` are the names of the job's hosts as the fabric knows them, in the order of their ranks, `rank` is
    this one's place. Under torchrun only the first process of a host speaks (LOCAL_RANK 0); `rank` is
    its GROUP_RANK, `gpus` WORLD_SIZE, and `hosts` may come from POLYRHYTHM_HOSTS (names with commas between).
    `period_ms` and `phases_ms`, (start, end) of each Up phase counted from the first one's start, give the
    profile of an iteration alone; `lead_ms` is how long after `step()` the first Up phase begins. Without
    them the first five iterations are measured, by `communicating()` where the code says when it
    communicates. `bytes_per_flow` is what each flow carries in an iteration. `pcie` names the PCIe link that
    this process shares with others of the host (or POLYRHYTHM_PCIE does), for `moving()`; by its rate
    `pcie_gbps` the plan knows that jobs meet there.
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
        agent: str = "",
        pcie: str = "",
        pcie_gbps: float = 0.0,
    ) -> None:
        environment = os.environ
        named = [n for n in environment.get("POLYRHYTHM_HOSTS", "").split(",") if n]
        self.name = name
        self.active = environment.get("LOCAL_RANK", "0") == "0"
        self.places: dict[str, Place] = {}
        self.held_ns = 0
        self.level = UNPLANNED
        self._join: dict[str, Any] = {
            "op": "join",
            "job": name,
            "hosts": list(hosts) or named or [socket.gethostname()],
            "rank": _number(environment.get("GROUP_RANK", "0")) if rank is None else rank,
            "model": model,
            "gpus": gpus or _number(environment.get("WORLD_SIZE", "0")),
            "flops_per_iteration": float(flops_per_iteration),
            "bytes_per_flow": bytes_per_flow,
        }
        if period_ms:
            self._join["period_ns"] = int(period_ms * 1e6)
            self._join["phases"] = [[int(start * 1e6), int(end * 1e6)] for start, end in phases_ms]
        self._lead_ns = int(lead_ms * 1e6)
        self._link = AgentLink(agent or environment.get("POLYRHYTHM_AGENT", DEFAULT_SOCKET))
        self._joined = False
        self._schedule: Schedule | None = None
        self._kept: Schedule | None = None
        self._error_ns = 0
        self._index = 0
        self._began_ns = 0
        self._slot = Slot()
        self._marks: list[tuple[int, int]] = []
        self._measured: list[tuple[int, list[tuple[int, int]]]] = []
        self._movers: dict[str, Callable[[int], None]] = {}
        self._answers: dict[int, Place] = {}
        self._asked = 0
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
        self._link.close()
        if self._pcie is not None:
            self._pcie.close()

    @property
    def connected(self) -> bool:
        """Whether an agent knows of this job now."""
        return self._link.up and self._joined

    @contextlib.contextmanager
    def communicating(self) -> Iterator[None]:
        """Mark an Up phase: what is inside communicates."""
        began = time.monotonic_ns()
        try:
            yield
        finally:
            self._marks.append((began, time.monotonic_ns()))

    @contextlib.contextmanager
    def moving(self) -> Iterator[None]:
        """What is inside moves a piece of data over the PCIe link: it begins when no job of a higher level in
        the plan wants the link, waits for that PATIENCE_S at most, and not at all without an agent or a link.

        Long transfers are done in pieces of a few milliseconds, each in a turn of its own.
        """
        if self.active and self._link.up:
            self._hear()
        if self._pcie is None or not self._link.up:
            yield
            return
        with self._pcie.turn(self.level, PATIENCE_S):
            yield

    def step(self) -> None:
        """An iteration is over and the next may begin: report, and wait for the job's slot if it has one.

        Waits at most one period, and not at all without an agent.
        """
        if not self.active:
            return
        ended = time.monotonic_ns()
        self._hear()
        held, self._slot = self._hold(ended), self._slot
        now = time.monotonic_ns()
        self._report(now, held)
        if "period_ns" not in self._join:
            self._measure(ended)
        self._marks = []
        self._began_ns = now
        self._index += 1
        self.held_ns += held
        self._announce()

    def flow(self, name: str, size: int) -> Place:
        """A new flow of this host, `JOB/SRC>DST` or another name the controller knows, of `size` bytes.

        Answers within the agent's deadline, 10 ms unless it is told otherwise, and in any case in 0.1 s.
        """
        if not self.active or not self._link.connect():
            return Place(0, 0, "nobody")
        self._asked = number = self._asked + 1
        self._link.send({"op": "flow", "id": number, "flow": name, "bytes": size})
        deadline = time.monotonic() + _ANSWER_S
        while number not in self._answers and (left := deadline - time.monotonic()) > 0 and self._link.up:
            self._hear(left)
        return self._answers.pop(number, None) or Place(0, 0, "nobody")

    def end_flow(self, name: str) -> None:
        """A flow that was asked for is over."""
        self._link.send({"op": "end", "flow": name})

    def adopt(self, flow: str, move: Callable[[int], None]) -> None:
        """Pin a queue pair of this process: `move(source_port)` is called now, if the place is known, and
        whenever the plan moves the flow, from inside `step()`. For mlx5: `hostagent.nic.verbs.Verbs().move`,
        or pyverbs' Mlx5QP.modify_udp_sport."""
        self._movers[flow] = move
        if flow in self.places:
            self._move(flow, self.places[flow].source_port)

    # -- inside

    def _announce(self) -> None:
        """Join, once the profile is known and the agent there; again after the agent was away."""
        if not self._link.up:
            self._joined = False
            self._schedule = None
        if not self._joined and "period_ns" in self._join and self._link.connect():
            self._link.send(self._join)
            self._joined = self._link.up
            self._hear(CONNECT_S)

    def _hear(self, wait_s: float = 0.0) -> None:
        for said in self._link.receive(wait_s):
            try:
                self._take(said)
            except (KeyError, TypeError, ValueError) as error:
                log.warning("polyrhythm: the agent says what is not understood: %s", error)

    def _take(self, said: Mapping[str, Any]) -> None:
        event = said.get("event")
        if event == "schedule":
            realign = float(said.get("realign") or LATE_TOLERANCE)
            slot, period, once = int(said["slot_ns"]), int(said["period_ns"]), bool(said.get("once", False))
            self._schedule = Schedule(slot, 0, period, realign, once)
            self._error_ns = int(said["error_ns"])
        elif event == "level":
            self.level = int(said["level"])
        elif event == "flows":
            for flow, place in said["flows"].items():
                fresh = Place(int(place["source_port"]), int(place["dscp"]), "controller")
                if self.places.get(flow) != fresh:
                    self.places[flow] = fresh
                    self._move(flow, fresh.source_port)
        elif event == "flow":
            place = Place(int(said["source_port"]), int(said["dscp"]), str(said["by"]))
            self._answers[int(said["id"])] = place
        elif event == "error":
            log.warning("polyrhythm: the agent refuses job %s: %s", self.name, said.get("what"))

    def _move(self, flow: str, port: int) -> None:
        move = self._movers.get(flow)
        if move is None or not port:
            return
        try:
            move(port)
        except (OSError, ValueError, RuntimeError) as error:
            log.warning("polyrhythm: %s is not moved to port %d: %s", flow, port, error)

    def _hold(self, now: int) -> int:
        """Wait for the slot, less what is computed before the first Up phase; how long that was in ns."""
        schedule = self._schedule
        if schedule is None or not self._link.up or schedule.period_ns <= 0:
            self._slot = Slot()
            return 0
        kept, self._kept = schedule.keeps(self._kept), schedule
        self._slot = next_slot(now + self._lead_ns, schedule, self._error_ns, kept=kept)
        delay = min(self._slot.delay_ns, schedule.period_ns)
        if delay > 0:
            time.sleep(delay / 1e9)
        return max(0, delay)

    def _report(self, now: int, held: int) -> None:
        if not self._joined:
            return
        slot = self._slot
        self._link.send(
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
        """Keep an iteration; when there are enough, their medians are the profile."""
        marks = [(start - self._began_ns, end - self._began_ns) for start, end in self._marks]
        self._measured.append((ended - self._began_ns, marks))
        if len(self._measured) < _FIRST_LEFT_OUT + _MEASURED:
            return
        kept = self._measured[_FIRST_LEFT_OUT:]
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
    """The PCIe link of that name; None without one, or where it cannot be had: the job takes no turns."""
    if not name:
        return None
    try:
        return PcieLink(name)
    except (OSError, ValueError) as error:
        log.warning("polyrhythm: no turns on PCIe link %r: %s", name, error)
        return None


def _disjoint(phases: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted phases without overlap: medians of several marks may cross."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(phases):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        elif end > start:
            result.append((start, end))
    return result


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
