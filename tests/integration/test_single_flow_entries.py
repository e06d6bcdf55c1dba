# SPDX-License-Identifier: Apache-2.0
"""Single flows in real switches: pinned, remarked, let go, and held through reconnects."""

import asyncio
from dataclasses import replace

from control_rig import RATE_BPS, job
from fleet_rig import held, in_service
from rocev2 import at_host, from_host, roce

from controller.live.core import Core
from controller.live.messages import AgentUp, FlowOpened, PacketSeen, SendFrame, WorkerJoined, WorkerLeft
from controller.live.settings import CoreSettings
from controller.live.verify import parse_probe
from controller.model.plan import FlowPin, FlowRemark
from controller.planner import POLICIES, plan
from controller.routing.forwarding import forwarding
from controller.routing.paths import path_of
from controller.southbound.table_writes import DesiredState, FabricCondition
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
PORTS = range(0xC000, 0xC010)
DOWN = frozenset({("leaf1", "spine1")})


def pin(sport, toward, flow="a/h1>h3"):
    return FlowPin(flow, "leaf1", toward, "h1", "h3", sport)


async def sent_by(fabric, sports, dscp=26, host="h1", dst="h3"):
    """(uplink port, queue, DSCP at the far end) of one frame for each source port, in order."""
    result = []
    for sport in sports:
        before = await asyncio.to_thread(counted, fabric)
        await from_host(fabric, host, roce(fabric.topology, host, dst, sport, dscp, 0))
        _, frame = await at_host(fabric)
        after = await asyncio.to_thread(counted, fabric)
        (cell,) = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        result.append((*divmod(cell, 8), frame[15] >> 2))
    return result


def counted(fabric):
    counts = fabric.on_data_plane(lambda: fabric.switches["leaf1"].read_counter("egress_packets"))
    return [packets for packets, _ in counts]


def test_a_pinned_flow_takes_its_way_until_it_goes(fabric, artefacts):
    async def scenario(fleet, witness):
        by_hash = await sent_by(fabric, PORTS)
        assert {port for port, _, _ in by_hash} == {3, 4}
        other = {3: "spine2", 4: "spine1"}
        pins = tuple(pin(s, other[port]) for s, (port, _, _) in zip(PORTS, by_hash, strict=True))
        before = fleet.entries("leaf1")
        assert await fleet.apply(DesiredState(FabricCondition(), pins)) == ()
        assert fleet.tables("leaf1")["pinned_flow"] == len(pins)
        assert fleet.entries("leaf1") == before + len(pins)
        assert (await held(fleet, "leaf1"))[1] == 0
        turned = await sent_by(fabric, PORTS)
        assert [port for port, _, _ in turned] == [7 - port for port, _, _ in by_hash]
        # Its own cable down: the pinned flow takes the backup, like any other.
        assert await fleet.apply(DesiredState(FabricCondition(DOWN), pins)) == ()
        assert {port for port, _, _ in await sent_by(fabric, PORTS)} == {4}
        assert await fleet.apply(DesiredState(FabricCondition(), pins[:1])) == ()
        assert [port for port, _, _ in await sent_by(fabric, PORTS)][1:] == [p for p, _, _ in by_hash][1:]
        assert await fleet.apply(DesiredState()) == ()
        assert await sent_by(fabric, PORTS) == by_hash
        assert fleet.entries("leaf1") == before

    in_service(fabric, artefacts, scenario)


def test_a_remarked_flow_is_queued_by_its_new_dscp_and_no_other_is(fabric, artefacts):
    remark = FlowRemark("a/h1>h3", "leaf1", "h1", "h3", PORTS[0], 30, 22)
    pairs = (("h1", "h3"), ("h2", "h3"))

    async def scenario(fleet, witness):
        assert await fleet.apply(DesiredState(pairs=pairs)) == ()
        assert [(q, d) for _, q, d in await sent_by(fabric, PORTS[:2], dscp=30)] == [(6, 30)] * 2
        assert await fleet.apply(DesiredState(remarks=(remark,), pairs=pairs)) == ()
        assert [(q, d) for _, q, d in await sent_by(fabric, PORTS[:2], dscp=30)] == [(4, 22), (6, 30)]
        assert [(q, d) for _, q, d in await sent_by(fabric, PORTS[:1], dscp=26)] == [(5, 26)]
        # Another host under the same DSCP is not meant.
        assert [(q, d) for _, q, d in await sent_by(fabric, PORTS[:1], dscp=30, host="h2")] == [(6, 30)]
        assert await fleet.apply(DesiredState(remarks=(replace(remark, dscp=10),), pairs=pairs)) == ()
        assert [(q, d) for _, q, d in await sent_by(fabric, PORTS[:1], dscp=30)] == [(1, 10)]
        assert await fleet.apply(DesiredState(pairs=pairs)) == ()
        assert [(q, d) for _, q, d in await sent_by(fabric, PORTS[:2], dscp=30)] == [(6, 30)] * 2

    in_service(fabric, artefacts, scenario)


