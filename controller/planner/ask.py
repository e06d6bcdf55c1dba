# SPDX-License-Identifier: Apache-2.0
"""Calls the objects of a policy and checks their answers. A mistake in an object raises PolicyError."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, TypeVar

from controller.interleave.slot_schedule import JobSlot, SlotSchedule
from controller.interleave.timing import TimingProblem
from controller.planner.policy import Policy, PolicyError
from controller.priority.crux import RankedJob
from controller.priority.protocol import LevelProblem, Levels, RankingProblem
from controller.routing.assign import reachable
from controller.routing.fabric import UnsuitableError
from controller.routing.paths import Path, members, route_to
from controller.routing.protocol import ArrayRoutes, LeftToHash, Routes, RoutingProblem

T = TypeVar("T")


def ask_routing(policy: Policy, problem: RoutingProblem) -> Routes | LeftToHash:
    """The answer of the policy's routing. Flows of hosts without a live link are removed from it.

    Raises:
        PolicyError: the routing failed, or an answered path is no live path between the flow's hosts.
    """
    answer = _asked(policy, "routing", lambda: policy.routing.route(problem))
    if isinstance(answer, LeftToHash):
        return answer
    if not isinstance(answer, Routes):
        raise PolicyError(
            f"policy {policy.name}: the routing answered {type(answer).__name__}; legal: Routes, LEFT_TO_HASH"
        )
    if isinstance(answer, ArrayRoutes) and answer.alive:
        return answer
    flows = {f.name: f for f in problem.flows}
    paths: dict[str, Path] = {}
    for name, given in _mapping(policy, "routing", "Routes.paths", answer.paths).items():
        flow = flows.get(name)
        if flow is None:
            raise PolicyError(f"policy {policy.name}: the routing gave a path to {name!r}, which is no flow")
        if not isinstance(given, Sequence) or not all(isinstance(node, str) for node in given):
            raise PolicyError(
                f"policy {policy.name}: the routing gave flow {name} the path {given!r}; legal: the names of "
                "the nodes from host to host"
            )
        path = tuple(given)
        down = problem.failures.links
        if not (reachable(problem.topology, flow.src, down) and reachable(problem.topology, flow.dst, down)):
            continue
        if not _leads(problem, path, flow.src, flow.dst):
            raise PolicyError(
                f"policy {policy.name}: flow {name}: {' '.join(path)} is no live path from "
                f"{flow.src} to {flow.dst}"
            )
        paths[name] = path
    return Routes(paths)


def _leads(problem: RoutingProblem, path: Path, src: str, dst: str) -> bool:
    """Whether the switches' forwarding entries allow `path` from `src` to `dst`."""
    topology, table = problem.topology, problem.forwarding
    if len(path) < 3 or (path[0], path[-1]) != (src, dst) or path[1] != topology.host[src].leaf:
        return False
    for switch, toward in pairwise(path[1:]):
        route = route_to(topology, table, switch, dst) if switch in table else None
        if route is None:
            return False
        ports = topology.ports[switch]
        if all(ports[p].node != toward for p in members(table, switch, route)):
            return False
    return True


def ask_ranking(policy: Policy, problem: RankingProblem) -> tuple[RankedJob, ...]:
    """The order of the jobs, highest priority first.

    Raises:
        PolicyError: the priority failed, or its answer does not name each job once, or a number is not legal.
    """
    ranked = _asked(policy, "priority", lambda: tuple(policy.priority.rank(problem)))
    for job in ranked:
        if not isinstance(job, RankedJob):
            raise PolicyError(
                f"policy {policy.name}: the priority ranked {job!r}; legal: a RankedJob for each job"
            )
        numbers = (job.correction, job.priority, 0.0 if job.intensity is None else job.intensity)
        if not all(isinstance(n, Real) and not math.isnan(n) for n in numbers):
            raise PolicyError(
                f"policy {policy.name}: the priority gave job {job.name} the intensity {job.intensity}, "
                f"correction {job.correction} and priority {job.priority}; legal: numbers, and None for the "
                "intensity of a job that sends nothing"
            )
    if sorted(str(r.name) for r in ranked) != sorted(j.name for j in problem.jobs):
        raise PolicyError(f"policy {policy.name}: the priority must rank every job once, and no other")
    return ranked


