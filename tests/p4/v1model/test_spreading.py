# SPDX-License-Identifier: Apache-2.0
"""How the compiled program spreads the packets of a class over a group: random, in turn, by flowlets."""

import struct
import zlib
from collections import Counter
from ipaddress import IPv4Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from p4_bench import BTH, PROBE, TCP, UDP, A, flow_key, ipv4, make_bench, roce, roce6, udp

from bmv2.entries import Exact, TableEntry

GROUP, SPRAYED, HASHED = 5, 26, 30
DST = "10.0.2.1"
PORTS = (2, 3, 4, 5)
GAP_US, HALF_LIFE = 100, 6


def group_bench(weights=None):
    """A group towards 10.0.2.0/24. `weights` gives the number of buckets in a row of each port; without, the
    ports alternate."""
    bench = make_bench(ports=(1, *PORTS))
    bench.route("10.0.2.0/24", "set_ecmp_group_tier0", GROUP)
    for port in PORTS:
        bench.next_hop(port, port)
    in_order = [p for p, n in zip(PORTS, weights, strict=True) for _ in range(n)] if weights else PORTS
    for bucket in range(256):
        port = in_order[bucket % len(in_order)]
        backup = PORTS[(PORTS.index(port) + 1) % len(PORTS)]
        key = [Exact(GROUP), Exact(bucket)]
        bench.insert("ecmp", key, "set_next_hop_with_backup", port, port, backup)
    bench.clock.now = 2_000_000_000
    return bench


def spread(bench, action, *params, dscp=SPRAYED, group=GROUP):
    bench.insert("spread", [Exact(group), Exact(dscp)], action, *params)


def ports_of(bench, *frames):
    bench.sent.clear()
    return [port for port, _ in bench.push(1, *frames)]


ONE_FLOW = roce(dst=DST, dscp=SPRAYED)


def test_packets_of_a_flow_go_in_turn():
    bench = group_bench()
    assert len(set(ports_of(bench, *[ONE_FLOW] * 16))) == 1
    spread(bench, "spray_in_turn", 3)
    assert ports_of(bench, *[ONE_FLOW] * 514) == [PORTS[i % 4] for i in range(514)]


def test_packets_of_ipv6_go_in_turn():
    bench = group_bench()
    bench.route("fd00:2::/64", "set_ecmp_group_tier0", GROUP)
    spread(bench, "spray_in_turn", 3)
    frame = roce6(dst="fd00:2::1", dscp=SPRAYED)
    assert ports_of(bench, *[frame] * 64) == [PORTS[i % 4] for i in range(64)]


def test_weights_count_for_packets_in_turn():
    bench = group_bench(weights=(1, 2, 4, 1))
    spread(bench, "spray_in_turn", 0)
    assert Counter(ports_of(bench, *[ONE_FLOW] * 256)) == {2: 32, 3: 64, 4: 128, 5: 32}


def test_random_packets_spread_by_weight():
    bench = group_bench(weights=(1, 2, 4, 1))
    spread(bench, "spray_random")
    found = Counter(ports_of(bench, *[ONE_FLOW] * 4000))
    for port, part in zip(PORTS, (1 / 8, 2 / 8, 4 / 8, 1 / 8), strict=True):
        assert abs(found[port] - 4000 * part) < 5 * (4000 * part * (1 - part)) ** 0.5


@pytest.mark.parametrize(("action", "params"), [("spray_random", ()), ("spray_in_turn", (0,))])
def test_a_dead_port_is_left_to_its_backup(action, params):
    bench = group_bench()
    spread(bench, action, *params)
    bench.insert("port_state", [Exact(3)], "set_port_down")
    found = Counter(ports_of(bench, *[ONE_FLOW] * 400))
    assert set(found) == {2, 4, 5}
    assert found[4] > 1.5 * found[2]


