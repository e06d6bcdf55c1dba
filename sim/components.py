# SPDX-License-Identifier: Apache-2.0
"""Group jobs that can affect one another: they share a link that can be short, directly or through other
jobs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def components(
    loads: Mapping[str, Mapping[int, float]], capacity: NDArray[np.float64]
) -> list[tuple[str, ...]]:
    """Groups of jobs that run in one engine. Each group has an engine and a clock of its own.

    `loads` holds for each job the most it can ever send over each link, in bit/s. A link that can carry all
    of that at once never limits a job, so it connects no jobs.
    """
    total: dict[int, float] = {}
    for load in loads.values():
        for link, rate in load.items():
            total[link] = total.get(link, 0.0) + rate
    short = {link for link, rate in total.items() if rate > capacity[link] * (1 + 1e-9)}
    parent = {job: job for job in loads}

    def root(job: str) -> str:
        while parent[job] != job:
            parent[job] = parent[parent[job]]
            job = parent[job]
        return job

    first: dict[int, str] = {}
    for job, load in loads.items():
        for link in load:
            if link in short:
                parent[root(job)] = root(first.setdefault(link, job))
    groups: dict[str, list[str]] = {}
    for job in loads:
        groups.setdefault(root(job), []).append(job)
    return [tuple(group) for group in groups.values()]
