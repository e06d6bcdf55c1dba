# SPDX-License-Identifier: Apache-2.0
"""Source ports by going through them: for any hash, any order of buckets, any number of tiers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.routing.kernels.compiler import kernel

Ints = NDArray[np.int32]


@kernel
def find_ports(
    base: NDArray[np.uint32],
    contributions: NDArray[np.uint32],
    tables: Ints,
    shifts: Ints,
    stage: Ints,
    want: Ints,
    skip: Ints,
) -> Ints:
    """For each flow the index of the port that leads along its path, passing over the first `skip` of them;
    round again where there are fewer; -1 if there is none.

    Port i hashes to base[f] ^ contributions[i]. Hop h of flow f turns the 8-bit slice at shifts[stage[f, h]]
    by tables[stage[f, h]] (256,) into a choice, which has to be want[f, h]; a stage of -1 has no choice.
    """
    flows, hops = stage.shape
    found = np.full(flows, -1, dtype=np.int32)
    for f in range(flows):
        left = skip[f]
        seen = 0
        i = 0
        while i < len(contributions):
            value = base[f] ^ contributions[i]
            good = True
            for h in range(hops):
                t = stage[f, h]
                if t >= 0 and tables[t, (value >> np.uint32(shifts[t])) & np.uint32(255)] != want[f, h]:
                    good = False
                    break
            if good:
                if left == 0:
                    found[f] = i
                    break
                left -= 1
                seen += 1
            i += 1
            if i == len(contributions) and seen > 0:
                left %= seen
                seen = 0
                i = 0
    return found