def test_what_has_no_entry_keeps_its_hash():
    """Another class, another group, what is not RoCEv2, probes, and pinned flows."""
    bench = group_bench()
    bench.route("10.0.3.0/24", "set_ecmp_group_tier0", GROUP + 1)
    for bucket in range(256):
        bench.insert("ecmp", [Exact(GROUP + 1), Exact(bucket)], "set_next_hop", PORTS[bucket % 4])
    frames = (
        roce(dst=DST, dscp=HASHED),
        roce(dst="10.0.3.1", dscp=SPRAYED),
        ipv4(TCP, struct.pack("!HH", 9, 9) + bytes(16), dst=DST, dscp=SPRAYED),
        ipv4(UDP, udp(bytes(64), dport=80), dst=DST, dscp=SPRAYED),
        ipv4(UDP, udp(BTH), dst=DST, dscp=SPRAYED, fragment=0x2000),
        ipv4(UDP, udp(bytes.fromhex("10030000200008 10fc00000000000000")), dst=DST, dscp=PROBE),
    )
    before = [ports_of(bench, *[frame] * 8) for frame in frames]
    spread(bench, "spray_in_turn", 0)
    assert [ports_of(bench, *[frame] * 8) for frame in frames] == before
    assert all(len(set(ports)) == 1 for ports in before)
    bench.insert("pinned_flow", flow_key(A, DST), "set_next_hop", 5)
    assert ports_of(bench, *[ONE_FLOW] * 8) == [5] * 8


def test_classes_may_differ():
    bench = group_bench()
    spread(bench, "spray_in_turn", 0)
    spread(bench, "spray_random", dscp=22)
    frames = [f for _ in range(64) for f in (ONE_FLOW, roce(dst=DST, dscp=22), roce(dst=DST, dscp=HASHED))]
    found = ports_of(bench, *frames)
    assert found[::3] == [PORTS[i % 4] for i in range(64)]
    assert len(set(found[1::3])) == 4
    assert len(set(found[2::3])) == 1


def test_flowlets_go_to_idle_ports_and_stay_there():
    """Four flows that start together get a port each; none moves before it has paused."""
    bench = group_bench()
    spread(bench, "move_flowlets", GAP_US, HALF_LIFE, 3, 7)
    flows = [roce(dst=DST, dscp=SPRAYED, sport=0xC000 + i, size=900) for i in range(4)]
    first = ports_of(bench, *flows)
    assert sorted(first) == list(PORTS)
    for _ in range(50):
        bench.clock.now += 50_000
        assert ports_of(bench, *flows) == first


def test_a_flow_leaves_a_port_that_it_shares_after_a_pause_only():
    bench = group_bench()
    spread(bench, "move_flowlets", GAP_US, HALF_LIFE, 3, 0)
    flows = [roce(dst=DST, dscp=SPRAYED, sport=0xC000 + i, size=900) for i in range(8)]
    held = dict(zip(flows, ports_of(bench, *flows), strict=True))
    assert Counter(held.values()) == dict.fromkeys(PORTS, 2)
    lone, busy = flows[0], [f for f in flows if held[f] != held[flows[0]]]
    other = next(f for f in busy if held[f] == 5)
    still_busy = [f for f in busy if held[f] != 5]
    for _ in range(40):
        bench.clock.now += 90_000
        assert ports_of(bench, *still_busy) == [held[f] for f in still_busy]
    assert held[other] in (5,)
    free = {held[lone], 5}
    assert ports_of(bench, lone)[0] in free


def test_a_dead_port_does_not_look_idle():
    """What goes to the backup counts there, also under the dead port's bucket."""
    bench = group_bench()
    spread(bench, "move_flowlets", GAP_US, HALF_LIFE, 3, 0)
    bench.insert("port_state", [Exact(3)], "set_port_down")
    flows = [roce(dst=DST, dscp=SPRAYED, sport=0xC000 + i, size=900) for i in range(64)]
    ports_of(bench, *flows[:8])
    found = Counter(ports_of(bench, *flows[8:]))
    assert set(found) == {2, 4, 5}
    assert max(found.values()) <= 1.5 * min(found.values())


class Flowlets:
    """The definition, in plain Python: bytes that are halved each epoch, and eight comparisons at a start."""

    def __init__(self, gap, half_life, members):
        self.gap, self.half_life, self.members = gap, half_life, members
        self.flowlets, self.load, self.used = {}, {}, {}
        self.least = self.other = 0

    def _bytes(self, member, epoch):
        count, then = self.load.get(self.used.get(member, 0), (0, 0))
        return count >> min(epoch - then, 64)

    def port(self, now, frame):
        epoch = now >> self.half_life
        cell = zlib.crc32(frame[26:34] + frame[23:24] + frame[34:38]) >> 20
        last, member = self.flowlets.get(cell, (0, 0))
        if now - last >= self.gap:
            for _ in range(8):
                self.other = (self.other + 1) % self.members
                if self._bytes(self.other, epoch) < self._bytes(self.least, epoch):
                    self.least = self.other
            member = self.least
        self.flowlets[cell] = (now, member)
        port = self.used[member] = PORTS[member]
        count, then = self.load.get(port, (0, 0))
        self.load[port] = ((count >> min(epoch - then, 64)) + len(frame), epoch)
        return port


