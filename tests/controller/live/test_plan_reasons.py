# SPDX-License-Identifier: Apache-2.0
"""The reasons of plans: what had changed since the plan before, and iterations before it."""

from dataclasses import replace

from fake_source import TOPOLOGY
from operated_core import operated_core

from controller.live.messages import WorkerJoined
from controller.live.plan_causes import LEARNED, MISROUTED, rollback_to
from controller.live.plan_reasons import NOT_KNOWN, UNCHANGED, PlanBasis, PlanReasons, changes
from controller.model.job import Flow, Job, Phase, Profile
from controller.planner import POLICIES, plan
from controller.southbound.table_writes import FabricCondition

JOB = Job(
    "x", "VGG19", 2, ("h1", "h2"), Profile(10, (Phase(0, 4, 1),)), 0.0, (Flow("x/a", "x", "h1", "h2", 9),)
)
CABLE = min(c for c in TOPOLOGY.cables if set(c) <= TOPOLOGY.switch.keys())
WHOLE = FabricCondition()
ECMP, CRUX = POLICIES["ecmp"].reference, POLICIES["crux"].reference


def basis(*jobs: Job, policy=ECMP, condition=WHOLE, **breaches: int) -> PlanBasis:
    return PlanBasis({job.name: job for job in jobs}, breaches, condition, policy)


def test_each_change_is_named() -> None:
    down = FabricCondition(frozenset({CABLE}))
    drained = FabricCondition(frozenset({CABLE}), frozenset(), frozenset({CABLE}))
    name = "-".join(CABLE)
    slower = replace(JOB, profile=Profile(20, JOB.profile.phases))
    for before, after, words in (
        (basis(), basis(JOB), ["arrived: x"]),
        (basis(JOB), basis(), ["left: x"]),
        (basis(JOB), basis(slower), ["new profile: x"]),
        (basis(JOB), basis(replace(JOB, gpus=4)), ["described anew: x"]),
        (basis(JOB), basis(JOB, x=1), ["below its floor: x"]),
        (basis(JOB, x=1), basis(JOB, x=1), []),
        (basis(JOB), basis(JOB, policy=CRUX), ["policy crux was chosen"]),
        (basis(condition=down), basis(JOB), [f"no longer down: {name}", "arrived: x"]),
        (basis(), basis(condition=down), [f"down: {name}"]),
        (basis(), basis(condition=drained), [f"drained: {name}"]),
        (basis(condition=drained), basis(condition=down), [f"down: {name}", f"no longer drained: {name}"]),
    ):
        assert list(changes(before, after)) == words
    many = [replace(JOB, name=f"j{number}") for number in range(5)]
    assert list(changes(basis(), basis(*many))) == ["arrived: j0, j1, j2 and 2 more"]


def test_a_plan_has_a_reason_and_jobs_their_iterations_before_it() -> None:
    core, _ = operated_core()
    reasons = PlanReasons(core)
    reasons.look()
    assert reasons.of(1) == (None, NOT_KNOWN)
    core.now_ns = 7
    core.adopt(plan(core.input_now()))
    assert core.plan is not None
    reasons.look()
    made_ns, reason = reasons.of(core.plan.version)
    assert (made_ns, reason) == (7, UNCHANGED)
    assert reasons.before_ms == {}


def test_a_plan_without_changes_names_what_asked_for_it() -> None:
    core, _ = operated_core()
    core.handle(WorkerJoined("h1", 0, JOB))
    core.handle(WorkerJoined("h2", 1, JOB))
    reasons = PlanReasons(core)

    def adopted() -> str:
        made = plan(core.plan_input())
        core.causes.add(MISROUTED)
        core.adopt(made)
        reasons.look()
        return reasons.of(made.version)[1]

    assert adopted() == "arrived: x", "a change says more than the cause"
    core.causes.add(LEARNED)
    assert adopted() == f"{MISROUTED}; {LEARNED}", "what comes while a plan is made is of the next one"
    core.causes.add(rollback_to(1))
    assert adopted() == "rollback to plan 1", "a rollback is told before everything else"


def test_the_plan_of_an_earlier_controller_is_not_explained_by_the_present_jobs() -> None:
    core, _ = operated_core()
    core.handle(WorkerJoined("h1", 0, JOB))
    core.handle(WorkerJoined("h2", 1, JOB))
    core.adopt(plan(core.plan_input()))
    assert core.plan is not None
    reasons = PlanReasons(core)
    reasons.look()
    assert reasons.of(core.plan.version) == (None, NOT_KNOWN)
