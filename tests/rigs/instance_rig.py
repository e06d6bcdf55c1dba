# SPDX-License-Identifier: Apache-2.0
"""Random instances and random choices for the loop of time and space."""

from __future__ import annotations

import random

from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance, JointFlow, JointJob, Step

MS, G = 1_000_000, 1_000_000_000


def random_instance(rng: random.Random, count: int, jitter: float = 0.02) -> Instance:
    players = []
    for i in range(count):
        steps = tuple(
            Step(rng.randint(5, 60) * MS, rng.choice([50, 50, 25]) * G, rng.randint(5, 100) * MS)
            for _ in range(rng.choice([1, 1, 2]))
        )
        flows = tuple(
            JointFlow(part, tuple(tuple(sorted(rng.sample(range(5), 2))) for _ in "ab"))
            for part in (1.0, 1.0, 0.5)[: rng.randint(1, 3)]
        )
        players.append(JointJob(f"j{i}", float(rng.randint(1, 4)), steps, flows))
    queues = (True, True, True, True, False) if count % 3 else ()
    return Instance(tuple(players), (50 * G,) * 5, jitter, slots_move=count % 2 == 0, queues=queues)


def random_choice(rng: random.Random, instance: Instance) -> Choice:
    count = len(instance.jobs)
    timings = [
        UNSCHEDULED if rng.random() < 0.6 else (round(p.alone_ns * 1.01), rng.randrange(p.alone_ns))
        for p in instance.jobs
    ]
    return Choice(
        tuple(rng.randrange(2) for _ in instance.flows),
        tuple(rng.randrange(3) for _ in range(count)),
        tuple(timings),
        tuple(rng.random() < 0.3 for _ in range(count)),
    )
