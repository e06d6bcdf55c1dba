# SPDX-License-Identifier: Apache-2.0
"""What agents hear of a job's time and sender: shifted once or held, thresholds, MLTCP where NICs can."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control_rig import RATE_BPS, job

from controller.agents.translate import WelcomeTerms, to_agent
from controller.live.core import Core
from controller.live.messages import AgentUp, SendSchedule, WorkerJoined, WorkerLeft
from controller.live.settings import CoreSettings
from controller.model import TRAFFIC_CLASSES, Phase, Profile
from controller.planner import POLICIES, plan
from hostagent.host import EmulatedHost
from topo.generate import leaf_spine

MS = 1_000_000
TOPOLOGY = leaf_spine(2, 1, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
TERMS = WelcomeTerms("x", TRAFFIC_CLASSES, 10_000, realign=0.07)


def two_jobs(policy: str, ups: tuple[int, int], *, mltcp: bool = False) -> Core:
    """A controller's core with two jobs of 287 ms on one link, not planned for yet."""
    core = Core(CoreSettings(TOPOLOGY, POLICIES[policy], 1, False, 10_000))
    for host in TOPOLOGY.host:
        core.handle(AgentUp(host, "udp", mltcp=mltcp))
    for (name, hosts), up in zip((("a", ("h1", "h3")), ("b", ("h2", "h4"))), ups, strict=True):
        profile = Profile(287 * MS, (Phase(0, up * MS, RATE_BPS),))
        member = replace(job(name, *hosts), profile=profile)
        for rank, host in enumerate(hosts):
            core.handle(WorkerJoined(host, rank, member))
    return core


def schedules(policy: str, ups: tuple[int, int], *, mltcp: bool = False):
    """What the planner is asked, and the last schedule that each host hears of its job."""
    core = two_jobs(policy, ups, mltcp=mltcp)
    asked = core.plan_input()
    core.adopt(plan(asked))
    found = {e.host: e for e in core.take_effects() if isinstance(e, SendSchedule)}
    again = replace(core.plan_input(), epoch_ns=asked.epoch_ns + 12_345_678)
    core.adopt(plan(again))
    assert [e for e in core.take_effects() if isinstance(e, SendSchedule)] == []
    return asked, found


def test_a_fitting_pair_is_shifted_once_and_aligned_past_the_agents_threshold() -> None:
    _, told = schedules("cassini", (120, 140))
    said = {host: to_agent(e, TERMS).schedule for host, e in told.items()}
    assert all(s.once and s.realign == 0.07 and s.period_ns == 287 * MS for s in said.values())
    apart = abs(said["h1"].shift_ns - said["h2"].shift_ns)
    assert 120 * MS <= apart <= 167 * MS


def test_a_pair_that_does_not_fit_may_drift() -> None:
    _, told = schedules("cassini", (164, 180))
    said = [to_agent(e, TERMS).schedule for e in told.values()]
    assert all(s.once and s.realign == 1.0 for s in said)


def test_ours_holds_who_fits() -> None:
    for policy in ("polyrhythm", "circles"):
        _, told = schedules(policy, (120, 140))
        said = [to_agent(e, TERMS).schedule for e in told.values()]
        assert all(not s.once and s.period_ns > 287 * MS and s.realign >= 0.07 for s in said)


@pytest.mark.parametrize("policy", ["cassini", "circles", "polyrhythm"])
def test_who_is_left_alone_in_mid_shift_runs_free_and_a_newcomer_is_shifted(policy: str) -> None:
    core = two_jobs(policy, (120, 140))
    core.adopt(plan(core.plan_input()))
    core.take_effects()
    # Before any slot has come: one job vanishes, worker by worker.
    for rank, host in enumerate(("h2", "h4")):
        core.handle(WorkerLeft(host, rank, "b"))
    assert core.wants_plan
    core.adopt(plan(core.plan_input()))
    told = [e for e in core.take_effects() if isinstance(e, SendSchedule)]
    assert {(e.host, e.job, e.period_ns) for e in told} == {("h1", "a", 0), ("h3", "a", 0)}
    member = replace(job("c", "h2", "h4"), profile=Profile(287 * MS, (Phase(0, 130 * MS, RATE_BPS),)))
    for rank, host in enumerate(("h2", "h4")):
        core.handle(WorkerJoined(host, rank, member))
    core.adopt(plan(core.plan_input()))
    told = [e for e in core.take_effects() if isinstance(e, SendSchedule)]
    assert {(e.host, e.job) for e in told} == {("h1", "a"), ("h3", "a"), ("h2", "c"), ("h4", "c")}
    assert all(e.period_ns >= 287 * MS for e in told)


def test_what_a_nic_says_it_can_reaches_the_planner() -> None:
    assert schedules("polyrhythm", (120, 140), mltcp=True)[0].mltcp_hosts == frozenset(TOPOLOGY.host)
    assert schedules("polyrhythm", (120, 140))[0].mltcp_hosts == frozenset()


def test_an_emulated_host_says_that_its_nic_sends_by_mltcp() -> None:
    class Still:
        now = 0

        def call_at(self, time_ns: int, call: object, *arguments: object) -> None: ...

    said = []
    host = EmulatedHost(
        "h1", "10.0.0.1", "02:00:00:00:00:01", "02:00:00:00:00:09", RATE_BPS,
        clock=Still(), transmit=lambda frame: None, send=said.append, addresses={"h1": "10.0.0.1"},
    )  # fmt: skip
    host.agent.session_up()
    assert said[0].hello.mltcp
