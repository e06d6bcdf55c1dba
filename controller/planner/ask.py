# SPDX-License-Identifier: Apache-2.0
"""Asks the objects of a policy, and checks what they answer: a mistake in one is a message, not a crash."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

from controller.interleave.slot_schedule import SlotSchedule
from controller.interleave.timing import TimingProblem
from controller.planner.policy import Policy, PolicyError
from controller.priority.crux import RankedJob
from controller.priority.protocol import LevelProblem, Levels, RankingProblem
from controller.routing.assign import reachable
from controller.routing.fabric import UnsuitableError
from controller.routing.paths import Path, members, route_to
from controller.routing.protocol import LeftToHash, Routes, RoutingProblem

T = TypeVar("T")


def ask_routing(policy: Policy, problem: RoutingProblem) -> Routes | LeftToHash:
    """The routing's answer. Flows whose host is cut off are left out of it.

    Raises:
        PolicyError: the routing failed, or a path is no path of its flow in the live fabric.
    """
    answer = _asked(policy, "routing", lambda: policy.routing.route(problem))
    if isinstance(answer, LeftToHash):
        return answer
    if not isinstance(answer, Routes):
        raise PolicyError(
            f"policy {policy.name}: the routing answered {type(answer).__name__}; legal: Routes, LEFT_TO_HASH"
        )
    flows = {f.name: f for f in problem.flows}
    paths: dict[str, Path] = {}
    for name, path in answer.paths.items():
        flow = flows.get(name)
        if flow is None:
            raise PolicyError(f"policy {policy.name}: the routing gave a path to {name!r}, which is no flow")
        down = problem.failures.links
        if not (reachable(problem.topology, flow.src, down) and reachable(problem.topology, flow.dst, down)):
            continue
        if not _leads(problem, path, flow.src, flow.dst):
            raise PolicyError(
                f"policy {policy.name}: flow {name}: {' '.join(map(str, path))} is no live path from "
                f"{flow.src} to {flow.dst}"
            )
        paths[name] = path
    return Routes(paths)


def _leads(problem: RoutingProblem, path: Path, src: str, dst: str) -> bool:
    """Whether the switches' entries allow a path between two hosts."""
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
    """The order of the jobs. Raises PolicyError if the priority failed, or lost or invented a job."""
    ranked = tuple(_asked(policy, "priority", lambda: policy.priority.rank(problem)))
    if sorted(getattr(r, "name", "") for r in ranked) != sorted(j.name for j in problem.jobs):
        raise PolicyError(f"policy {policy.name}: the priority must rank every job once, and no other")
    return ranked


def ask_levels(policy: Policy, problem: LevelProblem) -> Levels:
    """The jobs' levels. Raises PolicyError if the priority failed, or a level is missing or not legal."""
    levels = _asked(policy, "priority", lambda: policy.priority.assign_levels(problem))
    if not isinstance(levels, Levels):
        raise PolicyError(
            f"policy {policy.name}: the priority answered {type(levels).__name__}; legal: Levels"
        )
    most = len(problem.ranked) if policy.priority.exceeds_switch_levels else problem.most
    for job in problem.ranked:
        level = levels.level.get(job.name)
        if level is None or not 0 <= level < max(most, 1):
            raise PolicyError(
                f"policy {policy.name}: the priority gave job {job.name} the level {level}; legal: 0 to "
                f"{max(most, 1) - 1}"
            )
    return levels


def ask_schedule(policy: Policy, problem: TimingProblem) -> SlotSchedule:
    """The slots. Raises PolicyError if the timing failed, or a slot is not legal."""
    schedule = _asked(policy, "timing", lambda: policy.timing.schedule(problem))
    if not isinstance(schedule, SlotSchedule):
        raise PolicyError(
            f"policy {policy.name}: the timing answered {type(schedule).__name__}; legal: SlotSchedule"
        )
    for job, slot in schedule.slots.items():
        if job not in problem.periods or slot.period_ns <= 0 or not 0 <= slot.shift_ns < slot.period_ns:
            raise PolicyError(
                f"policy {policy.name}: the timing gave job {job} the shift {slot.shift_ns} of period "
                f"{slot.period_ns} ns; legal: a known job, 0 <= shift < period"
            )
    return schedule


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