def test_a_switch_without_room_names_what_it_refused(fabric, artefacts):
    flows = 4097

    async def scenario(fleet, witness):
        pins = tuple(pin(1024 + i, "spine1", f"a/{i}") for i in range(flows))
        errors = await fleet.apply(DesiredState(pins=pins))
        assert {e.switch for e in errors} == {"leaf1"}
        assert len(errors) == 1
        assert errors[0].what.startswith("insert pinned_flow[")
        assert errors[0].why.startswith("RESOURCE_EXHAUSTED")

    in_service(fabric, artefacts, scenario)


# The core: what agents and probes tell becomes entries of the next plan.


def core_with(dscp="qp", pinning="udp", verify=False):
    core = Core(CoreSettings(TOPOLOGY, POLICIES["routing"], 1, verify, 10_000))
    for host in TOPOLOGY.host:
        core.handle(AgentUp(host, pinning, dscp))
    member = job("a", "h1", "h3")
    for rank, host in enumerate(member.hosts):
        core.handle(WorkerJoined(host, rank, member))
    core.take_effects()
    return core, member


def replan(core):
    core.adopt(plan(core.plan_input()))
    return core.take_effects()


def test_a_port_that_the_nic_chose_is_pinned_when_it_is_told():
    core, member = core_with(pinning="none")
    replan(core)
    assert {f.path for f in core.plan.flows.values()} == {None}
    flow = member.flows[0].name
    core.handle(FlowOpened("h1", flow, 50001, 26))
    assert core.wants_plan
    replan(core)
    planned = core.plan.flows[flow]
    assert planned.source_port == 50001
    led = path_of(TOPOLOGY, forwarding(TOPOLOGY), "h1", "h3", 50001) == planned.path
    assert [p.source_port for p in core.plan.pins] == ([] if led else [50001])
    # The same word again changes nothing; another port does; a job that leaves is forgotten.
    core.handle(FlowOpened("h1", flow, 50001, 26))
    assert not core.wants_plan
    core.handle(FlowOpened("h1", flow, 50002, 26))
    assert core.wants_plan
    core.handle(FlowOpened("h1", "b/h1>h3", 50002, 26))
    for rank, host in enumerate(member.hosts):
        core.handle(WorkerLeft(host, rank, "a"))
    replan(core)
    assert core.desired == DesiredState()


def test_an_opened_queue_pair_with_the_plans_dscp_changes_nothing():
    core, member = core_with(dscp="fixed")
    replan(core)
    flow = core.plan.flows[member.flows[0].name]
    core.handle(FlowOpened("h1", flow.flow, flow.source_port, flow.dscp))
    assert not core.wants_plan
    # Opened without an answer, under another one: the leaf makes it right.
    core.handle(FlowOpened("h1", flow.flow, flow.source_port, 0))
    assert core.wants_plan
    replan(core)
    assert [(r.sent_dscp, r.dscp) for r in core.plan.remarks] == [(0, 26)]
    assert core.desired.remarks == core.plan.remarks


def test_a_probe_that_went_elsewhere_has_its_flow_pinned():
    core, _ = core_with(verify=True)
    effects = replan(core)
    probes = [e for e in effects if isinstance(e, SendFrame)]
    # The switches' hash is another than they say: every probe comes back by the wrong spine.
    for probe in probes:
        core.handle(PacketSeen("leaf1", 255, 1, 1, answer(core, probe.payload)))
    assert core.wants_plan
    effects = replan(core)
    assert {p.flow for p in core.plan.pins} == set(core.plan.flows)
    # Pinned and still astray: said, but there is nothing more to try.
    for probe in [e for e in effects if isinstance(e, SendFrame)]:
        core.handle(PacketSeen("leaf1", 255, 1, 1, answer(core, probe.payload)))
    assert not core.wants_plan
    # A fabric in another condition is believed again.
    core.take_condition()
    assert core.plan_input().mistrusted == frozenset()


def answer(core, frame):
    """A probe as it comes back, along the other spine than planned."""
    flow = parse_probe(frame).flow
    names = {TOPOLOGY.host[h].ip: h for h in TOPOLOGY.host}
    planned = core.plan.flows[f"a/{names[flow.src_ip]}>{names[flow.dst_ip]}"].path
    spine = {"spine1": "spine2", "spine2": "spine1"}[planned[2]]
    stack = b""
    for node in (planned[3], spine, planned[1]):
        stack += TOPOLOGY.switch[node].device_id.to_bytes(4, "big") + bytes(28)
    head = 14 + 20 + 8
    words = 3 + len(stack) // 4
    return frame[: head + 1] + bytes([words]) + frame[head + 2 : head + 16] + stack + frame[head + 16 :]
