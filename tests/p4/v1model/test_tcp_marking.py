# SPDX-License-Identifier: Apache-2.0
"""ECN-capable TCP is marked by a ramp of its own, where the controller has written one."""

import struct

import pytest
from p4_bench import TCP, ipv4, ipv6, roce

from bmv2.entries import Exact, Range

CE, ECT0, NOT_ECT = 3, 2, 0
NEVER, ALWAYS = 0, 0xFFFF
DEEPEST = 2**19 - 1
SEGMENT = struct.pack("!HHIIBBHHH", 40_000, 29_500, 1, 1, 0x50, 0x10, 512, 0, 0) + b"gradient"


@pytest.fixture
def bench(bench):
    bench.route("fd00:0:0:1::/64", "set_next_hop", 7)
    return bench


def frames(ecn):
    """TCP over both families, RoCEv2, and a fragment of TCP, which has no ports but is TCP."""
    return {
        "tcp": ipv4(TCP, SEGMENT, ecn=ecn),
        "tcp6": ipv6(TCP, SEGMENT, ecn=ecn),
        "fragment": ipv4(TCP, SEGMENT, ecn=ecn, fragment=0x2000),
        "roce": roce(ecn=ecn),
    }


def ramp(bench, table, action, low, high, probability):
    bench.insert(table, [Exact(0), Range(low, high)], action, probability, priority=1)


def marked(bench, ecn=ECT0):
    """Which frames leave with CE."""
    found = set()
    for name, frame in frames(ecn).items():
        bench.sent.clear()
        [(_, out)] = bench.push(1, frame)
        mark = out[15] & 3 if out[12:14] == b"\x08\x00" else out[15] >> 4 & 3
        found |= {name} if mark == CE else set()
    return found


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        (ALWAYS, NEVER, {"tcp", "tcp6", "fragment"}),
        (NEVER, ALWAYS, {"roce"}),
        (None, ALWAYS, {"tcp", "tcp6", "fragment", "roce"}),
    ],
)
def test_each_ramp_marks_its_own(bench, own, other, expected):
    """Without entries in ecn_tcp, ecn marks TCP too."""
    ramp(bench, "ecn", "set_mark_probability", 0, DEEPEST, other)
    if own is not None:
        ramp(bench, "ecn_tcp", "set_tcp_mark_probability", 0, DEEPEST, own)
    assert marked(bench) == expected
    assert sum(packets for packets, _ in bench.counted("ecn_marks").values()) == len(expected)


def test_only_a_depth_that_has_an_entry_is_its_own(bench):
    ramp(bench, "ecn", "set_mark_probability", 0, DEEPEST, ALWAYS)
    ramp(bench, "ecn_tcp", "set_tcp_mark_probability", 1, DEEPEST, NEVER)
    assert marked(bench) == set(frames(ECT0))


@pytest.mark.parametrize("ecn", [NOT_ECT, CE])
def test_what_is_no_ect_is_left_alone(bench, ecn):
    ramp(bench, "ecn_tcp", "set_tcp_mark_probability", 0, DEEPEST, ALWAYS)
    assert marked(bench, ecn) == (set(frames(ecn)) if ecn == CE else set())
    assert not any(packets for packets, _ in bench.counted("ecn_marks").values())
