# SPDX-License-Identifier: Apache-2.0
"""The plain reference of `kernels/use.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def use_of_links(
    rows: Array, job: Array, size: Array, routed: Array, links: int, jobs: int
) -> tuple[Array, Array, Array, Array, Array]:
    """What the kernel of this name does."""
    sent: dict[tuple[int, int], float] = {}
    carried: dict[tuple[int, int], int] = {}
    longest = np.zeros(jobs, dtype=np.int32)
    for row, j, size_of, counts in zip(
        rows.tolist(), job.tolist(), size.tolist(), routed.tolist(), strict=True
    ):
        met = [(j, link) for link in row if link >= 0]
        longest[j] = max(longest[j], len(met))
        for entry in met:
            sent[entry] = sent.get(entry, 0.0) + size_of
            carried[entry] = carried.get(entry, 0) + counts
    assert all(link < links for _, link in sent)
    owner, link = np.array(list(sent), dtype=np.int32).reshape(-1, 2).T
    return (
        owner,
        link,
        np.array(list(sent.values()), dtype=np.float64),
        np.array(list(carried.values()), dtype=np.int32),
        longest,
    )
