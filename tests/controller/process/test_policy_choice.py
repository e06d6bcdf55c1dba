# SPDX-License-Identifier: Apache-2.0
"""Another policy on a running controller: what is refused, what follows, and what a restart keeps."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest
from control_rig import job

from controller.agents.translate import WelcomeTerms
from controller.live.core import Core
from controller.live.earlier_state import restore
from controller.live.measuring import MeasureSettings
from controller.live.messages import SendMeasure, WorkerJoined
from controller.live.operator_commands import ChosenPolicy
from controller.live.saved_state import SavedState, read_back
from controller.live.settings import CoreSettings
from controller.model.traffic import TRAFFIC_CLASSES
from controller.northbound.problems import OperationError
from controller.planner import POLICIES, plan
from controller.process.policy_choice import RunningPolicy, policy_with
from controller.store.interface import LoadedState
from controller.store.records import encode
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=10**8, fabric_bps=10**8)


JOBS = (job("a", "h1", "h3"), job("b", "h2", "h4"))


@dataclass
class Agents:
    """The terms that new sessions are told."""

    terms: WelcomeTerms


def new_core(policy="ecmp", jobs=JOBS):
    measure = MeasureSettings(window_ns=5_000_000_000)
    core = Core(CoreSettings(TOPOLOGY, POLICIES[policy], 1, False, 0, measure=measure))
    for member in jobs:
        for rank, host in enumerate(member.hosts):
            core.handle(WorkerJoined(host, rank, member))
    return core


def choice_of(core):
    agents = Agents(WelcomeTerms(core.settings.policy.name, TRAFFIC_CLASSES, 0))
    return RunningPolicy(core, core.handle, agents), agents


def planned(core):
    core.adopt(plan(core.plan_input()))
    return core.take_effects()


def test_another_policy_makes_the_next_plan_and_measures_what_it_needs() -> None:
    core = new_core()
    assert not [e for e in planned(core) if isinstance(e, SendMeasure)]
    choice, agents = choice_of(core)
    assert choice.setting().in_force
    asyncio.run(choice.choose("polyrhythm", {"max_slowdown": 2, "priority.levels": 3}))
    assert not choice.setting().in_force
    assert core.wants_plan
    assert (agents.terms.policy, agents.terms.profiles) == ("polyrhythm", True)
    told = planned(core)
    assert core.plan.policy.name == "polyrhythm"
    assert dict(core.plan.policy.options)["priority.levels"] == 3
    assert {e.job for e in told if isinstance(e, SendMeasure)} == {"a"}, "the first job is measured"
    setting = choice.setting()
    assert (setting.in_force, setting.chosen, setting.start.name) == (True, True, "ecmp")

    # Back: nobody is measured any more.
    choice.reset()
    told = planned(core)
    assert [e.bin_ns for e in told if isinstance(e, SendMeasure)] == [0, 0]
    assert core.measuring.profiled is None
    assert (core.plan.policy.name, choice.setting().chosen, agents.terms.profiles) == ("ecmp", False, False)
    assert not core.plan_input().policy.depends_on_jobs


def test_the_same_policy_again_changes_nothing() -> None:
    core = new_core()
    planned(core)
    choice, _ = choice_of(core)
    asyncio.run(choice.choose("crux", {}))
    planned(core)
    asyncio.run(choice.choose("crux", {}))
    assert not core.wants_plan


def test_a_policy_that_looks_ahead_begins_to_and_ends() -> None:
    core = new_core("polyrhythm")
    choice, _ = choice_of(core)
    asyncio.run(choice.choose("polyrhythm", {"routing.lookahead": True}))
    assert core.settings.policy.routing.lookahead
    before = core.lookahead
    choice.reset()
    assert core.lookahead is not before


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("best", {}, "'best' is no policy; legal: "),
        ("package.module:NAME", {}, "is no policy"),
        ("crux", {"levels": "many"}, "levels is 'many': Expected `int`, got `str`"),
        ("crux", {"levels": 0}, "levels must be at least 1, not 0"),
        ("crux", {"levels": True}, "levels"),
        ("crux", {"nothing": 1}, "has no option nothing; its options: "),
        ("crux", {"a.b.c": 1}, "has no option a.b.c"),
        ("crux", {"priority": "x"}, "has no option priority"),
        ("ecmp", {"max_slowdown": 2}, "only a policy with the joint search can keep it"),
        ("polyrhythm", {"max_slowdown": "x"}, "max_slowdown is 'x'; legal: None, or a number from 1"),
        ("polyrhythm", {"timing.sender": "x"}, "sender"),
    ],
)
def test_what_cannot_be_is_refused(name, options, says) -> None:
    with pytest.raises(OperationError, match=says) as caught:
        policy_with(name, options)
    assert caught.value.code == 409


def test_every_registered_policy_is_listed_and_those_for_the_simulator_are_refused() -> None:
    choice, _ = choice_of(new_core(jobs=()))
    installed = {found.name: found for found in asyncio.run(choice.installed())}
    assert installed.keys() == set(POLICIES)
    for name, found in installed.items():
        assert found.policy is not None
        if found.simulator_only:
            with pytest.raises(OperationError, match="runs in the simulator only"):
                policy_with(name, {})


def test_a_chosen_policy_outlasts_a_restart_and_its_own_end() -> None:
    core = new_core()
    planned(core)
    saved = SavedState(core, "boot")
    choice, _ = choice_of(core)
    asyncio.run(choice.choose("crux", {"levels": 4}))
    records = {}
    for (kind, key), value in saved.change(core.plan).records.items():
        records.setdefault(kind, {})[key] = encode(value)
    earlier = read_back(LoadedState(records), None, "boot")
    later = new_core(jobs=())
    restore(later, earlier)
    assert later.settings.policy == POLICIES["crux"].with_options({"levels": 4})
    assert later.start_policy.name == "ecmp"
    assert later.chosen_policy == ChosenPolicy("crux", (("levels", 4),))
    gone = new_core(jobs=())
    restore(gone, replace(earlier, policy=ChosenPolicy("gone")))
    assert gone.settings.policy.name == "ecmp"
    choice.reset()
    removed = saved.change(core.plan).records
    assert {key: value for (_, key), value in removed.items() if key == "policy"} == {"policy": None}
