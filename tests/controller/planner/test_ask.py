# SPDX-License-Identifier: Apache-2.0
"""What the objects of a policy answer: every mistake is one line, and numbers of numpy are legal."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pytest
from plan_rig import G, job

from controller.priority.priorities import Crux
from polyrhythm import (
    JobSlot,
    Levels,
    PlanInput,
    Policy,
    PolicyError,
    Priority,
    Routes,
    Routing,
    SlotSchedule,
    Timing,
    leaf_spine,
    plan,
)

Answer = Callable[[Any], Any]
FABRIC = leaf_spine(2, 1, 4, host_bps=G, fabric_bps=G)
JOBS = (job("a", ["h1", "h5"], 260, 170), job("b", ["h2", "h6"], 260, 190))


def fails(problem: object) -> Any:
    raise RuntimeError("two\nlines")


@dataclass(frozen=True)
class GivenRoutes(Routing):
    answer: Answer

    def route(self, problem: Any) -> Any:
        return self.answer(problem)


@dataclass(frozen=True)
class GivenOrder(Priority):
    order: Answer = Crux().rank
    answer: Answer = lambda problem: Levels({j.name: 0 for j in problem.ranked})
    words: Answer = lambda job: "given"
    levels: Any = 6

    def rank(self, problem: Any) -> Any:
        return self.order(problem)

    def assign_levels(self, problem: Any) -> Any:
        return self.answer(problem)

    def explain(self, job: Any) -> str:
        return str(self.words(job))


@dataclass(frozen=True)
class GivenSlots(Timing):
    answer: Answer
    sender: Any = "job"

    def schedule(self, problem: Any) -> Any:
        return self.answer(problem)


def routes(path: object) -> Answer:
    return lambda problem: Routes({f.name: path for f in problem.flows})  # type: ignore[misc]


def levels(level: object) -> Answer:
    return lambda problem: Levels({j.name: level for j in problem.ranked})  # type: ignore[misc]


def slots(**changes: Any) -> Answer:
    def answer(problem: Any) -> SlotSchedule:
        slot = {"period_ns": 260_000_000, "shift_ns": 0, "group": 0} | changes
        return SlotSchedule({j: JobSlot(**slot) for j in problem.order}, {}, (), ())

    return answer


def planned(policy: Policy) -> Any:
    return plan(PlanInput(FABRIC, JOBS, policy, 0))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (fails, "policy x: routing GivenRoutes failed: RuntimeError: two lines"),
        (lambda p: None, "the routing answered NoneType; legal: Routes, LEFT_TO_HASH"),
        (lambda p: Routes([1]), "Routes.paths of type list"),  # type: ignore[arg-type]
        (routes(5), "the path 5; legal: the names of the nodes"),
        (routes(("h1", ["leaf1"], "h5")), "legal: the names of the nodes"),
        (routes(("h1", "leaf1", "h5")), "flow a/h1>h5: h1 leaf1 h5 is no live path from h1 to h5"),
        (lambda p: Routes({"c": ("h1", "h5")}), "a path to 'c', which is no flow"),
        (lambda p: p.routes(np.full(len(p.flows), 99)), "routing GivenRoutes failed: IndexError"),
    ],
)  # fmt: skip
def test_routes(answer: Answer, words: str) -> None:
    refused(Policy("x", routing=GivenRoutes(answer)), words)


@pytest.mark.parametrize(
    ("priority", "words"),
    [
        (GivenOrder(fails), "priority GivenOrder failed: RuntimeError: two lines"),
        (GivenOrder(lambda p: None), "priority GivenOrder failed: TypeError"),
        (GivenOrder(lambda p: ["a", "b"]), "the priority ranked 'a'; legal: a RankedJob for each job"),
        (GivenOrder(lambda p: Crux().rank(p)[:1]), "must rank every job once, and no other"),
        (GivenOrder(answer=fails), "priority GivenOrder failed: RuntimeError: two lines"),
        (GivenOrder(answer=lambda p: None), "the priority answered NoneType; legal: Levels"),
        (GivenOrder(answer=lambda p: Levels([1])), "Levels.level of type list"),  # type: ignore[arg-type]
        (GivenOrder(answer=levels("top")), "job a the level top; legal: 0 to 5"),
        (GivenOrder(answer=levels(1.5)), "job a the level 1.5; legal: 0 to 5"),
        (GivenOrder(answer=levels(6)), "job a the level 6; legal: 0 to 5"),
        (GivenOrder(answer=lambda p: Levels({})), "job a the level None; legal: 0 to 5"),
        (GivenOrder(words=fails), "priority GivenOrder failed: RuntimeError: two lines"),
    ],
)  # fmt: skip
def test_order_and_levels(priority: Priority, words: str) -> None:
    refused(Policy("x", priority=priority), words)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (fails, "timing GivenSlots failed: RuntimeError: two lines"),
        (lambda p: None, "the timing answered NoneType; legal: SlotSchedule"),
        (lambda p: SlotSchedule([1], {}, (), ()), "SlotSchedule.slots of type list"),  # type: ignore[arg-type]
        (lambda p: SlotSchedule({}, None, (), ()), "SlotSchedule.reasons of type"),  # type: ignore[arg-type]
        (lambda p: SlotSchedule({"a": 3}, {}, (), ()), "job a the slot 3"),  # type: ignore[dict-item]
        (lambda p: SlotSchedule({"c": JobSlot(5, 0, 0)}, {}, (), ()), "job c the shift 0 of period 5 ns"),
        (slots(shift_ns=260_000_000), "legal: a known job, 0 <= shift < period"),
        (slots(period_ns=float("nan")), "legal: a JobSlot with a whole period_ns, shift_ns and group"),
        (slots(shift_ns=0.5), "legal: a JobSlot with a whole period_ns, shift_ns and group"),
        (slots(group=[1]), "legal: a JobSlot with a whole period_ns, shift_ns and group"),
        (slots(once=True, realign="late"), "the realign threshold late"),
    ],
)  # fmt: skip
def test_slots(answer: Answer, words: str) -> None:
    refused(Policy("x", timing=GivenSlots(answer)), words)


def refused(policy: Policy, words: str) -> None:
    with pytest.raises(PolicyError) as caught:
        planned(policy)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_of_numpy_and_lists_of_nodes_are_legal() -> None:
    def listed(problem: Any) -> Routes:
        first = problem.routes(np.zeros(len(problem.flows), dtype=np.int64))
        return Routes({name: list(path) for name, path in first.paths.items()})  # type: ignore[misc]

    timing = GivenSlots(slots(period_ns=np.int64(260_000_000), shift_ns=np.int32(7), group=np.int8(1)))
    made = planned(Policy("x", GivenRoutes(listed), GivenOrder(answer=levels(np.int64(3))), timing))
    assert made.flows["a/h1>h5"].path == ("h1", "leaf1", "spine1", "leaf2", "h5")
    assert (made.jobs["a"].level, made.jobs["a"].shift_ns) == (3, 7)
    assert json.loads(json.dumps(asdict(made)))["jobs"]["b"]["period_ns"] == 260_000_000


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"priority": GivenOrder(levels="six")}, "levels is 'six'; legal: a whole number from 1"),
        ({"timing": GivenSlots(fails, sender="tcp")}, "sender is 'tcp'; legal: job, dcqcn, reno"),
    ],
)
def test_options_are_checked_when_the_policy_is_made(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        Policy("x", **parts)
