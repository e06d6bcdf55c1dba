# SPDX-License-Identifier: Apache-2.0
"""Which flows a new plan has probed, on the host's clock and in fabric time."""

from dataclasses import replace

import pytest
from control_rig import RATE_BPS, job
from probe_rig import travel

from controller.live.messages import Effect, SendFrame
from controller.live.path_verification import RETRY_NS, PathVerification
from controller.live.verify import FABRIC_TIME_PROBES, HOST_CLOCK_PROBES, ProbeOptions, parse_probe
from controller.model.flow_plans import with_flows
from controller.model.job import Job
from controller.model.plan import FlowPin, Plan
from controller.planner import POLICIES, PlanInput, first_plan
from controller.southbound.table_writes import FabricCondition
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 3, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
INTACT = FabricCondition()
A, B, C = job("a", "h1", "h4"), job("b", "h2", "h5"), job("c", "h3", "h6")
A_TO, B_TO, C_TO = "a/h1>h4", "b/h2>h5", "c/h3>h6"
A_BACK, B_BACK, C_BACK = "a/h4>h1", "b/h5>h2", "c/h6>h3"
ALL = [A_TO, A_BACK, B_TO, B_BACK]


class Paths:
    """The paths of one plan after another. `lost` flows have probes that never come back."""

    def __init__(self, options: ProbeOptions = HOST_CLOCK_PROBES, lost: tuple[str, ...] = ()) -> None:
        self.known = PathVerification(TOPOLOGY, options, probing=True)
        self.plan: Plan | None = None
        self.lost = lost
        self.now_ns = 0

    def made(self, *jobs: Job) -> Plan:
        """The next plan, for these jobs."""
        return first_plan(PlanInput(TOPOLOGY, jobs, POLICIES["polyrhythm"], 0, previous=self.plan))

    def adopt(self, plan: Plan, *jobs: Job, condition: FabricCondition = INTACT) -> tuple[Effect, ...]:
        """The first probes of a plan."""
        self.plan = plan
        return self.known.adopt(self.now_ns, plan, jobs, condition)

    def probed(self, plan: Plan, *jobs: Job, condition: FabricCondition = INTACT) -> list[str]:
        """Adopt a plan; the names of the flows that it has probed, when all is over."""
        frames, found = self.adopt(plan, *jobs, condition=condition), set()
        while True:
            found |= {self.delivered(frame) for frame in frames}
            due = self.known.next_timer_ns
            if due is None:
                assert self.known.settled
                return sorted(found)
            self.now_ns = max(self.now_ns, due)
            frames = self.known.expire(self.now_ns)

    def delivered(self, frame: Effect) -> str:
        """The flow of a probe, which comes back unless it is lost."""
        assert isinstance(frame, SendFrame)
        assert self.plan is not None
        probe = parse_probe(frame.payload)
        assert probe is not None
        src, dst = (
            next(h.name for h in TOPOLOGY.hosts if h.ip == ip)
            for ip in (probe.flow.src_ip, probe.flow.dst_ip)
        )
        flow, path = next(
            (f.flow, f.path)
            for f in self.plan.flows.values()
            if f.path and (f.path[0], f.path[-1], f.source_port) == (src, dst, probe.flow.source_port)
        )
        if flow not in self.lost:
            self.known.received(self.now_ns, travel(TOPOLOGY, frame.payload, *path[1:-1]))
        return flow


def test_flows_that_stay_on_a_verified_path_are_not_probed_again() -> None:
    paths = Paths()
    assert paths.probed(paths.made(A, B), A, B) == ALL
    assert paths.probed(paths.made(A, B, C), A, B, C) == [C_TO, C_BACK]
    assert paths.known.verified == {*ALL, C_TO, C_BACK}
    paths.known.forget(f.name for f in A.flows)
    assert paths.probed(paths.made(B, C), B, C) == []
    assert paths.known.verified == {B_TO, B_BACK, C_TO, C_BACK}
    assert set(paths.known.probes) == paths.known.verified


