# SPDX-License-Identifier: Apache-2.0
"""What an agent may say, by single inputs: limits of a host, names, and what is left when jobs end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.live import agent_authority
from controller.live.agent_authority import AgentAuthority
from controller.live.job_names import announced_name, candidate_names, name_fault, renamed
from controller.live.job_registry import JobRegistry
from controller.live.messages import (
    FlowAsked,
    Input,
    IterationReport,
    SendAssignment,
    SendRefusal,
    SendSchedule,
    WorkerJoined,
    WorkerLeft,
)
from controller.model.job import Flow, Job, Phase, Profile
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=10**9, fabric_bps=10**9)


def job(name: str, *hosts: str) -> Job:
    pairs = zip(hosts, (*hosts[1:], hosts[0]), strict=True)
    flows = tuple(Flow(f"{name}/{a}>{b}", name, a, b, 1000) for a, b in pairs if a != b)
    return Job(name, "m", 1, hosts, Profile(100, (Phase(0, 10, 8),)), 1.0, flows)


class Rig:
    def __init__(self) -> None:
        self.registry = JobRegistry(TOPOLOGY)
        self.authority = AgentAuthority(self.registry)

    def say(self, item: Input) -> str:
        """Handle a join or leave as the core does; returns the refusal."""
        inputs, effects = self.authority.checked(item)
        for allowed in inputs:
            if isinstance(allowed, WorkerJoined):
                self.registry.join(allowed.host, allowed.rank, allowed.job)
            elif isinstance(allowed, WorkerLeft):
                self.registry.leave(allowed.job, allowed.rank)
        return "".join(e.what for e in effects if isinstance(e, SendRefusal))


def test_a_host_has_a_bounded_number_of_jobs_and_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_authority, "MAX_JOBS_OF_HOST", 2)
    monkeypatch.setattr(agent_authority, "MAX_FLOWS_OF_HOST", 3)
    rig = Rig()
    assert not rig.say(WorkerJoined("h1", 0, job("a", "h1", "h3")))
    assert not rig.say(WorkerJoined("h1", 0, job("c", "h1")))
    assert "host h1 has 2 jobs already; legal: at most 2" in rig.say(WorkerJoined("h1", 0, job("d", "h1")))
    # Saying the same again, and what others do, is not affected.
    assert not rig.say(WorkerJoined("h1", 0, job("a", "h1", "h3")))
    assert not rig.say(WorkerJoined("h2", 0, job("d", "h2", "h4")))
    rig.say(WorkerLeft("h1", 0, "c"))
    assert "have 4; legal: at most 3" in rig.say(WorkerJoined("h1", 0, job("b", "h1", "h3")))
    assert not rig.say(WorkerJoined("h1", 0, job("d", "h1")))


def test_many_jobs_of_one_name_have_names_of_their_own_and_leave_nothing() -> None:
    rig = Rig()
    hosts = ("h1", "h2", "h3", "h4")
    for host in hosts:
        assert not rig.say(WorkerJoined(host, 0, job("a", host)))
    # The first host's name is held by a job on it that has another name.
    assert [j.name for j in rig.registry.jobs] == ["a", "a@h2", "a@h3", "a@h4"]
    assert not rig.say(WorkerJoined("h2", 0, job("a", "h2", "h3")))
    # One agent has one job of a name and rank: the one before has ended.
    assert [j.name for j in rig.registry.jobs] == ["a", "a@h3", "a@h4"]
    for host in hosts:
        rig.say(WorkerLeft(host, 0, "a"))
    assert rig.registry.jobs == ()
    assert not rig.registry.renamed
    assert rig.registry.load_of("h2") == (0, 0)
    assert rig.registry.flow("a@h2.2/h2>h3") is None


def test_agents_hear_their_own_names() -> None:
    rig = Rig()
    rig.say(WorkerJoined("h4", 0, job("a", "h4")))
    rig.say(WorkerJoined("h1", 0, job("a", "h1", "h3")))
    (asked,), _ = rig.authority.checked(FlowAsked("h1", "a/h1>h3"))
    assert asked == FlowAsked("h1", "a@h1/h1>h3")
    sent = rig.authority.for_agent(SendAssignment("h1", "a@h1/h1>h3", 5, 6))
    assert sent == SendAssignment("h1", "a/h1>h3", 5, 6)
    schedule = SendSchedule("h1", "a@h1", 0, 0, 0)
    assert rig.authority.for_agent(schedule) == replace(schedule, job="a")
    plain = SendSchedule("h4", "a", 0, 0, 0)
    assert rig.authority.for_agent(plain) == plain


def test_reports_of_a_job_that_nobody_has_are_dropped_without_a_word() -> None:
    rig = Rig()
    assert rig.authority.checked(IterationReport("h1", "gone", 0, 1, 2, 3, 4, 5, 6, 7, 8)) == ((), ())
    assert rig.authority.checked(WorkerLeft("h1", 0, "gone")) == ((), ())


def test_a_pending_job_of_others_takes_no_flow_of_a_host_that_has_not_joined() -> None:
    rig = Rig()
    squatter = replace(job("a", "h2", "h1"), flows=(Flow("a/h1>h3", "a", "h1", "h2", 1000),))
    assert not rig.say(WorkerJoined("h2", 0, squatter))
    assert not rig.say(WorkerJoined("h1", 0, job("a", "h1", "h3")))
    (asked,), _ = rig.authority.checked(FlowAsked("h1", "a/h1>h3"))
    assert asked.flow == "a@h1/h1>h3"


@given(st.text(min_size=1, max_size=12), st.sampled_from(("h1", "h2", "a@h1")))
def test_an_announced_name_comes_back_from_every_name_of_its_job(name: str, host: str) -> None:
    announced = replace(job("x", host), name=name, flows=())
    if name_fault(announced):
        assert not name.isprintable() or "/" in name or f"@{host}" in name or name in (".", "..")
        return
    names = candidate_names(announced)
    for other in (next(names), next(names), next(names)):
        assert announced_name(renamed(announced, other)) == name