@given(
    packets=st.lists(
        st.tuples(st.integers(0, 300), st.integers(0, 9), st.integers(0, 1400)), min_size=1, max_size=80
    ),
    gap=st.integers(0, 250),
    half_life=st.integers(0, 12),
    members=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_flowlets_follow_their_definition(packets, gap, half_life, members):
    bench = group_bench()
    spread(bench, "move_flowlets", gap, half_life, members - 1, 9)
    model = Flowlets(gap, half_life, members)
    for wait, flow, size in packets:
        bench.clock.now += 1000 * wait
        frame = roce(dst=DST, dscp=SPRAYED, sport=0xC000 + flow, size=size)
        assert ports_of(bench, frame) == [model.port(bench.clock.now // 1000, frame)]


def test_the_address_of_the_group_is_what_the_tests_say():
    """The helpers above take the 5-tuple from fixed offsets."""
    frame = roce(dst=DST, sport=0xC123)
    assert frame[26:34] == IPv4Address(A).packed + IPv4Address(DST).packed
    assert frame[23] == UDP
    assert frame[34:36] == bytes.fromhex("c123")


SPREADS = {
    "random": ("spray_random",),
    "in turn": ("spray_in_turn", 0),
    "flowlets": ("move_flowlets", GAP_US, HALF_LIFE, 0, 0),
}


@pytest.mark.parametrize("action", SPREADS.values(), ids=SPREADS)
def test_a_group_of_one_has_one_way(action):
    bench = group_bench(weights=(0, 0, 1, 0))
    spread(bench, *action)
    frames = [roce(dst=DST, dscp=SPRAYED, sport=0xC000 + i) for i in range(64)]
    assert set(ports_of(bench, *frames)) == {4}


@pytest.mark.parametrize("action", SPREADS.values(), ids=SPREADS)
def test_a_member_without_weight_gets_nothing(action):
    bench = group_bench(weights=(0, 2, 0, 2))
    spread(bench, *action)
    frames = [roce(dst=DST, dscp=SPRAYED, sport=0xC000 + i) for i in range(64)]
    assert set(ports_of(bench, *frames)) <= {3, 5}


@pytest.mark.parametrize("action", SPREADS.values(), ids=SPREADS)
def test_where_all_members_are_dead_packets_are_lost_and_come_again_with_the_ports(action):
    bench = group_bench()
    spread(bench, *action)
    for port in PORTS:
        bench.insert("port_state", [Exact(port)], "set_port_down")
        bench.switch.set_port_up(port, False)
    assert ports_of(bench, *[ONE_FLOW] * 40) == []
    # A backup is asked for, and is dead as well: its queue counts what it loses.
    lost = [queue.drops for port in PORTS for queue in bench.switch.ports[port].queues]
    assert sum(lost) == 40
    for port in PORTS:
        bench.delete("port_state", [Exact(port)])
        bench.switch.set_port_up(port, True)
    assert len(ports_of(bench, *[ONE_FLOW] * 40)) == 40


def test_buckets_may_change_between_two_packets_and_one_that_is_missing_drops_its_own_only():
    bench = group_bench()
    spread(bench, "spray_in_turn", 0)
    assert ports_of(bench, *[ONE_FLOW] * 4) == list(PORTS)
    # The next packets are those of buckets 4 to 7.
    for bucket, port in ((4, 5), (6, 2)):
        key = (Exact(GROUP), Exact(bucket))
        bench.switch.modify("ecmp", TableEntry(key, 0, "set_next_hop", (port,)))
    bench.delete("ecmp", [Exact(GROUP), Exact(5)])
    assert ports_of(bench, *[ONE_FLOW] * 4) == [5, 2, 5]
    bench.delete("spread", [Exact(GROUP), Exact(SPRAYED)])
    assert len(set(ports_of(bench, *[ONE_FLOW] * 8))) == 1