def test_in_fabric_time_each_plan_has_all_flows_probed() -> None:
    paths = Paths(FABRIC_TIME_PROBES)
    assert paths.probed(paths.made(A, B), A, B) == ALL
    assert paths.probed(paths.made(A, B, C), A, B, C) == [*ALL, C_TO, C_BACK]


def test_a_flow_on_another_path_or_port_is_probed() -> None:
    paths = Paths()
    paths.probed(paths.made(A, B), A, B)
    assert paths.plan is not None
    flow = paths.plan.flows[A_TO]
    assert flow.source_port is not None
    moved = with_flows(paths.plan.flows, {A_TO: replace(flow, source_port=flow.source_port + 1)})
    assert paths.probed(replace(paths.plan, flows=moved), A, B) == [A_TO]
    # With plain mappings of flows too.
    assert paths.probed(replace(paths.plan, flows=dict(moved) | {A_TO: flow}), A, B) == [A_TO]


def test_a_flow_that_was_not_verified_gets_another_chance_later() -> None:
    paths = Paths(lost=(A_BACK,))
    assert paths.probed(paths.made(A, B), A, B) == ALL
    assert paths.known.unverified == {A_BACK}
    paths.lost = ()
    assert paths.probed(paths.made(A, B), A, B) == []
    paths.now_ns += RETRY_NS
    assert paths.probed(paths.made(A, B), A, B) == [A_BACK]
    assert paths.known.unverified == set()
    assert paths.known.verified == set(ALL)


def test_all_flows_are_probed_after_a_failure_and_after_its_end() -> None:
    paths = Paths()
    paths.probed(paths.made(A, B), A, B)
    down = FabricCondition(frozenset({("leaf1", "spine1")}))
    assert paths.probed(paths.made(A, B), A, B, condition=down) == ALL
    assert paths.probed(paths.made(A, B), A, B, condition=down) == []
    assert paths.probed(paths.made(A, B), A, B) == ALL


def test_a_job_that_left_and_came_back_before_the_next_plan_is_probed() -> None:
    paths = Paths()
    paths.probed(paths.made(A, B), A, B)
    paths.known.forget(f.name for f in A.flows)
    assert paths.probed(paths.made(A, B), A, B) == [A_TO, A_BACK]


def test_a_flow_that_gets_or_loses_a_pin_is_probed() -> None:
    paths = Paths()
    paths.probed(paths.made(A, B), A, B)
    assert paths.plan is not None
    flow = paths.plan.flows[B_BACK]
    assert flow.path is not None
    assert flow.source_port is not None
    pin = FlowPin(B_BACK, flow.path[1], flow.path[2], flow.path[0], flow.path[-1], flow.source_port)
    pinned = replace(paths.plan, pins=(pin,))
    assert paths.probed(pinned, A, B) == [B_BACK]
    assert paths.probed(pinned, A, B) == []
    assert paths.probed(replace(pinned, pins=()), A, B) == [B_BACK]


def test_a_flow_whose_probe_is_under_way_is_verified_by_it() -> None:
    paths = Paths()
    first = paths.adopt(paths.made(A, B), A, B)
    assert len(first) == len(ALL)
    then = paths.adopt(paths.made(A, B, C), A, B, C)
    assert len(then) == 2
    assert {paths.delivered(frame) for frame in (*first, *then)} == {*ALL, C_TO, C_BACK}
    assert paths.known.verified == {*ALL, C_TO, C_BACK}


@pytest.mark.parametrize("options", [FABRIC_TIME_PROBES, HOST_CLOCK_PROBES])
def test_without_probes_each_flow_with_a_path_counts_as_unverified(options: ProbeOptions) -> None:
    known = PathVerification(TOPOLOGY, options, probing=False)
    paths = Paths(options)
    for jobs in ((A, B), (A, B, C), (B,)):
        plan = paths.made(*jobs)
        assert known.adopt(0, plan, jobs, INTACT) == ()
        assert known.unverified == {f.flow for f in plan.flows.values() if f.path}
