# SPDX-License-Identifier: Apache-2.0
"""Compute times that vary from iteration to iteration."""

from __future__ import annotations

from controller.interleave.jitter import PRIME


def stretched(span: int, part: int, drawn: int) -> int:
    """A compute of `span` ps, longer or shorter by up to `part` millionths of itself; `drawn` is from -PRIME
    to PRIME (see `controller.interleave.jitter.draw`)."""
    # In thousandths first: a span times a million would not stay below 2^63.
    return span + span // 1_000 * (part * drawn // PRIME) // 1_000
