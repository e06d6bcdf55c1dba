# SPDX-License-Identifier: Apache-2.0
"""Source ports that flows may draw under plain ECMP, for expectations and for policies that need one.

Agents without orders draw others (`controller.wire.rocev2.drawn_source_port`): a controller does not know the
draws of real NICs.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Collection
from functools import lru_cache

from controller.wire.rocev2 import ROCE_SOURCE_PORTS


def draw_port(flow: str, seed: int, used: Collection[int] = ()) -> int:
    """Draw a source port for a flow, uniform over 0xC000-0xFFFF and not in `used`.

    The port depends on the name of the flow and the seed only. So it stays when other flows come and go.
    """
    port = _first_draw(flow, seed)
    if port not in used or len(used) >= len(ROCE_SOURCE_PORTS):
        return port
    rng = _generator(flow, seed)
    while port in used:
        port = rng.choice(ROCE_SOURCE_PORTS)
    return port


def _generator(flow: str, seed: int) -> random.Random:
    return random.Random(zlib.crc32(flow.encode()) ^ (seed & 0xFFFFFFFF) << 32)


@lru_cache(maxsize=1 << 16)
def _first_draw(flow: str, seed: int) -> int:
    """Kept, because every plan is compared to the same draws."""
    return _generator(flow, seed).choice(ROCE_SOURCE_PORTS)
