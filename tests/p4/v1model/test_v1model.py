# SPDX-License-Identifier: Apache-2.0
"""What the compiled program does for single flows and for dead ports."""

import pytest
from p4_bench import BTH, ICMP, TCP, UDP, as_forwarded, flow_key, ipv4, make_bench, roce, udp

from bmv2.entries import Exact

GROUP = 5
PORTS = (11, 12, 13)


@pytest.fixture
def spread():
    """Prefix 10.0.2.0/24 spreads over ports 11 to 13 (next hops of the same numbers), each bucket with a
    backup at the next port; 10.0.3.0/24 goes to port 11 by a plain next hop."""
    bench = make_bench(ports=(1, *PORTS))
    for port in PORTS:
        bench.next_hop(port, port)
    bench.route("10.0.2.0/24", "set_ecmp_group_tier1", GROUP)
    bench.route("10.0.3.0/24", "set_next_hop", 11)
    for bucket in range(256):
        port, backup = PORTS[bucket % 3], PORTS[(bucket + 1) % 3]
        bench.insert("ecmp", [Exact(GROUP), Exact(bucket)], "set_next_hop_with_backup", port, port, backup)
    return bench


def flows(count=96, dst="10.0.2.1"):
    return [roce(dst=dst, sport=0xC000 + index) for index in range(count)]


def ports_of(bench, frames):
    """The port that each frame leaves by, None where it is dropped."""
    ports = []
    for frame in frames:
        bench.sent.clear()
        ports.append(next((port for port, _ in bench.push(1, frame)), None))
    return ports


# --- pinned flows ---------------------------------------------------------------------------------------


def test_a_pinned_flow_leaves_the_hash_and_no_other_does(spread):
    frames = flows()
    before = ports_of(spread, frames)
    chosen = before.index(12)
    key = flow_key(dst="10.0.2.1", sport=0xC000 + chosen)
    spread.insert("pinned_flow", key, "set_next_hop", 13)
    after = ports_of(spread, frames)
    assert after[chosen] == 13
    assert after[:chosen] + after[chosen + 1 :] == before[:chosen] + before[chosen + 1 :]
    spread.delete("pinned_flow", key)
    assert ports_of(spread, frames) == before


@pytest.mark.parametrize("part", range(5))
def test_a_pin_needs_the_whole_5_tuple(spread, part):
    [frame] = flows(1)
    [before] = ports_of(spread, [frame])
    key = flow_key(dst="10.0.2.1", sport=0xC000)
    key[part] = Exact(key[part].value ^ 1)
    spread.insert("pinned_flow", key, "set_next_hop", PORTS[(PORTS.index(before) + 1) % 3])
    assert ports_of(spread, [frame]) == [before]


@pytest.mark.parametrize(
    ("frame", "key"),
    [
        (ipv4(TCP, b"\x01\xbb\xc3\x50" + bytes(16), dst="10.0.2.1"), (TCP, 443, 50000)),
        (ipv4(ICMP, b"\x08\0ping", dst="10.0.2.1"), (ICMP, 0, 0)),
        (ipv4(UDP, udp(BTH), dst="10.0.2.1", fragment=0x2000), (UDP, 0, 0)),
    ],
    ids=["tcp", "icmp", "fragment"],
)
@pytest.mark.parametrize("port", PORTS)
def test_anything_with_the_hashs_fields_can_be_pinned(spread, frame, key, port):
    spread.insert("pinned_flow", flow_key("10.0.0.2", "10.0.2.1", *key), "set_next_hop", port)
    assert spread.push(1, frame) == [(port, as_forwarded(frame))]


def test_a_pin_does_not_bend_a_route_without_a_choice(spread):
    spread.insert("pinned_flow", flow_key(dst="10.0.3.1", sport=0xC000), "set_next_hop", 13)
    assert ports_of(spread, flows(1, dst="10.0.3.1")) == [11]


def test_a_pin_to_no_next_hop_drops(spread):
    spread.insert("pinned_flow", flow_key(dst="10.0.2.1", sport=0xC000), "set_next_hop", 999)
    assert ports_of(spread, flows(1)) == [None]


# --- dead ports -----------------------------------------------------------------------------------------


def test_a_dead_port_is_left_for_the_backups_and_taken_again(spread):
    frames = flows()
    before = ports_of(spread, frames)
    assert set(before) == set(PORTS)
    spread.insert("port_state", [Exact(12)], "set_port_down")
    assert ports_of(spread, frames) == [13 if port == 12 else port for port in before]
    spread.delete("port_state", [Exact(12)])
    assert ports_of(spread, frames) == before


def test_the_frame_bears_the_backups_addresses(spread):
    """The MAC rewrite is the backup's: the packet goes to another neighbour."""
    spread.next_hop(77, 13, src_mac=0x02DD00000001, dst_mac=0x02DD00000002)
    spread.insert(
        "pinned_flow", flow_key(dst="10.0.2.1", sport=0xC000), "set_next_hop_with_backup", 11, 11, 77
    )
    spread.insert("port_state", [Exact(11)], "set_port_down")
    [(port, frame)] = spread.push(1, *flows(1))
    assert port == 13
    assert frame[:12].hex() == "02dd00000002" + "02dd00000001"
    assert frame[22] == 63


def test_where_no_backup_is_named_the_state_of_the_port_is_not_asked(spread):
    spread.insert("port_state", [Exact(11)], "set_port_down")
    assert ports_of(spread, flows(3, dst="10.0.3.1")) == [11] * 3


def test_a_dead_backup_is_not_replaced_again(spread):
    """One step aside, no more: the controller writes the rest."""
    frames = flows()
    before = ports_of(spread, frames)
    for port in (12, 13):
        spread.insert("port_state", [Exact(port)], "set_port_down")
    after = {11: 11, 12: 13, 13: 11}
    assert ports_of(spread, frames) == [after[port] for port in before]


def test_only_the_packets_of_the_outage_are_lost_and_the_counters_tell(spread):
    """Drops of a port and queue are what was admitted less what was sent, once nothing waits."""
    frames = [frame for frame, port in zip(flows(), ports_of(spread, flows()), strict=True) if port == 12]
    spread.sent.clear()
    spread.switch.set_port_up(12, False)
    spread.push(1, *frames)
    assert spread.sent == []
    spread.insert("port_state", [Exact(12)], "set_port_down")
    assert {port for port, _ in spread.push(1, *frames)} == {13}
    admitted, sent = (
        {cell: packets for cell, (packets, _) in spread.counted(name).items()}
        for name in ("ingress_packets", "egress_packets")
    )
    drops = {cell: packets - sent.get(cell, 0) for cell, packets in admitted.items()}
    assert {cell: packets for cell, packets in drops.items() if packets} == {(12, 0): len(frames)}
    assert spread.switch.ports[12].queues[0].drops == len(frames)
