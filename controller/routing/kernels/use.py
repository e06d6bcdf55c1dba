# SPDX-License-Identifier: Apache-2.0
"""What jobs put on links, flow by flow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.routing.kernels.compiler import kernel

Ints = NDArray[np.int32]


@kernel
def use_of_links(
    rows: Ints, job: Ints, size: NDArray[np.int64], routed: NDArray[np.bool_], links: int, jobs: int
) -> tuple[Ints, Ints, NDArray[np.float64], Ints, Ints]:
    """The use of `links` links by the flows of `jobs` jobs, which stand one job after another.

    Flow f of job `job[f]` puts `size[f]` bytes on each link in `rows[f]`, where -1 is none. Returns an entry
    for each link of each job, in the order in which its flows meet them: the job, the link, the bytes, and
    how many of the flows are `routed`; and by job the largest number of links of a flow.
    """
    flows, hops = rows.shape
    owner = np.empty(flows * hops, dtype=np.int32)
    link = np.empty(flows * hops, dtype=np.int32)
    sent = np.zeros(flows * hops, dtype=np.float64)
    carried = np.zeros(flows * hops, dtype=np.int32)
    longest = np.zeros(jobs, dtype=np.int32)
    entry = np.full(links, -1, dtype=np.int64)
    first = 0
    count = 0
    for f in range(flows):
        if f > 0 and job[f] != job[f - 1]:
            # Entries before this one are those of other jobs.
            first = count
        length = 0
        for h in range(hops):
            k = rows[f, h]
            if k < 0:
                continue
            length += 1
            if entry[k] < first:
                entry[k] = count
                owner[count] = job[f]
                link[count] = k
                count += 1
            sent[entry[k]] += size[f]
            if routed[f]:
                carried[entry[k]] += 1
        longest[job[f]] = max(longest[job[f]], length)
    return owner[:count], link[:count], sent[:count], carried[:count], longest
