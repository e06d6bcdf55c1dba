# SPDX-License-Identifier: Apache-2.0
"""A fabric of both address families: plans, what the controller writes for them, and what switches do by it."""

import asyncio

import pytest
from control_rig import RATE_BPS
from fleet_rig import held, in_service, until
from plan_rig import job, walk

from controller.live.verify import FiveTuple, build_probe, parse_probe
from controller.model.plan import FlowPin, FlowRemark
from controller.planner import POLICIES, PlanInput, plan
from controller.routing.forwarding import forwarding
from controller.routing.paths import paths, port_for_path
from controller.southbound.table_writes import DesiredState
from topo.addresses import in_families
from topo.generate import leaf_spine, three_tier

PAIRS = (("h1", "h3"), ("h2", "h4"))


@pytest.fixture
def topology():
    """h1 and h3 send over IPv6, h2 and h4 over IPv4; every host has both."""
    plain = leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
    return in_families(plain, "ipv6+ipv4", {"h2": "ipv4+ipv6", "h4": "ipv4+ipv6"})


async def probed(fabric, fleet, witness, src, dst, sport, dst_ip=""):
    """The switches that a probe of a flow passes."""
    a, b = fabric.topology.host[src], fabric.topology.host[dst]
    flow = FiveTuple(a.ip, dst_ip or b.ip, sport)
    probe = build_probe(flow, a.mac, fabric.topology.switch[a.leaf].mac, sport)
    count = len(witness.packets)
    assert await fleet.packet_out(a.leaf, probe, 0, True)
    await until(lambda: len(witness.packets) > count)
    returned = parse_probe(witness.packets[-1][1].payload)
    assert (returned.flow, returned.token) == (flow, sport)
    names = {s.device_id: s.name for s in fabric.topology.switches}
    return (src, *(names[hop.node_id] for hop in returned.hops), dst)


def test_probes_of_both_families_take_the_paths_of_their_source_ports(fabric, artefacts):
    table = forwarding(fabric.topology)

    async def scenario(fleet, witness):
        assert await fleet.apply(DesiredState(pairs=PAIRS)) == ()
        for src, dst in PAIRS:
            ways = paths(fabric.topology, table, src, dst)
            assert len(ways) == 2
            for way in ways:
                sport = port_for_path(fabric.topology, table, way)
                assert await probed(fabric, fleet, witness, src, dst, sport) == way
        for leaf in ("leaf1", "leaf2"):
            entries, updates = await held(fleet, leaf)
            assert updates == 0
            assert entries > 256

    in_service(fabric, artefacts, scenario)


def test_the_other_address_of_a_host_is_reached_too(fabric, artefacts):
    async def scenario(fleet, witness):
        assert await fleet.apply(DesiredState()) == ()
        # h2 sends from its IPv4 address to that of h3, which jobs reach over IPv6.
        (other,) = fabric.topology.host["h3"].other_ips
        seen = await probed(fabric, fleet, witness, "h2", "h3", 0xC000, other)
        assert (seen[:2], seen[-2:]) == (("h2", "leaf1"), ("leaf2", "h3"))

    in_service(fabric, artefacts, scenario)


def test_single_flows_of_both_families_are_pinned_and_remarked(fabric, artefacts):
    table = forwarding(fabric.topology)

    async def scenario(fleet, witness):
        pins, remarks, other = [], [], {}
        for src, dst in PAIRS:
            first, second = paths(fabric.topology, table, src, dst)
            sport = port_for_path(fabric.topology, table, first)
            other[src] = second, sport
            pins.append(FlowPin(f"j/{src}>{dst}", "leaf1", second[2], src, dst, sport))
            remarks.append(FlowRemark(f"j/{src}>{dst}", "leaf1", src, dst, sport, 26, 10))
        wanted = DesiredState(pins=tuple(pins), remarks=tuple(remarks), pairs=PAIRS)
        assert await fleet.apply(wanted) == ()
        for src, dst in PAIRS:
            way, sport = other[src]
            assert await probed(fabric, fleet, witness, src, dst, sport) == way
        leaf = fabric.switches["leaf1"]
        for name in ("pinned_flow", "remark_flow"):
            for family in (name, f"{name}_ipv6"):
                found = await asyncio.to_thread(
                    fabric.on_data_plane, lambda family=family: leaf.table(family).entries()
                )
                assert len(found) == 1, family
        assert await fleet.apply(DesiredState(pairs=PAIRS)) == ()
        assert (await held(fleet, "leaf1"))[1] == 0

    in_service(fabric, artefacts, scenario)


@pytest.mark.parametrize("families", ["ipv4", "ipv6"])
@pytest.mark.parametrize(
    "fabric_of",
    [
        lambda: leaf_spine(4, 3, 3, host_bps=RATE_BPS, fabric_bps=RATE_BPS),
        lambda: three_tier(2, 2, 2, 2, 3, host_bps=RATE_BPS, fabric_bps=RATE_BPS),
    ],
    ids=["leaf-spine", "three tiers"],
)
def test_the_source_ports_of_a_plan_lead_along_its_paths(families, fabric_of):
    """By the plain walk of the tables, with zlib's CRC of the bytes on the wire."""
    topology = in_families(fabric_of(), families)
    jobs = tuple(job(f"j{i}", [f"h{i}", f"h{i + 3}", f"h{i + 6}"], 200, 60) for i in range(1, 4))
    made = plan(PlanInput(topology, jobs, POLICIES["polyrhythm"], 0))
    assert made.flows
    for flow in made.flows.values():
        assert flow.source_port is not None
        assert tuple(walk(topology, frozenset(), flow.path[0], flow.path[-1], flow.source_port)) == flow.path


def test_a_flow_between_two_families_is_refused(topology):
    with pytest.raises(ValueError, match="h1 and h2 have addresses of two families"):
        plan(PlanInput(topology, (job("j", ["h1", "h2"], 200, 60),), POLICIES["polyrhythm"], 0))
