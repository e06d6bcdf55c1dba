# SPDX-License-Identifier: Apache-2.0
"""Our program does on the embedded switch what it does on BMv2: 10,000 recorded frames, and fresh ones."""

import shutil

import pytest
from differential import BMV2, Embedded, compare, read_recording

KINDS = {"next_hop", "routing", "ecmp", "port_state", "pinned_flow", "queue", "ecn", "edge", "edge_ingress"}
KINDS |= {"remark", "remark_flow"}


def first_difference(frames, ours, theirs):
    pairs = zip(frames, ours, theirs, strict=True)
    return next(((port, frame.hex(), a, b) for (port, frame), a, b in pairs if a != b), None)


def test_the_recorded_answers_of_bmv2_are_ours():
    entries, frames, theirs, counters = read_recording()
    assert {entry.table for entry in entries} == KINDS
    assert len(frames) >= 10_000
    embedded = Embedded(entries)
    ours = [embedded.answer(port, frame) for port, frame in frames]
    assert first_difference(frames, ours, theirs) is None
    assert embedded.counters() == counters
    assert all(counters.values())
    # The recording is no trivial one: frames left by every port, to the CPU, and nowhere.
    ways = {port for sent, _ in theirs for port, _ in sent}
    assert ways == {1, 2, 3, 4}
    assert sum(bool(cpu) for _, cpu in theirs) > 500
    assert sum(not sent and not cpu for sent, cpu in theirs) > 500


@pytest.mark.skipif(shutil.which(BMV2) is None, reason="simple_switch_grpc is not installed")
def test_fresh_frames_on_bmv2():
    _, frames, ours, theirs, (our_counters, their_counters), rest = compare(seed=7, count=3_000)
    assert first_difference(frames, ours, theirs) is None
    assert our_counters == their_counters
    assert rest == 0
