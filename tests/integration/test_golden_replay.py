# SPDX-License-Identifier: Apache-2.0
"""The embedded switch held to what BMv2 answered, from the recording: needs neither BMv2 nor p4c."""

import hashlib
from collections import Counter

import pytest
from diff_golden import GOLDEN, LIMIT_BYTES, PROGRAM, load, masked, per_port
from diff_replay import replay


@pytest.fixture(scope="module")
def golden():
    return load()


def test_the_same_packets_and_counters_as_bmv2(golden):
    packets = 0
    for scenario in golden.scenarios:
        differences, counters = replay(golden.config, scenario)
        assert not differences, "\n".join([f"{len(differences)} packets differ", *differences[:5]])
        assert counters == scenario.counters
        packets += sum(len(part.packets) for part in scenario.rounds)
    assert packets >= 10_000


def test_the_mode_that_queues_as_bmv2_gives_the_same(golden):
    """Bursts through one queue of each port, and one scenario frame by frame."""
    for scenario in (golden.scenarios[0], golden.scenarios[-1]):
        differences, counters = replay(golden.config, scenario, bmv2=True)
        assert not differences, "\n".join([f"{len(differences)} packets differ", *differences[:5]])
        assert counters == scenario.counters


def test_the_recording_exercises_the_program(golden):
    """Forwarded, dropped, to the CPU; probes with a hop pushed; every counter; every table written."""
    fates, grown, tables = Counter(), 0, set()
    assert [scenario.burst for scenario in golden.scenarios] == [1, 1, 1, 1, 40]
    for scenario in golden.scenarios[:4]:
        for part in scenario.rounds:
            tables |= {update.entity.table_entry.table_id for update in part.updates}
            for (_, frame), answers in zip(part.packets, part.answers, strict=True):
                fates[tuple(sorted(per_port(answers)))] += 1
                grown += any(len(out) == len(frame) + 32 for port, out in answers if port != 255)
    assert fates[()] > 1000
    assert fates[(255,)] > 500
    assert sum(count for ports, count in fates.items() if ports and ports != (255,)) > 2000
    assert grown > 100
    assert tables == {table.preamble.id for table in golden.config.p4info.tables}
    for counter in golden.config.p4info.counters:
        assert any(scenario.counters[counter.preamble.name] for scenario in golden.scenarios)


def test_a_wrong_answer_would_be_seen(golden):
    scenario = golden.scenarios[0]
    part = scenario.rounds[0]
    position = next(index for index, answers in enumerate(part.answers) if answers)
    port, frame = part.answers[position][0]
    spoilt = bytes([frame[0] ^ 1]) + frame[1:]
    right = part.answers[position]
    part.answers[position] = [(port, spoilt), *right[1:]]
    try:
        differences, _ = replay(golden.config, scenario)
    finally:
        part.answers[position] = right
    assert len(differences) == 1
    assert f"packet {position}," in differences[0]


def test_another_order_on_a_port_would_be_seen(golden):
    scenario = golden.scenarios[-1]
    answers = next(
        answers
        for answers in scenario.rounds[0].answers
        if any(len(f) > 1 for f in per_port(answers).values())
    )
    at = next(
        i
        for i in range(len(answers) - 1)
        if answers[i][0] == answers[i + 1][0] and answers[i] != answers[i + 1]
    )
    answers[at], answers[at + 1] = answers[at + 1], answers[at]
    try:
        differences, _ = replay(golden.config, scenario)
    finally:
        answers[at], answers[at + 1] = answers[at + 1], answers[at]
    assert len(differences) == 1


def test_only_a_pushed_hop_is_masked():
    hop = bytes(range(1, 33))
    before = bytes.fromhex("020000000001020000000002080045d0") + bytes(7) + b"\x11" + bytes(10)
    before += b"\x00\x07\x12\xb7" + bytes(4) + bytes(16)
    pushed = before[:58] + hop + before[58:]
    _, blanked = masked((1, before), (3, pushed))
    assert blanked[58:90] == hop[:8] + bytes(4) + hop[12:13] + bytes(19)
    header = b"head"
    assert masked((1, before), (255, header + pushed)) == (255, header + blanked)
    assert masked((255, b"po" + before), (3, pushed)) == (3, blanked)
    assert masked((1, pushed), (3, pushed)) == (3, pushed)
    other = pushed[:15] + b"\x00" + pushed[16:]
    assert masked((1, before), (3, other)) == (3, other)


def test_the_recording_is_of_the_present_program_and_within_its_limit(golden):
    present = hashlib.sha256(PROGRAM.read_bytes()).hexdigest()
    assert golden.digest == present, (
        "p4/build has changed since the recording: run `python tests/rigs/record_golden.py` "
        "where simple_switch_grpc is installed"
    )
    assert GOLDEN.stat().st_size <= LIMIT_BYTES
    assert golden.switch.startswith("simple_switch_grpc ")
