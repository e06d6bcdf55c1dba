# SPDX-License-Identifier: Apache-2.0
"""What BMv2 answered: scenarios in a compressed file with the program they ran, and how answers compare."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from diff_driver import Answer, Counts
from diff_frames import INT_DSCP, IPV6_EXTRA, MD_START, ROCE_PORT, UDP, traffic_class
from diff_workload import CPU_PORT
from finsy.proto import p4i, p4r
from google.protobuf import text_format

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/data/bmv2_differential.json.xz"
PROGRAM = ROOT / "p4/build/polyrhythm.v1model.json"
P4INFO = ROOT / "p4/build/polyrhythm.v1model.p4info.txtpb"
LIMIT_BYTES = 2 << 20
_HOP_BYTES = 32
_PACKET_IN_BYTES = 4
_PACKET_OUT_BYTES = 2
# Within the 32 bytes that a hop pushes behind the MD header: latency, queue depth, both timestamps.
_MASKED = ((8, 12), (13, 16), (16, 32))


@dataclass
class Round:
    """Updates, then packets as (port, frame), each with what came out because of it, per port in order."""

    updates: list[p4r.Update]
    packets: list[Answer]
    answers: list[list[Answer]]


@dataclass
class Scenario:
    """Rounds on one freshly loaded switch, and its counters at the end."""

    seed: int
    rounds: list[Round]
    counters: Counts
    # So many packets went in back to back; all that came out stands with the last of them, by port.
    burst: int = 1


@dataclass
class Golden:
    """The recording: the program that ran, and its scenarios."""

    switch: str
    p4info: str
    program: str
    scenarios: list[Scenario]

    @property
    def config(self) -> p4r.ForwardingPipelineConfig:
        """The program as P4Runtime takes it."""
        return pipeline_config(self.p4info, self.program)

    @property
    def digest(self) -> str:
        """SHA-256 of the program's JSON, as in p4/build's manifest."""
        return hashlib.sha256(self.program.encode()).hexdigest()


def pipeline_config(p4info: str, program: str) -> p4r.ForwardingPipelineConfig:
    """Make a pipeline config of a P4Info in text and a JSON."""
    info = text_format.Parse(p4info, p4i.P4Info())
    return p4r.ForwardingPipelineConfig(p4info=info, p4_device_config=program.encode())


def masked(cause: Answer, answer: Answer) -> Answer:
    """Blank what differs from switch to switch: the latency, depth and timestamps of a hop just pushed."""
    port, frame = answer
    head = _PACKET_IN_BYTES if port == CPU_PORT else 0
    length = len(cause[1]) - (_PACKET_OUT_BYTES if cause[0] == CPU_PORT else 0)
    if len(frame) != head + length + _HOP_BYTES or not _is_probe(frame[head:]):
        return answer
    start = head + MD_START + 12 + (IPV6_EXTRA if frame[head + 12] == 0x86 else 0)
    blanked = bytearray(frame)
    for low, high in _MASKED:
        blanked[start + low : start + high] = bytes(high - low)
    return port, bytes(blanked)


def _is_probe(frame: bytes) -> bool:
    if len(frame) < MD_START + 12 + _HOP_BYTES or (found := traffic_class(frame)) is None:
        return False
    if frame[12:15] == b"\x08\x00\x45":
        protocol, port_at = frame[23], 36
    else:
        protocol, port_at = frame[20], 36 + IPV6_EXTRA
    return (
        found >> 2 == INT_DSCP
        and protocol == UDP
        and int.from_bytes(frame[port_at : port_at + 2], "big") == ROCE_PORT
    )


def by_port(answers: Iterable[Answer]) -> list[Answer]:
    """Answers sorted by port, those of a port in their order."""
    return sorted(answers, key=lambda answer: answer[0])


def per_port(answers: Iterable[Answer]) -> dict[int, list[bytes]]:
    """The frames of each port in their order."""
    found: dict[int, list[bytes]] = {}
    for port, frame in answers:
        found.setdefault(port, []).append(frame)
    return found


def save(golden: Golden, path: Path = GOLDEN) -> int:
    """Write a recording; returns its size in bytes. Raises ValueError when it is above the limit."""
    document = {
        "switch": golden.switch,
        "p4info": golden.p4info,
        "program": golden.program,
        "scenarios": [
            {
                "seed": scenario.seed,
                "burst": scenario.burst,
                "rounds": [
                    {
                        "updates": [
                            update.SerializeToString(deterministic=True).hex() for update in round_.updates
                        ],
                        "exchanges": [
                            [port, frame.hex(), [[out, answer.hex()] for out, answer in answers]]
                            for (port, frame), answers in zip(round_.packets, round_.answers, strict=True)
                        ],
                    }
                    for round_ in scenario.rounds
                ],
                "counters": scenario.counters,
            }
            for scenario in golden.scenarios
        ],
    }
    packed = lzma.compress(json.dumps(document, separators=(",", ":")).encode(), preset=9)
    if len(packed) > LIMIT_BYTES:
        raise ValueError(f"{path.name} would be {len(packed)} bytes; at most {LIMIT_BYTES} are allowed")
    path.write_bytes(packed)
    return len(packed)


def load(path: Path = GOLDEN) -> Golden:
    """Read a recording."""
    document = json.loads(lzma.decompress(path.read_bytes()))
    scenarios = []
    for item in document["scenarios"]:
        rounds = [
            Round(
                [p4r.Update.FromString(bytes.fromhex(update)) for update in part["updates"]],
                [(port, bytes.fromhex(frame)) for port, frame, _ in part["exchanges"]],
                [[(port, bytes.fromhex(out)) for port, out in outs] for _, _, outs in part["exchanges"]],
            )
            for part in item["rounds"]
        ]
        counters = {
            name: {int(index): tuple(cell) for index, cell in cells.items()}
            for name, cells in item["counters"].items()
        }
        scenarios.append(Scenario(item["seed"], rounds, counters, item["burst"]))
    return Golden(document["switch"], document["p4info"], document["program"], scenarios)
