# SPDX-License-Identifier: Apache-2.0
"""What the controller's entries make of real frames: strays at the edge, and ports that die."""

import asyncio
import struct
from functools import partial
from ipaddress import IPv4Address

import pytest
from control_rig import running
from finsy.proto import p4r
from fleet_rig import held, in_service, until
from rocev2 import at_host, from_host, roce

from bmv2 import EmbeddedSwitch, PortTable
from bmv2.server import serve
from controller.live.verify import FiveTuple, build_probe, parse_probe
from controller.model.traffic import TRAFFIC_CLASSES
from controller.southbound.codec import STRAY_COUNTER
from controller.southbound.host_guard import STRAY_REASONS, TCP, HostGuard, LevelFlow
from controller.southbound.table_writes import DesiredState, FabricCondition
from hostagent.nic.roce import internet_checksum

CNP, ACK_OPCODE, CNP_OPCODE = 48, 0x11, 0x81
PROBES, CNPS = 0, 1
METER = 0x14000001


def strays(fabric, host):
    """(probes, false CNPs) counted at a host's port."""
    place = fabric.topology.host[host]
    counts = fabric.on_data_plane(lambda: fabric.switches[place.leaf].read_counter("stray_packets"))
    return tuple(counts[place.leaf_port * 8 + kind][0] for kind in (PROBES, CNPS))


@pytest.mark.parametrize("rule", ["remark", "stop"])
def test_strays_of_a_host_are_counted_and_remarked_or_stopped(fabric, artefacts, rule):
    topology = fabric.topology
    probe = build_probe(
        FiveTuple(topology.host["h1"].ip, topology.host["h3"].ip, 0xC123),
        topology.host["h1"].mac,
        topology.switch["leaf1"].mac,
        7,
    )
    false_cnp = roce(topology, "h1", "h3", 0xC123, CNP, ACK_OPCODE)
    honest = [roce(topology, "h1", "h3", 0xC123, d, o) for d, o in ((CNP, CNP_OPCODE), (50, ACK_OPCODE))]

    async def scenario(fleet, witness):
        # h1 answers what a plan lets h3 send to it.
        assert await fleet.apply(DesiredState(pairs=(("h3", "h1"),))) == ()
        await from_host(fabric, "h1", probe)
        await from_host(fabric, "h1", false_cnp)
        for frame in honest:
            await from_host(fabric, "h1", frame)
        arrived = [await at_host(fabric) for _ in range(2 if rule == "stop" else 4)]
        assert {host for host, _ in arrived} == {"h3"}
        dscps = [frame[15] >> 2 for _, frame in arrived]
        # CNPs and acknowledgements share the first queue and pass before what was remarked.
        assert sorted(dscps) == ([48, 50] if rule == "stop" else [0, 0, 48, 50])
        assert await asyncio.to_thread(strays, fabric, "h1") == (1, 1)
        assert await asyncio.to_thread(strays, fabric, "h2") == (0, 0)
        assert witness.packets == []
        # The controller's own probe enters by packet-out, and passes.
        assert await fleet.packet_out("leaf1", probe, 0, True)
        await until(lambda: witness.packets)
        ((name, packet),) = witness.packets
        assert name == "leaf2"
        assert [hop.node_id for hop in parse_probe(packet.payload).hops][::2] == [1, 2]
        assert await asyncio.to_thread(strays, fabric, "h1") == (1, 1)

    in_service(fabric, artefacts, scenario, guard=HostGuard(rule))


def uplinks(fabric):
    """How many frames leaf1 has sent by each of its uplinks, by the queue of DSCP 26."""
    qid = 5
    counts = fabric.on_data_plane(lambda: fabric.switches["leaf1"].read_counter("egress_packets"))
    return tuple(counts[port * 8 + qid][0] for port in (3, 4))


async def send_all(fabric, ports):
    """One frame for each source port, and what of them arrives."""
    for sport in ports:
        await from_host(fabric, "h1", roce(fabric.topology, "h1", "h3", sport, 26, 0))
    return [await at_host(fabric) for _ in ports]


PORTS = range(0xC000, 0xC000 + 40)
PAIRS = (("h1", "h3"),)


@pytest.fixture
def watchful(topology):
    """A fabric whose switches enter their own dead ports, as a real one's software does."""
    kept = PortTable("port_state", "set_port_down")
    with running(topology, serve, partial(EmbeddedSwitch, port_table=kept)) as rig:
        yield rig


def test_a_dead_port_is_left_before_the_controller_says_anything(watchful, artefacts):
    async def scenario(fleet, witness):
        assert await fleet.apply(DesiredState(pairs=PAIRS)) == ()
        await send_all(watchful, PORTS)
        before = await asyncio.to_thread(uplinks, watchful)
        assert min(before) > 8
        leaf = watchful.switches["leaf1"]
        await asyncio.to_thread(watchful.on_data_plane, lambda: leaf.set_port_up(3, False))
        # Nobody has told the fleet of anything: its tables are the intact fabric's.
        await send_all(watchful, PORTS)
        after = await asyncio.to_thread(uplinks, watchful)
        assert (after[0] - before[0], after[1] - before[1]) == (0, len(PORTS))
        # The controller finds out and writes the same; then the port is up again.
        down = FabricCondition(frozenset({("leaf1", "spine1")}))
        assert await fleet.apply(DesiredState(down, pairs=PAIRS)) == ()
        await send_all(watchful, PORTS)
        await asyncio.to_thread(watchful.on_data_plane, lambda: leaf.set_port_up(3, True))
        assert await fleet.apply(DesiredState(pairs=PAIRS)) == ()
        await send_all(watchful, PORTS)
        last = await asyncio.to_thread(uplinks, watchful)
        assert last[0] - after[0] == before[0]

    in_service(watchful, artefacts, scenario)


