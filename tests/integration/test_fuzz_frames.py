# SPDX-License-Identifier: Apache-2.0
"""Malformed frames into the embedded switch: no crash, no leak, counters that add up, checksums that hold."""

import gc
import tracemalloc
from collections import Counter
from random import Random

import pytest
from diff_frames import Flow, FrameMaker, checksum
from diff_golden import P4INFO, PROGRAM, pipeline_config
from diff_replay import InProcess
from diff_workload import CPU_PORT, PORTS, Workload

QUICK, LONG = 5_000, 100_000
# Far less than one frame each: what is kept for every frame would show.
LEAK_BYTES_PER_FRAME = 8


class Spoiler:
    """Draws frames that are nearly right, and a few that are nothing at all."""

    def __init__(self, rng):
        self._rng = rng
        hosts = [0x0A000000 + rng.randrange(1 << 12) for _ in range(24)]
        flows = [Flow(rng.choice(hosts), rng.choice(hosts), 17, 50000 + i, 4791) for i in range(32)]
        self._maker = FrameMaker(rng, flows, PORTS)
        self._faults = (
            self._cut,
            self._flip,
            self._lie,
            self._insert,
            self._repeat,
            self._bloat,
            self._noise,
        )

    def draw(self):
        """A port and a frame: from the CPU's port now and then, with whatever header comes."""
        port, frame = self._maker.draw()
        for _ in range(self._rng.randrange(1, 4)):
            frame = self._rng.choice(self._faults)(frame)
        if self._rng.random() < 0.1:
            port = CPU_PORT
        return port, frame or b"\0"

    def _cut(self, frame):
        return frame[: self._rng.randrange(len(frame) + 1)]

    def _flip(self, frame):
        data = bytearray(frame)
        for _ in range(self._rng.randrange(1, 9)):
            if data:
                data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        return bytes(data)

    def _lie(self, frame):
        """Another value in one of the bytes that say how long or what something is."""
        data = bytearray(frame)
        at = self._rng.choice((12, 13, 14, 16, 17, 20, 21, 22, 23, 38, 39, 42, 43, 46, 49, 50, 51))
        if at < len(data):
            data[at] = self._rng.choice((0, 1, 0x45, 0x4F, 0x7F, 0x80, 0xFF))
        return bytes(data)

    def _insert(self, frame):
        at = self._rng.randrange(len(frame) + 1)
        return frame[:at] + self._rng.randbytes(self._rng.randrange(1, 20)) + frame[at:]

    def _repeat(self, frame):
        return frame[:14] + frame

    def _bloat(self, frame):
        return (
            frame + bytes(self._rng.choice((1, 100, 1500, 9000, 70000)))
            if self._rng.random() < 0.1
            else frame
        )

    def _noise(self, frame):
        return self._rng.randbytes(len(frame)) if self._rng.random() < 0.1 else frame


def throw(count, seed):
    """Throw frames at a programmed switch; gives the switch, what came out by port, and bytes kept per frame."""
    config = pipeline_config(P4INFO.read_text(), PROGRAM.read_text())
    switch = InProcess(config)
    switch.write(Workload(seed, config.p4info).setup())
    spoiler, out, wrong = Spoiler(Random(seed)), Counter(), []
    kept = 0
    for number in range(count):
        if number == count // 2:
            tracemalloc.start()
            gc.collect()
            kept = tracemalloc.get_traced_memory()[0]
        port, frame = spoiler.draw()
        for where, answer in switch.exchange(port, frame):
            out[where] += 1
            if where != CPU_PORT and routed(frame, answer) and checksum(answer[14:34]) != 0:
                wrong.append((port, frame.hex(), answer.hex()))
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0] - kept
    tracemalloc.stop()
    return switch, out, wrong, kept / (count - count // 2)


def routed(frame, answer):
    """Whether the switch has rewritten the frame, and so its checksum: what it only passes on stays wrong."""
    return answer[12:15] == b"\x08\x00\x45" and answer[:12] not in (frame[:12], frame[2:14])


def hold(count, seed):
    switch, out, wrong, kept = throw(count, seed)
    assert not wrong, wrong[0]
    assert sum(out.values()) > count // 50
    assert out[CPU_PORT] > 0
    counters = switch.counters()
    left = Counter()
    for index, (packets, _) in counters["egress_packets"].items():
        left[index // 8] += packets
    assert left == out
    # With no rates nothing waits and nothing is lost between ingress and egress.
    assert counters["ingress_packets"] == counters["egress_packets"]
    assert kept < LEAK_BYTES_PER_FRAME + 200_000 / count


def test_malformed_frames():
    hold(QUICK, seed=1)


@pytest.mark.slow
def test_a_hundred_thousand_malformed_frames():
    hold(LONG, seed=2)
