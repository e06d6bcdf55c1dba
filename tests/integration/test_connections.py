# SPDX-License-Identifier: Apache-2.0
"""TCP connections of jobs: agents learn which ports lead where, and switches pin and mark what they report."""

import asyncio
import struct
from ipaddress import IPv4Address

import pytest
from control_rig import RATE_BPS, job
from diff_frames import Flow, tcp
from fleet_rig import held, in_service
from rocev2 import at_host, from_host, internet_checksum, mac

from controller.agents.translate import MessageError, from_agent, to_agent
from controller.live.core import Core
from controller.live.messages import (
    AgentUp,
    ConnectionsSeen,
    SendConnectionPath,
    SendRefusal,
    WorkerJoined,
    WorkerLeft,
)
from controller.live.settings import CoreSettings
from controller.model.plan import Connection, ConnectionPlan
from controller.planner import POLICIES, plan
from controller.routing.forwarding import forwarding
from controller.routing.paths import path_of
from controller.routing.port_conditions import all_hold
from controller.southbound.table_writes import DesiredState
from controller.wire import agent_pb2 as wire
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
TCP = 6
THERE, BACK = "a/h1>h3", "a/h3>h1"


def core_with_job(connects=(TCP,)):
    core = Core(CoreSettings(TOPOLOGY, POLICIES["polyrhythm"], 1, False, 10_000))
    for host in TOPOLOGY.host:
        core.handle(AgentUp(host, "sockets", connects=connects))
    member = job("a", "h1", "h3")
    for rank, host in enumerate(member.hosts):
        core.handle(WorkerJoined(host, rank, member))
    replan(core)
    return core


def replan(core):
    core.adopt(plan(core.plan_input()))


def told(core):
    return [e for e in core.take_effects() if isinstance(e, SendConnectionPath)]


def led(connection, src, dst):
    ports = {"protocol": connection.protocol, "dest_port": connection.dest_port}
    return path_of(TOPOLOGY, forwarding(TOPOLOGY), src, dst, connection.source_port, **ports)


def test_both_ends_learn_the_ports_of_each_direction():
    core = core_with_job()
    paths = told(core)
    assert {(p.host, p.flow) for p in paths} == {(h, f) for h in ("h1", "h3") for f in (THERE, BACK)}
    for path in paths:
        src, dst = path.flow.partition("/")[2].split(">")
        planned = core.plan.flows[path.flow]
        assert (path.dscp, path.job, path.index) == (planned.dscp, "a", 0)
        assert (path.src_ip, path.dst_ip) == (TOPOLOGY.host[src].ip, TOPOLOGY.host[dst].ip)
        good = [port for port in range(40_000, 40_050) if all_hold(path.conditions, port, 29_500)]
        assert good
        for port in good:
            assert led(Connection(path.flow, TCP, port, 29_500, 0), src, dst) == planned.path
    # The same plan again is no news; a new session is.
    replan(core)
    assert told(core) == []
    core.handle(AgentUp("h1", "sockets", connects=(TCP,)))
    replan(core)
    assert {p.host for p in told(core)} == {"h1"}


def test_agents_without_the_shim_hear_nothing_of_ports():
    assert told(core_with_job(connects=())) == []


def ports_that_lead(core, flow, *, along):
    src, dst = flow.partition("/")[2].split(">")
    return next(
        c
        for port in range(40_000, 41_000)
        if (led(c := Connection(flow, TCP, port, 29_500, 26), src, dst) == core.plan.flows[flow].path)
        == along
    )


def test_a_reported_connection_is_pinned_only_where_its_ports_lead_elsewhere():
    core = core_with_job()
    right, wrong = (ports_that_lead(core, THERE, along=along) for along in (True, False))
    core.handle(ConnectionsSeen("h1", ((True, right), (True, wrong))))
    assert core.wants_plan
    replan(core)
    path = core.plan.flows[THERE].path
    assert [(c.connection, c.pins) for c in core.plan.connections] == [(right, ()), (wrong, (path[1:3],))]
    assert {(c.src, c.dst, c.dscp) for c in core.plan.connections} == {
        ("h1", "h3", core.plan.flows[THERE].dscp)
    }
    assert core.desired.connections == core.plan.connections
    # The same report is no news. One that closes goes; a session that is new begins without any.
    core.handle(ConnectionsSeen("h1", ((True, right),)))
    assert not core.wants_plan
    core.handle(ConnectionsSeen("h1", ((False, wrong),)))
    assert core.wants_plan
    replan(core)
    assert [c.connection for c in core.plan.connections] == [right]
    core.handle(AgentUp("h1", "sockets", connects=(TCP,)))
    replan(core)
    assert core.plan.connections == ()


def test_a_job_that_leaves_takes_its_connections_along():
    core = core_with_job()
    core.handle(ConnectionsSeen("h1", ((True, ports_that_lead(core, THERE, along=False)),)))
    replan(core)
    for rank, host in enumerate(("h1", "h3")):
        core.handle(WorkerLeft(host, rank, "a"))
    told(core)
    replan(core)
    assert core.desired == DesiredState()
    assert {(p.host, p.flow, p.ended) for p in told(core)} == {
        (host, flow, True) for host in ("h1", "h3") for flow in (THERE, BACK)
    }
    replan(core)
    assert told(core) == []


