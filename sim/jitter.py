# SPDX-License-Identifier: Apache-2.0
"""Compute times that differ from iteration to iteration: drawn by hashing, so a draw needs no state."""

from __future__ import annotations

_PRIME = 2_147_483_647
MILLION = 1_000_000


def stretched(span: int, part: int, salt: int, iteration: int, task: int) -> int:
    """A compute of `span` ps, longer or shorter by up to `part` millionths of itself, uniformly.

    `salt` is the job's, from 0 to 2^31 - 2; equal arguments give equal times. All products stay below
    2^62, so the compiled function is this very one.
    """
    if part <= 0:
        return span
    x = (salt * 48_271 + iteration * 69_621 + task * 39_373 + 1) % _PRIME
    for _ in range(4):
        x = (x ^ (x >> 15)) * 1_103_515_245 % _PRIME
        x = (x ^ (x >> 11)) * 40_692 % _PRIME
    parts = part * (2 * x - _PRIME) // _PRIME
    # In thousandths first: a span times a million would not stay below 2^63.
    return span + span // 1_000 * parts // 1_000