def test_where_a_switch_enters_no_port_states_the_controller_does(fabric, artefacts):
    def entered():
        return fabric.on_data_plane(lambda: fabric.switches["leaf1"].table("port_state").entries())

    async def scenario(fleet, witness):
        assert await fleet.apply(DesiredState(FabricCondition(frozenset({("leaf1", "spine1")})))) == ()
        held = await asyncio.to_thread(entered)
        assert [entry.match[0].value for entry in held] == [3]
        assert await fleet.apply(DesiredState(FabricCondition())) == ()
        assert await asyncio.to_thread(entered) == []

    in_service(fabric, artefacts, scenario)


async def dscps_at_h3(fabric, frames):
    """The DSCPs under which frames from h1 arrive."""
    for frame in frames:
        await from_host(fabric, "h1", frame)
    return sorted([(await at_host(fabric))[1][15] >> 2 for _ in frames])


def test_levels_are_for_planned_pairs(fabric, artefacts):
    """The plan comes and goes, and what was remarked is counted by port and reason."""
    topology = fabric.topology
    levels = [roce(topology, "h1", "h3", 0xC001, dscp, 0) for dscp in TRAFFIC_CLASSES.levels]

    async def scenario(fleet, witness):
        assert await dscps_at_h3(fabric, levels) == [0] * len(levels)
        assert await fleet.apply(DesiredState(pairs=PAIRS)) == ()
        assert await dscps_at_h3(fabric, levels) == sorted(TRAFFIC_CLASSES.levels)
        assert await fleet.apply(DesiredState()) == ()
        assert await dscps_at_h3(fabric, levels) == [0] * len(levels)
        counts = (await fleet.read_counters())["leaf1"]
        found = {
            (c.port, STRAY_REASONS[c.qid]): c.packets
            for c in counts
            if c.counter == STRAY_COUNTER and c.packets
        }
        assert found.pop((topology.host["h1"].leaf_port, "unplanned")) == 2 * len(levels)
        assert not found

    in_service(fabric, artefacts, scenario)


def test_answers_are_for_receivers_of_planned_flows(fabric, artefacts):
    answers = [
        roce(fabric.topology, "h1", "h3", 0xC123, d, o) for d, o in ((CNP, CNP_OPCODE), (50, ACK_OPCODE))
    ]

    async def scenario(fleet, witness):
        assert await dscps_at_h3(fabric, answers) == [0, 0]
        for kind in ("pairs", "mice_pairs"):
            assert await fleet.apply(DesiredState(**{kind: (("h3", "h1"),)})) == ()
            assert await dscps_at_h3(fabric, answers) == [48, 50]
        assert await fleet.apply(DesiredState(pairs=PAIRS)) == ()
        assert await dscps_at_h3(fabric, answers) == [0, 0]

    in_service(fabric, artefacts, scenario)


def test_level_flows_of_the_description_keep_levels_both_ways(fabric, artefacts):
    """TCP of h1 to h3, listed; of h1 to h3 from another port; and UDP between the same ports."""
    guard = HostGuard(level_flows=(LevelFlow("h1", "h3", TCP, 40_000, 29_500),))
    host = fabric.topology.host

    def frame(src, dst, sport, dport, protocol=TCP):
        ends = (IPv4Address(host[src].ip).packed, IPv4Address(host[dst].ip).packed)
        bare = struct.pack(">BBHHHBBH4s4s", 0x45, 26 << 2, 60, 0, 0, 64, protocol, 0, *ends)
        head = bare[:10] + struct.pack(">H", internet_checksum(bare)) + bare[12:]
        return bytes(12) + b"\x08\x00" + head + struct.pack(">HH", sport, dport) + bytes(36)

    async def arrives(src, dst, *ports):
        await from_host(fabric, src, frame(src, dst, *ports))
        return (await at_host(fabric))[1][15] >> 2

    async def scenario(fleet, witness):
        assert await arrives("h1", "h3", 40_000, 29_500) == 26
        assert await arrives("h3", "h1", 29_500, 40_000) == 26
        for other in (
            ("h1", "h3", 40_001, 29_500),
            ("h1", "h3", 40_000, 29_500, 17),
            ("h3", "h2", 29_500, 40_000),
        ):
            assert await arrives(*other) == 0

    in_service(fabric, artefacts, scenario, guard=guard)


def test_a_meter_that_lost_its_rates_is_found_and_set_again(fabric, artefacts):
    async def scenario(fleet, witness):
        assert (await held(fleet, "leaf1"))[1] == 0
        empty = p4r.MeterEntry(meter_id=METER, index=p4r.Index(index=1))
        update = p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(meter_entry=empty))
        write = p4r.WriteRequest(device_id=1, updates=[update]).SerializeToString()
        assert await fleet.clients["leaf1"].write(((write,),)) == ()
        assert (await held(fleet, "leaf1"))[1] == 1
        await fleet.read_back()
        assert (await held(fleet, "leaf1"))[1] == 0

    in_service(fabric, artefacts, scenario)