def test_only_the_two_ends_of_a_flow_speak_for_its_connections():
    core = core_with_job()
    core.take_effects()
    wrong = ports_that_lead(core, BACK, along=False)
    core.handle(ConnectionsSeen("h2", ((True, wrong),)))
    assert any(isinstance(e, SendRefusal) for e in core.take_effects())
    # Of no job: ignored, and nothing is kept.
    core.handle(ConnectionsSeen("h2", ((True, Connection("x/h2>h3", TCP, 1, 2, 0)),)))
    assert not core.wants_plan
    # The host that opened the connection reports what comes back on it.
    core.handle(ConnectionsSeen("h1", ((True, wrong),)))
    replan(core)
    assert [c.src for c in core.plan.connections] == ["h3"]


def test_messages_carry_connections_and_refuse_what_no_header_holds():
    core = core_with_job()
    for effect in told(core):
        said = to_agent(effect, None).connection_path
        assert [(c.source_mask, c.dest_mask, c.odd) for c in said.conditions] == [
            (c.source_mask, c.dest_mask, c.odd) for c in effect.conditions
        ]
        assert said.known
    good = {"flow": THERE, "protocol": TCP, "source_port": 40_000, "dest_port": 29_500, "sent_dscp": 26}

    def read(**changes):
        said = wire.Connections(connections=[wire.Connection(**{**good, **changes})])
        return list(from_agent("h1", wire.AgentMessage(connections=said)))

    assert read(closed=True) == [
        ConnectionsSeen("h1", ((False, Connection(THERE, TCP, 40_000, 29_500, 26)),))
    ]
    for wrong in ({"protocol": 1}, {"source_port": 0}, {"dest_port": 1 << 16}, {"sent_dscp": 64}):
        with pytest.raises(MessageError, match="legal"):
            read(**wrong)
    many = wire.Connections(connections=[wire.Connection(**good)] * 1025)
    with pytest.raises(MessageError, match="1,025"):
        list(from_agent("h1", wire.AgentMessage(connections=many)))


# In real switches.


def frame(src, dst, connection, dscp):
    a, b = TOPOLOGY.host[src], TOPOLOGY.host[dst]
    ends = IPv4Address(a.ip), IPv4Address(b.ip)
    segment = tcp(Flow(*ends, TCP, connection.source_port, connection.dest_port), b"gradient")
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, dscp << 2, 20 + len(segment), 0, 0, 64, TCP, 0, *(e.packed for e in ends)
    )
    ip = ip[:10] + struct.pack("!H", internet_checksum(ip)) + ip[12:]
    return mac(TOPOLOGY.switch[a.leaf].mac) + mac(a.mac) + b"\x08\x00" + ip + segment


async def uplink_and_dscp(fabric, connection, dscp):
    """The port by which leaf1 sends a segment, and its DSCP at the far end."""

    def counted():
        counts = fabric.on_data_plane(lambda: fabric.switches["leaf1"].read_counter("egress_packets"))
        return [packets for packets, _ in counts]

    before = await asyncio.to_thread(counted)
    await from_host(fabric, "h1", frame("h1", "h3", connection, dscp))
    _, arrived = await at_host(fabric)
    after = await asyncio.to_thread(counted)
    (cell,) = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    return cell // 8, arrived[15] >> 2


def test_switches_pin_mark_and_let_go_of_a_connection(fabric, artefacts):
    async def scenario(fleet, witness):
        own = Connection(THERE, TCP, 40_000, 29_500, 26)
        await fleet.apply(DesiredState())
        # Without a plan, what a host marks with a level's DSCP is a mouse.
        by_hash, dscp = await uplink_and_dscp(fabric, own, 26)
        assert dscp != 26
        other = {3: "spine2", 4: "spine1"}[by_hash]
        for sent, planned in ((26, 26), (26, 10), (0, 10)):
            connection = Connection(THERE, TCP, 40_000, 29_500, sent)
            wanted = ConnectionPlan(connection, "h1", "h3", planned, (("leaf1", other),))
            assert await fleet.apply(DesiredState(connections=(wanted,))) == ()
            assert (await held(fleet, "leaf1"))[1] == 0
            assert await uplink_and_dscp(fabric, connection, sent) == (7 - by_hash, planned)
        assert await fleet.apply(DesiredState()) == ()
        assert await uplink_and_dscp(fabric, own, 26) == (by_hash, dscp)

    in_service(fabric, artefacts, scenario)


def test_joining_later_hears_the_paths_too():
    """A job of which one worker joins again: its agent is new, and gets the paths of the plan in force."""
    core = core_with_job()
    core.take_effects()
    core.handle(AgentUp("h3", "sockets", connects=(TCP,)))
    member = job("a", "h1", "h3")
    core.handle(WorkerJoined("h3", 1, member))
    assert {p.host for p in told(core)} == {"h3"}
