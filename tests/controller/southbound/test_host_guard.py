# SPDX-License-Identifier: Apache-2.0
"""The entries that guard ports to hosts."""

import pytest

from bmv2.entries import MeterConfig
from controller.model.traffic import TRAFFIC_CLASSES
from controller.routing.forwarding import forwarding
from controller.southbound.desired import METERS, EcnProfile, desired_entries
from controller.southbound.diff import UpdateType, difference
from controller.southbound.host_guard import (
    ANSWERS_PER_FRAME,
    SENDS,
    STRAY_ACTIONS,
    guard_entries,
    host_rates,
    pair_entries,
    rights_by_leaf,
)
from polyrhythm.paper.switch_link import FRAME_BYTES, RATE_BPS, SwitchLink, write_entry
from topo.addresses import in_families
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=10_000_000, fabric_bps=20_000_000)
FRAME = 1_082


def guards(strays, name="leaf1"):
    ports = forwarding(TOPOLOGY)[name].edge_ports
    return tuple(guard_entries(host_rates(TOPOLOGY, name, ports), TRAFFIC_CLASSES, FRAME, strays))


@pytest.mark.parametrize(
    ("strays", "action"), [("remark", ("remark_strays", (0,))), ("stop", ("stop_strays", ()))]
)
def test_ports_that_face_hosts_are_guarded_before_there_is_a_way(strays, action):
    entries = guards(strays)
    found = {dict(e.match)["port"]: (e.action, e.params) for e in entries if e.table == "edge_ingress"}
    assert found == dict.fromkeys((1, 2), action)
    ways = desired_entries(
        TOPOLOGY.switch["leaf1"], forwarding(TOPOLOGY)["leaf1"], TRAFFIC_CLASSES, EcnProfile(5, 50, 0.1)
    )
    stage = {c.entry.table: i for i, stage in enumerate(difference((), ways + entries)) for c in stage}
    guarding = ("edge_ingress", "host_dscp", "answer_rate", "cpu_rate")
    assert max(stage[table] for table in guarding) < stage["routing"]
    assert guards(strays, "spine1") == ()


@pytest.mark.parametrize("strays", ["remark", "stop"])
def test_every_dscp_above_the_lowest_queue_is_asked_for_its_right(strays):
    """A DSCP that a switch would let into a higher queue without a question would be a hole."""
    asked = {dict(e.match)["dscp"] for e in guards(strays) if e.table == "host_dscp"}
    assert asked == {dscp for dscp, qid in TRAFFIC_CLASSES.queues.items() if qid > 0}
    lowest = {e.params for e in guards(strays) if e.table == "host_dscp"}
    assert [TRAFFIC_CLASSES.queues[dscp] for (dscp,) in lowest] == [0]


def test_answers_are_bounded_by_the_rate_of_the_port():
    cells = {e.match: e.params for e in guards("remark") if e.table == "answer_rate"}
    assert set(cells) == {(("index", 1),), (("index", 2),)}
    rate, _, peak, _ = cells[(("index", 1),)]
    assert rate == peak
    # 10 Mbit/s are 1,155 full frames a second.
    assert rate - 1 < ANSWERS_PER_FRAME * 10_000_000 / 8 / FRAME <= rate


@pytest.mark.parametrize("flows", [1, 4, 8])
def test_a_host_that_many_marked_flows_reach_may_send_all_its_answers(flows):
    """Each marked packet asks for a CNP there. Answers that wait behind all data cause time-outs."""
    link = SwitchLink(flows, ramp=(5, 20), seed=1)
    guarded = link.switches["leaf2"]
    receiver = link.topology.hosts[flows]
    pairs = [(h.name, receiver.name) for h in link.topology.hosts[:flows]]
    rights = rights_by_leaf(link.topology, pairs, ())["leaf2"]
    ports = {receiver.leaf_port: RATE_BPS}
    for entry in guard_entries(ports, TRAFFIC_CLASSES, FRAME_BYTES, "remark"):
        if entry.table in METERS:
            guarded.set_meter(entry.table, dict(entry.match)["index"], MeterConfig(*entry.params))
        else:
            write_entry(guarded, entry)
    for entry in pair_entries(link.topology, rights, "remark"):
        write_entry(guarded, entry)
    receives = [link.nics[flows].listen(f"j/{i}", link.ips[i], lambda q, n: None) for i in range(flows)]
    for i in range(flows):
        link.nics[i].open_qp(f"j/{i}", link.ips[flows], 0xC000 + i, 30).post(10_000_000, lambda: None)
    link.heap.call_at(2_000_000_000, setattr, link.heap, "stop", True)
    link.heap.run()
    assert sum(queue.packets for queue in receives) > 0.9 * 2 * RATE_BPS / 8 / FRAME_BYTES
    assert (sum(queue.cnps_sent for queue in receives) > 1_000) == (flows > 1)
    counts = guarded.read_counter("stray_packets")
    assert sum(packets for packets, _ in counts) == 0


def test_where_hosts_are_trusted_nothing_is_guarded():
    assert "trust" in STRAY_ACTIONS
    assert guards("trust") == ()
    assert tuple(pair_entries(TOPOLOGY, {("h1", "h3"): "trust_pair"}, "trust")) == ()


@pytest.mark.parametrize(
    ("pairs", "mice", "rights"),
    [
        ([("h2", "h3")], [], {("h2", "h3"): "trust_pair", ("h3", "h2"): "trust_answering_pair"}),
        ([], [("h2", "h3")], {("h3", "h2"): "trust_answering_pair"}),
        (
            [("h2", "h3"), ("h3", "h2")],
            [],
            dict.fromkeys([("h2", "h3"), ("h3", "h2")], "trust_pair_both_ways"),
        ),
        (
            [("h2", "h3")],
            [("h3", "h2")],
            {("h2", "h3"): "trust_pair_both_ways", ("h3", "h2"): "trust_answering_pair"},
        ),
    ],
    ids=["one way", "mice", "both ways", "mice on the way back"],
)
def test_each_end_of_a_flow_has_its_rights_at_its_own_port(pairs, mice, rights):
    by_leaf = rights_by_leaf(TOPOLOGY, pairs, mice)
    assert {ends: right for own in by_leaf.values() for ends, right in own.items()} == rights
    for leaf, own in by_leaf.items():
        for entry, (host, other) in zip(pair_entries(TOPOLOGY, own, "remark"), own, strict=True):
            match = dict(entry.match)
            assert (TOPOLOGY.host[host].leaf, TOPOLOGY.host[host].leaf_port) == (leaf, match["port"])
            assert [match[f"ipv4_{end}"].to_bytes(4) for end in ("src", "dst")] == [
                bytes(map(int, TOPOLOGY.host[h].ip.split("."))) for h in (host, other)
            ]
            assert entry.action == rights[host, other]


def test_a_cell_of_a_meter_is_modified_and_never_deleted():
    stages = difference((), guards("remark"))
    kinds = {c.operation for stage in stages for c in stage if c.entry.table in METERS}
    assert kinds == {UpdateType.MODIFY}
    back = difference(guards("remark"), ())
    assert not METERS & {c.entry.table for stage in back for c in stage}


def test_an_ipv6_pair_has_its_own_table():
    (entry,) = pair_entries(in_families(TOPOLOGY, "ipv6"), {("h2", "h3"): SENDS}, "remark")
    assert entry.table == "planned_pair_ipv6"
    assert [name for name, _ in entry.match] == ["port", "ipv6_src", "ipv6_dst"]
