# SPDX-License-Identifier: Apache-2.0
"""Random links for the tests of interleaving, and scores by plain sums."""

from __future__ import annotations

import math
import random

from controller.interleave.circle import SharedLink
from controller.model import Phase

MS = 1_000_000
C = 50_000_000_000


def up(start: float, end: float, rate: int = C) -> Phase:
    return Phase(round(start * MS), round(end * MS), rate)


def job(rng: random.Random, period: int) -> tuple[Phase, ...]:
    """One or two phases with edges on whole ms, or none."""
    cuts = sorted(rng.sample(range(period + 1), rng.choice([2, 2, 4])))
    return tuple(
        up(a, b, rng.choice([C, C // 2, C // 5])) for a, b in zip(cuts[::2], cuts[1::2], strict=True)
    )


def instance(
    rng: random.Random, n: int, choices: tuple[int, ...] = (12, 12, 24, 8)
) -> tuple[SharedLink, dict[str, int]]:
    periods = {f"j{i}": rng.choice(choices) for i in range(n)}
    demands = {name: job(rng, t) for name, t in periods.items()}
    return SharedLink(("x", "y"), C, demands), {name: t * MS for name, t in periods.items()}


def plain_score(link: SharedLink, periods: dict[str, int], shifts: dict[str, int]) -> float:
    """1 - mean excess / capacity with one slot per ms; whole-millisecond phases and shifts."""
    slots = math.lcm(*(periods[j] for j in link.demands)) // MS
    excess = 0
    for t in range(slots):
        total = 0
        for name, phases in link.demands.items():
            at = (t * MS - shifts[name]) % periods[name]
            total += sum(p.rate_bps for p in phases if p.start_ns <= at < p.end_ns)
        excess += max(0, total - link.rate_bps)
    return 1 - excess / slots / link.rate_bps
