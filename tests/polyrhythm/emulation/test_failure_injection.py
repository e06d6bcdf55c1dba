# SPDX-License-Identifier: Apache-2.0
"""What followed a failure, from what left the switches; and a start that is called off in the middle."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.emulation.failure_injection import after_failure
from polyrhythm.emulation.sniffing import PortChange
from polyrhythm.run.processes import Process
from polyrhythm.scenario.failures import parse_failure
from topo.generate import leaf_spine

MS = 1_000_000
TOPOLOGY = leaf_spine(2, 2, 2, host_bps=10**8, fabric_bps=10**8)
CUT = parse_failure("leaf1:spine1@1000", TOPOLOGY)
DEAD = dict(CUT.ends)["leaf1"]
OTHER = next(p for p, peer in TOPOLOGY.ports["leaf1"].items() if peer.node == "spine2")
A, B = b"a" * 12, b"b" * 12


def test_the_first_packet_of_a_flow_that_was_cut_off_counts() -> None:
    changes = [
        PortChange(7 * MS, "leaf1", A, DEAD),
        PortChange(8 * MS, "leaf1", B, OTHER),
        # Flows that were elsewhere, are new, or go to a host are none that were cut off.
        PortChange(11 * MS, "leaf1", B, 1),
        PortChange(12 * MS, "leaf1", b"c" * 12, OTHER),
        PortChange(13 * MS, "spine1", A, 2),
        PortChange(15 * MS, "leaf1", A, OTHER),
    ]
    outcome = after_failure(CUT, 10 * MS, changes, [9 * MS, 40 * MS, 45 * MS, 900 * MS]).to_json()
    assert outcome["backup_ms"] == 5.0
    # What comes long after the answer to a failure has other reasons.
    assert (outcome["first_reassigned_ms"], outcome["last_reassigned_ms"]) == (30.0, 35.0)
    assert outcome["packets_lost"] is None


def test_nothing_follows_where_nothing_was_cut_off() -> None:
    outcome = after_failure(CUT, 10 * MS, [PortChange(11 * MS, "leaf1", A, OTHER)], []).to_json()
    assert (outcome["backup_ms"], outcome["first_reassigned_ms"]) == (None, None)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from([A, B]), st.sampled_from([DEAD, OTHER, 1]))),
    st.integers(0, 50),
)
def test_it_is_the_earliest_of_the_flows_asked_one_by_one(
    said: list[tuple[int, bytes, int]], at: int
) -> None:
    changes = sorted((PortChange(t, "leaf1", flow, port) for t, flow, port in said), key=lambda c: c.at_ns)
    firsts = []
    for flow in (A, B):
        own = [c for c in changes if c.flow == flow]
        before = [c.port for c in own if c.at_ns <= at]
        if before[-1:] == [DEAD]:
            firsts += [c.at_ns - at for c in own if c.at_ns > at and c.port != DEAD][:1]
    assert after_failure(CUT, at, changes, []).backup_ns == min(firsts, default=None)


@pytest.mark.slow
def test_a_start_that_is_called_off_ends(tmp_path: Path) -> None:
    """asyncio itself would wait for ever here."""

    async def main() -> bool:
        for _ in range(3):
            starting = asyncio.create_task(Process.spawn("x", ["controller", "--help"], tmp_path / "log"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait([starting], timeout=300)
            if not starting.cancelled():
                return False
        return True

    assert asyncio.run(main())
