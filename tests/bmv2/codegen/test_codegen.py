# SPDX-License-Identifier: Apache-2.0
"""Generated code against the plain interpreter: same packets and counters on random programs and ours."""

import struct
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from bmv2_pair import Pair, fill
from bmv2_random import RandomProgram
from bmv2_random_features import FeatureProgram
from hypothesis import given, settings
from hypothesis import strategies as st

from bmv2 import P4Program, load_program
from bmv2.calculations import csum16
from bmv2.codegen import generate, parser, writer
from bmv2.entries import Exact, Lpm, MatchValue, Range, TableEntry, Ternary
from bmv2.loader import load

MATCHES = {"exact": Exact, "lpm": Lpm, "ternary": Ternary, "range": Range}
OURS = Path(__file__).parents[3] / "p4" / "build" / "polyrhythm.v1model.json"


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), flat=st.booleans())
def test_random_programs_behave_like_the_reference(seed: int, flat: bool) -> None:
    rng = Random(seed)
    made = RandomProgram(rng)
    # Programs too entangled to be written as nested branches are written flat: both must hold.
    with (
        patch.object(writer, "_NESTED_LIMIT", 0 if flat else 2000),
        patch.object(parser, "_TREE_LIMIT", 0 if flat else 256),
    ):
        ir = load(made.json)
        pair = Pair(P4Program(b"", ir, generate(ir)), range(4))
    for table, match, priority, action, params in made.entries:
        values: list[MatchValue] = [MATCHES[kind](*rest) for kind, *rest in match]
        pair.insert(table, TableEntry(tuple(values), priority, action, tuple(params)))
    for _ in range(25):
        size = rng.choice((0, 1, 5, 20, 40, 64, 100))
        frame = rng.randbytes(size) if rng.random() < 0.7 else bytes(size)
        pair.check(rng.randrange(4), frame)
    pair.check_state()


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), flat=st.booleans())
def test_programs_with_rare_features_behave_like_the_reference(seed: int, flat: bool) -> None:
    rng = Random(seed)
    made = FeatureProgram(rng)
    with (
        patch.object(writer, "_NESTED_LIMIT", 0 if flat else 2000),
        patch.object(parser, "_TREE_LIMIT", 0 if flat else 256),
    ):
        ir = load(made.json)
        pair = Pair(P4Program(b"", ir, generate(ir)), range(5))
    fill(pair, rng)
    for _ in range(25):
        size = rng.choice((0, 1, 5, 20, 40, 64, 100))
        frame = rng.randbytes(size) if rng.random() < 0.7 else bytes(size)
        pair.check(rng.randrange(5), frame)
    pair.check_state()


def roce_frame(rng: Random, dscp: int, payload: int) -> bytes:
    """A RoCEv2 packet, or an INT probe where the DSCP says so, with a valid IPv4 checksum."""
    probe = dscp == 52
    rest = (12 + 4 if probe else 12) + payload
    source, target = 0x0A000000 | rng.getrandbits(10), 0x0A000000 | rng.getrandbits(10)
    ecn, ttl = rng.getrandbits(2), rng.choice((0, 1, 2, 64))
    head = struct.pack("!BBHHHBBHII", 0x45, dscp << 2 | ecn, 28 + rest, 7, 0x4000, ttl, 17, 0, source, target)
    total = csum16(head) ^ (rng.random() < 0.1)
    head = head[:10] + total.to_bytes(2) + head[12:]
    udp = struct.pack("!HHHH", 0xC000 | rng.getrandbits(14), 4791, 8 + rest, rng.getrandbits(16))
    shim = (
        bytes((1 << 4, 0, 3, 0))
        + bytes.fromhex("200008")
        + bytes((rng.choice((0, 4)),))
        + b"\xfc\x00"
        + bytes(6)
    )
    return (
        rng.randbytes(12) + b"\x08\x00" + head + udp + (shim if probe else bytes(12)) + rng.randbytes(payload)
    )


@pytest.fixture(scope="module")
def ours() -> P4Program:
    return load_program(OURS.read_bytes())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_our_program_behaves_like_the_reference(ours: P4Program, seed: int) -> None:
    rng = Random(seed)
    pair = Pair(ours, range(1, 6))
    for _ in range(8):
        length = rng.choice((0, 8, 22, 28, 32))
        kind = rng.choice(("set_next_hop", "set_ecmp_group_tier0", "set_ecmp_group_tier1", "drop"))
        params = () if kind == "drop" else (rng.randint(1, 3),)
        value = 0x0A000000 | rng.getrandbits(10)
        pair.insert("routing", TableEntry((Lpm(value, length),), 0, kind, params))
    for bucket in range(256):
        entry = TableEntry((Exact(rng.randint(1, 3)), Exact(bucket)), 0, "set_next_hop", (rng.randint(1, 3),))
        pair.insert("ecmp", entry)
    for hop in (1, 2, 3):
        macs = (rng.getrandbits(48), rng.getrandbits(48))
        pair.insert("next_hop", TableEntry((Exact(hop),), 0, "forward", (hop, *macs)))
    pair.insert("queue", TableEntry((Exact(10),), 0, "set_queue", (3,)))
    pair.insert("edge", TableEntry((Exact(1),), 0, "mark_edge", ()))
    for qid in range(8):
        probability = rng.choice((0, 0x8000, 0xFFFF))
        pair.insert("ecn", TableEntry((Exact(qid), Range(0, 5)), 1, "set_mark_probability", (probability,)))
    pair.switch.set_default("switch_identity", "set_switch_id", (77,))
    pair.reference.defaults["switch_identity"] = ("set_switch_id", (77,))
    for _ in range(25):
        frame = roce_frame(rng, rng.choice((0, 10, 52, rng.getrandbits(6))), rng.choice((0, 5, 64)))
        port = rng.choice((1, 2, 255))
        if port == 255:
            frame = struct.pack("!H", rng.randint(1, 5) << 7 | rng.getrandbits(1) << 6) + frame
        if rng.random() < 0.2:
            frame = frame[: rng.randrange(len(frame))]
        pair.check(port, frame)
    pair.check_state()
