# SPDX-License-Identifier: Apache-2.0
"""Other placements that a round of offers could have given with equal right, for CASSINI to choose among.

The scheduler decides which jobs get GPUs, how many, and how far apart; CASSINI which ones (thesis, 4.4.2,
step 1). The thesis changes each scheduler so that it returns its candidates. Our reading needs no change: the
GPUs of the round are drawn again, with the same number for each job, and no farther apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from controller.placement.candidates import MOST
from controller.placement.machines import Allocation, FreePool

_TRIES = 5
"""How many draws are tried for each candidate. Chosen: enough for MOST where there are as many."""


def candidate_rounds(
    granted: Mapping[str, Allocation],
    kept: Mapping[str, Allocation],
    pool: FreePool,
    *,
    most: int = MOST,
    seed: int | str = 0,
) -> list[dict[str, Allocation]]:
    """Up to `most` different outcomes of a round of offers, the scheduler's own first.

    `granted` are the GPUs that jobs have just got, `kept` those of jobs that could have got others, because
    their lease is over. Each outcome has the GPUs of all these jobs. In an outcome a job has as many GPUs as
    the scheduler gave it, in the same tier of the network or a closer one, on no more machines and racks. In
    every second draw the jobs of `kept` keep theirs. `pool` has the GPUs that are free after the round; it is
    left as it is.
    """
    own = {**kept, **granted}
    found = [own]
    seen = {tuple(sorted(own.items()))}
    random = Random(f"{seed}/candidates")
    for attempt in range(_TRIES * most):
        if len(found) == most:
            break
        names = list(own if attempt % 2 else granted)
        drawn = _drawn(names, own, pool, random)
        outcome = {**own, **drawn}
        key = tuple(sorted(outcome.items()))
        if key not in seen:
            seen.add(key)
            found.append(outcome)
    return found


def _drawn(
    names: Sequence[str], own: Mapping[str, Allocation], pool: FreePool, random: Random
) -> dict[str, Allocation]:
    """Other GPUs for these jobs, in a random order; empty if one of them finds none."""
    for name in names:
        pool.give_back(own[name])
    drawn: dict[str, Allocation] = {}
    for name in random.sample(names, len(names)):
        found = pool.alike(own[name], random)
        if found is None:
            break
        pool.take(found)
        drawn[name] = found
    for allocation in drawn.values():
        pool.give_back(allocation)
    for name in names:
        pool.take(own[name])
    return drawn if len(drawn) == len(names) else {}
