# SPDX-License-Identifier: Apache-2.0
"""An agent speaks for its own host and for jobs with a rank there: a controller in a process, agents by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from control_rig import (
    Agent,
    Controller,
    HostFabric,
    artefacts,
    connect,
    eventually,
    fabric,
    job,
    join_message,
    start_controller,
    topology,
)

from controller.model.job import Flow, Job
from controller.wire import agent_pb2 as wire

__all__ = ["artefacts", "connect", "fabric", "start_controller", "topology"]


class Site:
    """Hosts h1 and h3 run job "a"; h2 and h4 have agents with nothing to do with it."""

    def __init__(self, controller: Controller, connect: Callable[..., Agent]) -> None:
        self.controller = controller
        self.agents = {host: connect(controller.agents, host) for host in ("h1", "h2", "h3", "h4")}
        for agent in self.agents.values():
            agent.next("welcome")
        self.member = job("a", "h1", "h3")

    def run_a(self) -> None:
        for rank, host in enumerate(self.member.hosts):
            self.agents[host].send(join_message(self.member, rank))
        eventually(lambda: self.shows("a", "flows"), "job a is planned")
        assert self.asked("h1", "a/h1>h3").source_port

    def asked(self, host: str, flow: str) -> Any:
        """The answer to a request for a flow."""
        self.agents[host].send(wire.AgentMessage(flow_request=wire.FlowRequest(flow=flow)))
        while True:
            answer = self.agents[host].next("flow")
            if answer.flow == flow:
                return answer

    def shows(self, name: str, key: str) -> Any:
        return (self.controller.api(f"jobs/{name}") or {}).get(key)

    def refused(self, host: str, message: wire.AgentMessage) -> str:
        self.agents[host].send(message)
        return str(self.agents[host].next("refusal").what)


@pytest.fixture
def site(
    fabric: HostFabric, start_controller: Callable[..., Controller], connect: Callable[..., Agent]
) -> Site:
    return Site(start_controller(fabric.description(verify=False, profile="declared")), connect)


def test_an_agent_cannot_end_report_or_take_over_what_is_of_other_hosts(site: Site) -> None:
    site.run_a()
    before = site.asked("h1", "a/h1>h3")
    for host in ("h2", "h4"):
        for rank in (0, 1, 9):
            leave = wire.AgentMessage(job_leave=wire.JobLeave(job="a", rank=rank))
            assert f"host {host} has no rank {rank} of job a" in site.refused(host, leave)
            report = wire.IterationReport(job="a", rank=rank, index=5, start_ns=1, end_ns=10**12)
            assert "no rank" in site.refused(host, wire.AgentMessage(iteration=report))
            bytes_of = wire.ByteCounts(
                job="a", rank=rank, bin_ns=1000, flows=[wire.FlowBytes(flow="", bytes=[1])]
            )
            assert "no rank" in site.refused(host, wire.AgentMessage(byte_counts=bytes_of))
        for flow in ("a/h1>h3", "a/h3>h1"):
            opened = wire.FlowOpened(flow=flow, source_port=50_000, dscp=3)
            fell = wire.FlowFallback(flow=flow, on_ecmp=True, source_port=50_000, why="a lie")
            probe = wire.ProbeRequest(flow=flow)
            for message in (
                wire.AgentMessage(flow_opened=opened),
                wire.AgentMessage(flow_fallback=fell),
                wire.AgentMessage(probe_request=probe),
            ):
                assert f"flow {flow} does not begin on host {host}" in site.refused(host, message)
            # A flow of another host is as one of no job: whoever asks for it must not wait.
            assert site.asked(host, flow).source_port == 0
    # A member may not act for the other member either.
    assert "h1 has no rank 1" in site.refused(
        "h1", wire.AgentMessage(job_leave=wire.JobLeave(job="a", rank=1))
    )
    assert site.asked("h1", "a/h3>h1").source_port == 0
    counts = wire.ByteCounts(job="a", rank=0, bin_ns=1000, flows=[wire.FlowBytes(flow="a/h3>h1", bytes=[1])])
    assert "a/h3>h1 does not begin on host h1" in site.refused("h1", wire.AgentMessage(byte_counts=counts))

    assert site.asked("h1", "a/h1>h3") == before
    assert site.shows("a", "iterations") == 0
    assert {f["fallback_reason"] for f in site.shows("a", "flows")} == {None}
    # Whoever owns the flow hears of its next place, and nobody else.
    site.agents["h2"].send(join_message(job("b", "h2", "h4"), 0))
    site.agents["h4"].send(join_message(job("b", "h2", "h4"), 1))
    eventually(lambda: site.shows("b", "flows"), "another plan")
    strays = []
    while not site.agents["h2"].inbox.empty():
        message = site.agents["h2"].inbox.get()
        assert message is not None
        strays.append(message.flow.flow)
    assert not {f for f in strays if f.startswith("a/")}


def test_an_agent_cannot_have_flows_between_other_hosts_or_with_foreign_names(site: Site) -> None:
    def with_flows(*flows: Flow) -> wire.AgentMessage:
        return join_message(replace(job("x", "h2", "h4"), flows=flows), 0)

    for src, dst in (("h1", "h3"), ("h2", "h3"), ("h1", "h4")):
        said = site.refused("h2", with_flows(Flow(f"x/{src}>{dst}", "x", src, dst, 10**6)))
        assert f"from {src} to {dst}" in said
    assert "legal: it begins with x/" in site.refused(
        "h2", with_flows(Flow("a/h1>h3", "x", "h2", "h4", 10**6))
    )
    for name in ("", "a/b", "x\ny"):
        assert "job's name" in site.refused("h2", join_message(job(name, "h2", "h4"), 0))
    site.run_a()


@pytest.mark.parametrize("squatters", [("h2",), ("h2", "h4"), ("h2", "h1"), ("h2", "h1", "h3")])
def test_a_name_that_others_use_keeps_nobody_out(site: Site, squatters: tuple[str, ...]) -> None:
    """Whoever takes the name first: each job has its own flows, slots and end."""
    squatter = (
        job("a", *squatters, gpus=7)
        if len(squatters) > 1
        else replace(job("a", "h2", "h4"), hosts=("h2",), flows=())
    )
    for rank, host in enumerate(squatters):
        if host in ("h2", "h4"):
            site.agents[host].send(join_message(squatter, rank))
    # Answered after the joins, so they have been handled.
    site.asked("h2", "nothing")
    site.agents["h1"].send(join_message(site.member, 0))
    site.agents["h3"].send(join_message(site.member, 1))
    complete = set(squatters) <= {"h2", "h4"}
    names = {"a", "a@h1"} if complete else {"a@h1"}

    def shown() -> dict[str, Any]:
        jobs = (site.controller.api("jobs") or {"jobs": []})["jobs"]
        return {j["name"]: j for j in jobs}

    eventually(lambda: shown().keys() >= names, "both are there")
    assert shown()["a@h1"]["hosts"] == ["h1", "h3"]
    # The agents know nothing of the longer name.
    assert eventually(lambda: site.asked("h1", "a/h1>h3").source_port, "a place of its own") > 0
    report = wire.IterationReport(job="a", rank=0, start_ns=1, end_ns=10**8)
    site.agents["h1"].send(wire.AgentMessage(iteration=report))
    site.agents["h3"].send(
        wire.AgentMessage(iteration=wire.IterationReport(job="a", rank=1, start_ns=1, end_ns=10**8))
    )
    eventually(lambda: site.shows("a@h1", "iterations") == 1, "its iteration counts")
    site.agents["h2"].send(wire.AgentMessage(job_leave=wire.JobLeave(job="a", rank=0)))
    site.asked("h2", "nothing")
    assert site.shows("a@h1", "name") == "a@h1"
    for rank, host in enumerate(("h1", "h3")):
        site.agents[host].send(wire.AgentMessage(job_leave=wire.JobLeave(job="a", rank=rank)))
    eventually(lambda: site.shows("a@h1", "name") is None, "it ends by its own agents' word")


def test_a_job_that_is_declared_anew_takes_the_place_of_the_old_one(site: Site) -> None:
    """An agent has one job of a name and rank: what it declared before has ended."""
    site.run_a()
    other: Job = job("a", "h1", "h2")
    site.agents["h1"].send(join_message(other, 0))
    site.agents["h2"].send(join_message(other, 1))
    eventually(
        lambda: {tuple(j["hosts"]) for j in site.controller.api("jobs")["jobs"]} >= {("h1", "h2")},
        "the new one",
    )
    site.agents["h3"].send(wire.AgentMessage(job_leave=wire.JobLeave(job="a", rank=1)))
    eventually(
        lambda: [tuple(j["hosts"]) for j in site.controller.api("jobs")["jobs"]] == [("h1", "h2")],
        "the old one ends with its last worker",
    )
