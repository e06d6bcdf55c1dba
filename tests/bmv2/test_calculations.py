# SPDX-License-Identifier: Apache-2.0
"""Hash algorithms against published check values, and the Internet checksum against RFC 1071's words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmv2.calculations import ALGORITHMS, csum16

CHECK = b"123456789"


@pytest.mark.parametrize(
    ("algorithm", "value"),
    [
        ("crc32", 0xCBF43926),
        ("crc16", 0xBB3D),
        ("crcCCITT", 0x29B1),
        ("xor16", 0x3132 ^ 0x3334 ^ 0x3536 ^ 0x3738 ^ 0x3900),
        ("identity", 0x3132333435363738),
    ],
)
def test_check_values(algorithm: str, value: int) -> None:
    assert ALGORITHMS[algorithm](CHECK) == value


def test_the_checksum_of_rfc_1071s_example() -> None:
    assert csum16(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF ^ 0xDDF2
    assert csum16(b"") == csum16(bytes(20)) == 0xFFFF
    assert csum16(b"\xff\xff") == 0


@given(st.binary(max_size=64))
def test_the_checksum_is_the_folded_sum_of_words(data: bytes) -> None:
    padded = data + bytes(len(data) % 2)
    total = sum(int.from_bytes(padded[i : i + 2]) for i in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert csum16(data) == 0xFFFF ^ total
