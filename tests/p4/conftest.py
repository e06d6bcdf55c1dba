# SPDX-License-Identifier: Apache-2.0
"""Switches that already forward, for the tests of the P4 program."""

import pytest
from p4_bench import make_bench

from bmv2.entries import Exact


@pytest.fixture
def bench():
    """Port 2 leads to B's prefix by next hop 7."""
    bench = make_bench()
    bench.next_hop(7, 2)
    bench.route("10.0.1.0/24", "set_next_hop", 7)
    return bench


@pytest.fixture(scope="module")
def ecmp_bench():
    """Three groups, one per tier; a bucket's next hop writes 'bucket' and 'group' into the source MAC."""
    bench = make_bench()
    for tier in range(3):
        bench.route(f"10.{tier}.0.0/16", f"set_ecmp_group_tier{tier}", 100 + tier)
        for bucket in range(256):
            bench.insert("ecmp", [Exact(100 + tier), Exact(bucket)], "set_next_hop", 256 * tier + bucket)
            bench.next_hop(256 * tier + bucket, 2, src_mac=tier << 8 | bucket)
    return bench


@pytest.fixture
def edge_bench(bench):
    """Ports 1 and 2 face hosts."""
    for port in (1, 2):
        bench.insert("edge", [Exact(port)], "mark_edge")
    return bench
