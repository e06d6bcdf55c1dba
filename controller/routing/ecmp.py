# SPDX-License-Identifier: Apache-2.0
"""ECMP's choice: a source port drawn at random, and the path that its hash happens to give."""

from __future__ import annotations

import random
import zlib
from collections.abc import Collection

from controller.routing.hash import ROCE_PORTS


def draw_port(flow: str, seed: int, used: Collection[int] = ()) -> int:
    """A source port for a flow, uniform over 0xC000-0xFFFF and not in `used`.

    It depends only on the flow's name and the seed, so that other flows' coming and going leaves it.
    """
    rng = random.Random(zlib.crc32(flow.encode()) ^ (seed & 0xFFFFFFFF) << 32)
    port = rng.choice(ROCE_PORTS)
    while port in used and len(used) < len(ROCE_PORTS):
        port = rng.choice(ROCE_PORTS)
    return port
