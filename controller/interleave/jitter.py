# SPDX-License-Identifier: Apache-2.0
"""Random numbers by hashing: the variation between iterations, drawn without any state."""

from __future__ import annotations

PRIME = 2_147_483_647
"""The Mersenne prime 2^31 - 1: products with the factors below stay under 2^62."""


def draw(salt: int, iteration: int, task: int) -> int:
    """A uniform draw in [-PRIME, PRIME]. `salt` is from 0 to PRIME - 1. Equal arguments give equal draws.

    All products are below 2^62, so the compiled function gives the same results as this one.
    """
    x = (salt * 48_271 + iteration * 69_621 + task * 39_373 + 1) % PRIME
    for _ in range(4):
        x = (x ^ (x >> 15)) * 1_103_515_245 % PRIME
        x = (x ^ (x >> 11)) * 40_692 % PRIME
    return 2 * x - PRIME
