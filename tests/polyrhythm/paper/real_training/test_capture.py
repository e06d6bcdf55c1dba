# SPDX-License-Identifier: Apache-2.0
"""What is read from tcpdump's files."""

from __future__ import annotations

import struct
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.paper.real_training.capture import Tuple5, payload_bytes

HEAD = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, 1)
KEPT = 96


def frame(flow: Tuple5, size: int, options: int, protocol: int = 6) -> bytes:
    """A record of an IPv4 packet with `size` payload bytes and `options` words of TCP options."""
    tcp = struct.pack(">HHIIBB6x", flow.source_port, flow.destination_port, 1, 1, 5 + options << 4, 16)
    tcp += bytes(4 * options)
    addresses = b"".join(bytes(map(int, ip.split("."))) for ip in (flow.source, flow.destination))
    ip = struct.pack(">BBHIBBH", 0x45, 0, 20 + len(tcp) + size, 0, 64, protocol, 0) + addresses
    whole = bytes(12) + b"\x08\x00" + ip + tcp + bytes(size)
    return struct.pack("=IIII", 1, 2, min(len(whole), KEPT), len(whole)) + whole[:KEPT]


ports = st.integers(1, 65535)
flows = st.builds(Tuple5, st.just("10.0.0.1"), ports, st.sampled_from(["10.0.1.1", "10.0.1.2"]), ports)


@given(st.lists(st.tuples(flows, st.integers(0, 9000), st.integers(0, 10))), st.integers(0, 200))
def test_payload_counts_by_direction_also_of_cut_frames_and_files(
    sent: list[tuple[Tuple5, int, int]], cut: int
) -> None:
    records = [frame(*each) for each in sent]
    wanted: Counter[Tuple5] = Counter()
    for flow, size, _ in sent:
        wanted[flow] += size
    assert payload_bytes(HEAD + b"".join(records)) == wanted
    # tcpdump was killed in the middle of a record: all whole ones count.
    if records and cut < len(records[-1]):
        wanted[sent[-1][0]] -= sent[-1][1]
        whole = HEAD + b"".join(records)
        found = payload_bytes(whole[: len(whole) - len(records[-1]) + cut])
        assert +found == +wanted


def test_other_protocols_do_not_count_and_other_files_are_refused() -> None:
    flow = Tuple5("10.0.0.1", 1, "10.0.1.1", 2)
    arp = struct.pack("=IIII", 1, 2, 42, 42) + bytes(12) + b"\x08\x06" + bytes(28)
    assert payload_bytes(HEAD + frame(flow, 100, 0, protocol=17) + arp) == Counter()
    assert payload_bytes(b"") == Counter()
    with pytest.raises(ValueError, match="no capture of Ethernet"):
        payload_bytes(HEAD[:20] + struct.pack("=I", 113))
