# SPDX-License-Identifier: Apache-2.0
"""Keep the iterations of sharing groups that were computed for earlier plans.

A change of one job changes the groups of that job. The others are as they were, and so are most of the
choices that a search tries for them.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from controller.interleave.joint.fluid_arrays import Floats, FluidArrays, Ints

MOST_BYTES = 64 << 20
"""What is kept, the results used last. Chosen: the plans of a cluster of 2,000 GPUs need a tenth of it."""
_OVERHEAD = 300
"""The bytes of an entry beside its numbers, about as measured."""

Key = bytes


def key_of(arrays: FluidArrays, salts: Ints, starts: Floats, horizon: float) -> Key:
    """What the iterations of a group follow from, as a digest: equal for equal groups only, whatever the
    jobs' names and the other groups are."""
    digest = blake2b(digest_size=16)
    values: list[NDArray[np.generic]] = [np.asarray(value) for value in (*arrays, salts, starts, horizon)]
    digest.update(repr([(value.shape, value.dtype.str) for value in values]).encode())
    for value in values:
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.digest()


class KnownGroups:
    """Mean iterations in ns, shape (seeds, jobs), by the key of their group. Callers must not change them."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._found: OrderedDict[Key, Floats] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: Key) -> Floats | None:
        """The result of an equal group, if it is kept."""
        found = self._found.get(key)
        if found is not None:
            self._found.move_to_end(key)
        return found

    def keep(self, key: Key, lengths: Floats) -> None:
        """Keep a result, and forget those that were not used for the longest time."""
        if key in self._found:
            return
        lengths.flags.writeable = False
        self._found[key] = lengths
        self._bytes += lengths.nbytes + _OVERHEAD
        while self._bytes > self._most_bytes and len(self._found) > 1:
            self._bytes -= self._found.popitem(last=False)[1].nbytes + _OVERHEAD


KNOWN = KnownGroups()
"""Those of this process. A result follows from its key alone, so it does not matter who computed it."""