def ask_levels(policy: Policy, problem: LevelProblem) -> Levels:
    """The level of each job.

    Raises:
        PolicyError: the priority failed, or a level is missing or not legal.
    """
    levels = _asked(policy, "priority", lambda: policy.priority.assign_levels(problem))
    if not isinstance(levels, Levels):
        raise PolicyError(
            f"policy {policy.name}: the priority answered {type(levels).__name__}; legal: Levels"
        )
    most = len(problem.ranked) if policy.priority.exceeds_switch_levels else problem.most
    given = _mapping(policy, "priority", "Levels.level", levels.level)
    whole: dict[str, int] = {}
    for job in problem.ranked:
        level = given.get(job.name)
        # A whole number of numpy is legal too, but JSON does not know its type.
        number = int(level) if isinstance(level, Integral) else -1
        if not 0 <= number < max(most, 1):
            raise PolicyError(
                f"policy {policy.name}: the priority gave job {job.name} the level {level}; legal: 0 to "
                f"{max(most, 1) - 1}"
            )
        whole[job.name] = number
    return replace(levels, level=whole)


def ask_explanation(policy: Policy, job: RankedJob) -> str:
    """What gives a job its place in the order. Raises PolicyError if the priority failed."""
    return str(_asked(policy, "priority", lambda: policy.priority.explain(job)))


def ask_schedule(policy: Policy, problem: TimingProblem) -> SlotSchedule:
    """The slots of the jobs.

    Raises:
        PolicyError: the timing failed, or a slot is not legal.
    """
    schedule = _asked(policy, "timing", lambda: policy.timing.schedule(problem))
    if not isinstance(schedule, SlotSchedule):
        raise PolicyError(
            f"policy {policy.name}: the timing answered {type(schedule).__name__}; legal: SlotSchedule"
        )
    given = _mapping(policy, "timing", "SlotSchedule.slots", schedule.slots)
    slots = {job: _slot(policy, problem, job, slot) for job, slot in given.items()}
    reasons = _mapping(policy, "timing", "SlotSchedule.reasons", schedule.reasons)
    fits, loops = _asked(policy, "timing", lambda: (tuple(schedule.fits), tuple(schedule.loops)))
    return SlotSchedule(slots, reasons, fits, loops)


def _slot(policy: Policy, problem: TimingProblem, job: str, slot: object) -> JobSlot:
    """A slot in whole numbers of Python."""
    if not isinstance(slot, JobSlot) or not all(
        isinstance(n, Integral) for n in (slot.period_ns, slot.shift_ns, slot.group)
    ):
        raise PolicyError(
            f"policy {policy.name}: the timing gave job {job} the slot {slot!r}; legal: a JobSlot with a "
            "whole period_ns, shift_ns and group"
        )
    if job not in problem.periods or slot.period_ns <= 0 or not 0 <= slot.shift_ns < slot.period_ns:
        raise PolicyError(
            f"policy {policy.name}: the timing gave job {job} the shift {slot.shift_ns} of period "
            f"{slot.period_ns} ns; legal: a known job, 0 <= shift < period"
        )
    if slot.realign is not None and not (isinstance(slot.realign, Real) and slot.realign >= 0):
        raise PolicyError(
            f"policy {policy.name}: the timing gave job {job} the realign threshold {slot.realign}; legal: "
            "None, or a part of the period from 0"
        )
    return replace(slot, period_ns=int(slot.period_ns), shift_ns=int(slot.shift_ns), group=int(slot.group))


def _mapping(policy: Policy, part: str, field: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PolicyError(
            f"policy {policy.name}: the {part} answered {field} of type {type(value).__name__}; legal: a "
            "mapping by name"
        )
    return value


def _asked(policy: Policy, part: str, question: Callable[[], T]) -> T:
    try:
        return question()
    except PolicyError:
        raise
    except UnsuitableError as error:
        raise PolicyError(f"policy {policy.name}: {error}") from None
    except Exception as error:
        words = " ".join(str(error).split())
        name = type(getattr(policy, part)).__name__
        raise PolicyError(
            f"policy {policy.name}: {part} {name} failed: {type(error).__name__}: {words}"
        ) from error
