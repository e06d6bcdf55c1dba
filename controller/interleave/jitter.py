# SPDX-License-Identifier: Apache-2.0
"""Random numbers by hashing: what differs from iteration to iteration, drawn without any state."""

from __future__ import annotations

PRIME = 2_147_483_647


def draw(salt: int, iteration: int, task: int) -> int:
    """Uniform in [-PRIME, PRIME]. `salt` is from 0 to PRIME - 1; equal arguments give equal draws.

    All products stay below 2^62, so that the compiled function is this very one.
    """
    x = (salt * 48_271 + iteration * 69_621 + task * 39_373 + 1) % PRIME
    for _ in range(4):
        x = (x ^ (x >> 15)) * 1_103_515_245 % PRIME
        x = (x ^ (x >> 11)) * 40_692 % PRIME
    return 2 * x - PRIME
