# SPDX-License-Identifier: Apache-2.0
"""A flood: every DSCP, at the rate of the host's cable, in frames that a switch takes for what they say."""

from collections import Counter
from dataclasses import replace

import pytest

from hostagent.nic.roce import internet_checksum
from polyrhythm.fabric.flood import HostFlood
from polyrhythm.fabric.heap import EventHeap
from polyrhythm.scenario import load_scenario, scenario_path

SCENARIO = load_scenario(scenario_path("tenant_attack"))
START_NS = 1_000_000


def flooded(seconds: float, frames: str = "all") -> list[tuple[int, bytes]]:
    """The frames of a flood with their times, in ns."""
    heap = EventHeap()
    sent: list[tuple[int, bytes]] = []
    (flood,) = SCENARIO.floods
    HostFlood(
        replace(flood, frames=frames),
        SCENARIO.topology,
        SCENARIO.packet_bytes,
        heap,
        lambda frame: sent.append((heap.now, frame)),
        start_ns=START_NS,
    )
    heap.call_at(START_NS + int(seconds * 1e9), setattr, heap, "stop", True)
    heap.run()
    return sent


def test_the_cable_of_the_host_is_full_from_the_start_on() -> None:
    sent = flooded(0.1)
    assert sent[0][0] == START_NS
    rate = SCENARIO.topology.host["h3"].rate_bps
    bits = 8 * sum(len(frame) for _, frame in sent)
    assert bits == pytest.approx(0.1 * rate, rel=0.01)


def test_every_dscp_comes_alike_in_every_protocol() -> None:
    frames = [frame for _, frame in flooded(0.1)]
    whole = frames[: len(frames) // 1024 * 1024]
    assert set(Counter(frame[15] >> 2 for frame in whole).values()) == {len(whole) // 64}
    kinds = {(frame[15] >> 2, frame[23], int.from_bytes(frame[36:38], "big")) for frame in whole}
    assert {(dscp, *kind) for dscp in range(64) for kind in ((6, 80), (17, 80), (17, 4791))} == kinds


def test_no_frame_is_dropped_for_its_header() -> None:
    for _, frame in flooded(0.03):
        assert internet_checksum(frame[14:34]) == 0
        assert int.from_bytes(frame[16:18], "big") == len(frame) - 14


def test_true_answers_are_among_them() -> None:
    """The meter has something to count: acknowledgements of 62 bytes and CNPs of 74."""
    small = {(frame[15] >> 2, frame[42], len(frame)) for _, frame in flooded(0.1) if len(frame) < 100}
    assert small == {(50, 0x11, 62), (48, 0x81, 74)}


def test_a_flood_of_answers_has_nothing_else_and_fills_the_cable_too() -> None:
    sent = [frame for _, frame in flooded(0.02, "answers")]
    assert {(frame[15] >> 2, frame[42], len(frame)) for frame in sent} == {(50, 0x11, 62), (48, 0x81, 74)}
    assert len({frame[34:36] for frame in sent}) == 16
    bits = 8 * sum(map(len, sent))
    assert bits == pytest.approx(0.02 * SCENARIO.topology.host["h3"].rate_bps, rel=0.01)
