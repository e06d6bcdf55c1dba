# SPDX-License-Identifier: Apache-2.0
"""A flow that its agent has moved to ECMP is shown, and gets no other pin until it is back on its pin."""

from dataclasses import replace

import pytest
from control_rig import RATE_BPS, eventually, job, join_message

from controller.agents.translate import MessageError, from_agent
from controller.live.core import Core
from controller.live.messages import (
    AgentUp,
    FlowAsked,
    FlowFallback,
    FlowOpened,
    SendAssignment,
    WorkerJoined,
    WorkerLeft,
)
from controller.live.settings import CoreSettings
from controller.planner import POLICIES, plan
from controller.wire import agent_pb2 as wire
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
FLOW = "a/h1>h3"


def planned_core(*, dscp="qp"):
    """A core with job a in force, whose flow h1 has asked for."""
    core = Core(CoreSettings(TOPOLOGY, POLICIES["polyrhythm"], 1, False, 10_000))
    for host in TOPOLOGY.host:
        core.handle(AgentUp(host, "udp", dscp))
    join(core, job("a", "h1", "h3"))
    core.adopt(plan(core.plan_input()))
    core.handle(FlowAsked("h1", FLOW))
    core.take_effects()
    return core


def join(core, member):
    for rank, host in enumerate(member.hosts):
        core.handle(WorkerJoined(host, rank, member))


def moved(core, port, dscp):
    """The plan in force, but with the flow elsewhere."""
    flow = replace(core.plan.flows[FLOW], source_port=port, dscp=dscp)
    return replace(core.plan, flows={**core.plan.flows, FLOW: flow})


def sent(core):
    effects = core.take_effects()
    return [(e.source_port, e.dscp) for e in effects if isinstance(e, SendAssignment) and e.flow == FLOW]


def test_a_fallback_flow_keeps_its_pin_until_it_is_back():
    core = planned_core()
    port, dscp = core.plan.flows[FLOW].source_port, core.plan.flows[FLOW].dscp
    core.now_ns = 70
    core.handle(FlowFallback("h1", FLOW, True, port, "9 % of packets sent again"))
    (fallback,) = core.assignments.fallback_flows
    assert (fallback.flow, fallback.host, fallback.source_port, fallback.since_ns) == (FLOW, "h1", port, 70)
    # A plan that moves it says nothing of the port; its priority is another matter.
    core.adopt(moved(core, port + 1, dscp))
    assert sent(core) == []
    core.adopt(moved(core, port + 2, dscp + 2))
    assert sent(core) == [(port, dscp + 2)]
    core.handle(FlowAsked("h1", FLOW))
    assert sent(core) == [(port, dscp + 2)]
    core.handle(FlowFallback("h1", FLOW, False, port, ""))
    assert sent(core) == [(port + 2, dscp + 2)]
    assert core.assignments.fallback_flows == ()
    core.adopt(moved(core, port + 3, dscp))
    assert sent(core) == [(port + 3, dscp)]


def test_a_fallback_that_ends_at_once_changes_nothing():
    core = planned_core()
    port = core.plan.flows[FLOW].source_port
    core.handle(FlowFallback("h1", FLOW, True, port, "loss"))
    core.handle(FlowFallback("h1", FLOW, False, port, ""))
    core.handle(FlowFallback("h1", FLOW, False, port, ""))
    assert sent(core) == []


@pytest.mark.parametrize(("host", "flow"), [("h2", FLOW), ("h3", FLOW), ("h1", "a/h1>h9"), ("h1", "")])
def test_a_fallback_of_another_hosts_flow_or_of_no_job_is_ignored(host, flow, caplog):
    core = planned_core()
    core.handle(FlowFallback(host, flow, True, 50_000, "loss"))
    assert core.assignments.fallback_flows == ()
    assert (
        f"flow {flow} does not begin on host {host}" in caplog.text
        or f"flow {flow}, which is of no" in caplog.text
    )


def test_a_fallback_is_forgotten_with_the_job_and_with_the_agent():
    core = planned_core()
    core.handle(FlowFallback("h1", FLOW, True, 50_000, "loss"))
    core.handle(AgentUp("h2", "udp"))
    assert len(core.assignments.fallback_flows) == 1
    core.handle(AgentUp("h1", "udp"))
    assert core.assignments.fallback_flows == ()
    core.handle(FlowFallback("h1", FLOW, True, 50_000, "loss"))
    for rank, host in enumerate(("h1", "h3")):
        core.handle(WorkerLeft(host, rank, "a"))
    assert core.assignments.fallback_flows == ()


def test_the_message_as_it_comes():
    said = wire.FlowFallback(flow=FLOW, on_ecmp=True, source_port=50_000, why="x" * 900)
    (item,) = from_agent("h1", wire.AgentMessage(flow_fallback=said))
    assert item == FlowFallback("h1", FLOW, True, 50_000, "x" * 200)
    said.source_port = 1 << 16
    with pytest.raises(MessageError, match="out of range"):
        list(from_agent("h1", wire.AgentMessage(flow_fallback=said)))


@pytest.mark.slow
def test_a_live_controller_shows_a_fallback_and_its_end(fabric, start_controller, connect):
    controller = start_controller(fabric.description(verify=False))
    member = job("a", "h1", "h3")
    agents = [connect(controller.agents, host) for host in member.hosts]
    for rank, agent in enumerate(agents):
        agent.next("welcome")
        agent.send(join_message(member, rank))
    agents[0].send(wire.AgentMessage(flow_request=wire.FlowRequest(flow=FLOW)))
    port = agents[0].next("flow").source_port
    why = "9.0 % of packets sent again"
    fallback = wire.FlowFallback(flow=FLOW, on_ecmp=True, source_port=port, why=why)
    agents[0].send(wire.AgentMessage(flow_fallback=fallback))
    (shown,) = eventually(
        lambda: (controller.api("flows?fallback=true") or {}).get("flows"), "the fallback is shown"
    )
    assert (shown["flow"], shown["source_port"], shown["fallback_reason"]) == (FLOW, port, why)
    assert {f["flow"]: f["fallback_reason"] for f in controller.api("plan")["flows"]} == {
        FLOW: why,
        "a/h3>h1": None,
    }
    assert controller.says(f"host h1: flow {FLOW} goes back to ECMP: {why}")
    back = wire.FlowFallback(flow=FLOW, source_port=port)
    agents[0].send(wire.AgentMessage(flow_fallback=back))
    eventually(lambda: controller.api("flows?fallback=true")["flows"] == [], "it is back")


def test_a_job_that_comes_while_a_plan_is_made_waits_for_the_next():
    """The plan knows nothing of it, nor does what is written beside the plan."""
    core = planned_core(dscp="fixed")
    made = plan(core.plan_input())
    late = job("b", "h2", "h4")
    join(core, late)
    for flow in late.flows:
        core.handle(FlowOpened(flow.src, flow.name, 50_000, 0))
    core.handle(WorkerLeft("h1", 0, "a"))
    core.adopt(made)
    assert "b" not in core.plan.jobs
    assert core.wants_plan
    core.adopt(plan(core.plan_input()))
    assert {r.flow for r in core.plan.remarks} >= {f.name for f in late.flows}
