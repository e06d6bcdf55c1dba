# SPDX-License-Identifier: Apache-2.0
"""INT probes: on the wire, against the real pipeline's stack layout, and their bookkeeping."""

import struct

from hypothesis import given
from hypothesis import strategies as st
from probe_rig import push, travel

from controller.live.verify import (
    FABRIC_TIME_PROBES,
    HOST_CLOCK_PROBES,
    PROBES_IN_FLIGHT,
    TRIES,
    FiveTuple,
    Verifier,
    build_probe,
    parse_probe,
)
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=1, fabric_bps=1)
PATH = ("h1", "leaf1", "spine1", "leaf2", "h3")
FLOW = FiveTuple("10.0.1.1", "10.0.2.1", 50000)


@given(
    st.integers(0xC000, 0xFFFF),
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 2**32 - 1), max_size=8),
    st.sampled_from([("10.1.2.3", "10.4.5.6"), ("fd00::1", "2001:db8:0:1::a")]),
)
def test_a_probe_comes_back_with_its_hops_in_order(port, token, nodes, ends):
    flow = FiveTuple(*ends, port)
    frame = build_probe(flow, "02:00:00:00:00:01", "02:00:00:00:00:02", token)
    for node in nodes:
        frame = push(frame, node)
    probe = parse_probe(frame)
    assert probe.flow == flow
    assert probe.token == token
    assert [hop.node_id for hop in probe.hops] == nodes
    assert all((hop.queue_id, hop.occupancy) == (7, 4) for hop in probe.hops)


@given(st.binary(max_size=120))
def test_any_other_frame_is_none(data):
    assert parse_probe(data) is None


def test_a_probe_is_a_legal_packet_of_the_flow():
    frame = build_probe(FLOW, "02:00:00:00:00:01", "02:00:00:00:00:02", 1)
    header = struct.unpack("!10H", frame[14:34])
    total = sum(header)
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF
    assert header[1] == len(frame) - 14
    assert frame[15] >> 2 == 52
    assert struct.unpack("!HH", frame[34:38]) == (50000, 4791)
    assert struct.unpack("!H", frame[38:40])[0] == len(frame) - 34


def test_the_planned_way_is_verified_and_another_is_reported():
    verifier = Verifier(TOPOLOGY)
    (right,) = verifier.begin(0, [("f", PATH, 50000)])
    assert (right.switch, right.submit_to_ingress) == ("leaf1", True)
    (outcome,) = verifier.received(travel(TOPOLOGY, right.payload, "leaf1", "spine1", "leaf2"))
    assert outcome.verified
    (wrong,) = verifier.begin(0, [("f", PATH, 50000)])
    (outcome,) = verifier.received(travel(TOPOLOGY, wrong.payload, "leaf1", "spine2", "leaf2"))
    assert not outcome.verified
    assert outcome.seen == ("h1", "leaf1", "spine2", "leaf2", "h3")
    assert verifier.pending == frozenset()


def test_flows_of_one_five_tuple_share_a_probe():
    verifier = Verifier(TOPOLOGY)
    frames = verifier.begin(0, [("f", PATH, 50000), ("g", PATH, 50000), ("h", PATH, 50001)])
    assert len(frames) == 2
    outcomes = verifier.received(travel(TOPOLOGY, frames[0].payload, "leaf1", "spine1", "leaf2"))
    assert {o.flow for o in outcomes} == {"f", "g"}
    assert verifier.pending == {"h"}


def test_a_lost_probe_is_sent_again_and_then_given_up():
    verifier = Verifier(TOPOLOGY)
    verifier.begin(0, [("f", PATH, 50000)])
    now = 0
    for _ in range(TRIES - 1):
        now = verifier.next_timer_ns
        frames, outcomes = verifier.expire(now)
        assert len(frames) == 1
        assert outcomes == ()
    assert verifier.expire(now + FABRIC_TIME_PROBES.timeout_ns - 1) == ((), ())
    frames, (outcome,) = verifier.expire(now + FABRIC_TIME_PROBES.timeout_ns)
    assert frames == ()
    assert not outcome.verified
    assert outcome.seen == ()
    assert verifier.next_timer_ns is None


def test_a_stale_probe_settles_nothing():
    verifier = Verifier(TOPOLOGY)
    (old,) = verifier.begin(0, [("f", PATH, 50000)])
    verifier.begin(10, [("f", PATH, 50000)])
    assert verifier.received(travel(TOPOLOGY, old.payload, "leaf1", "spine1", "leaf2")) == ()
    assert verifier.pending == {"f"}


def test_the_loop_goes_on_between_some_probes_and_the_next() -> None:
    most = HOST_CLOCK_PROBES.at_once
    verifier = Verifier(TOPOLOGY, HOST_CLOCK_PROBES)
    begun = verifier.begin(0, [(f"f{port}", PATH, 0xC000 + port) for port in range(2 * PROBES_IN_FLIGHT)])
    assert len(begun) == most
    sent = most
    while sent < PROBES_IN_FLIGHT:
        assert verifier.next_timer_ns == 0
        frames, _ = verifier.expire(0)
        assert 0 < len(frames) <= most
        sent += len(frames)
    # The others wait until these come back, or are late.
    assert verifier.next_timer_ns == HOST_CLOCK_PROBES.timeout_ns
    again = 0
    while again < PROBES_IN_FLIGHT:
        assert verifier.next_timer_ns <= HOST_CLOCK_PROBES.timeout_ns
        frames, lost = verifier.expire(HOST_CLOCK_PROBES.timeout_ns)
        assert 0 < len(frames) <= most
        assert lost == ()
        again += len(frames)


def test_only_some_probes_are_in_flight_at_a_time() -> None:
    verifier = Verifier(TOPOLOGY)
    flows = [(f"f{port}", PATH, 0xC000 + port) for port in range(3 * PROBES_IN_FLIGHT)]
    sent = len(verifier.begin(0, flows))
    assert sent == PROBES_IN_FLIGHT
    # A flow that has ended makes room for the next one.
    verifier.forget("f0")
    assert verifier.next_timer_ns == 0
    assert len(verifier.next_frames(0)) == 1
    # None comes back: each is sent TRIES times, and then given up.
    lost = []
    while verifier.busy:
        frames, outcomes = verifier.expire(verifier.next_timer_ns)
        assert len(frames) <= PROBES_IN_FLIGHT
        sent += len(frames)
        lost += [outcome.flow for outcome in outcomes]
    assert sorted(lost) == sorted(name for name, _, _ in flows[1:])
    assert sent == TRIES * len(lost)
    assert verifier.next_timer_ns is None
