# SPDX-License-Identifier: Apache-2.0
"""Calls the planner with random jobs: the joint search against every mechanism alone, with new seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from controller.interleave.cassini import has_loop
from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance, JointFlow, JointJob, steps_of
from controller.interleave.joint.time_sharing import TimeSharing
from controller.interleave.joint.timings import shared_links
from controller.model import Flow, Job, Phase, Plan, Profile
from controller.planner import POLICIES, PlanInput, plan
from controller.routing.ecmp import draw_port
from controller.routing.forwarding import forwarding
from controller.routing.paths import Path, path_of
from topo.generate import leaf_spine

MS, RATE = 1_000_000, 25_000_000_000
FABRIC = leaf_spine(3, 2, 4, host_bps=RATE, fabric_bps=RATE)
TABLE = forwarding(FABRIC)
ALONE = ("ecmp", "routing", "crux", "cassini")
UNSEEN = Effort((9_001, 9_002, 9_003), 60)
SETS = 9


def random_jobs(rng: random.Random, fits: bool) -> tuple[Job, ...]:
    """Rings over distinct hosts of several leaves; `fits`: their phases can share links in time."""
    by_leaf = [[f"h{4 * leaf + i}" for i in range(1, 5)] for leaf in range(3)]
    jobs = []
    for name in "abcdef"[: rng.randint(3, 6)]:
        leaves = [leaf for leaf in range(3) if by_leaf[leaf]]
        if len(leaves) < 2:
            break
        on = rng.sample(leaves, min(len(leaves), rng.choice((2, 2, 3))))
        hosts = tuple(by_leaf[leaf].pop(rng.randrange(len(by_leaf[leaf]))) for leaf in on)
        period = rng.choice((120, 240)) if fits else rng.choice((170, 200, 227, 263, 300))
        up = round((rng.uniform(0.3, 0.45) if fits else rng.uniform(0.4, 0.7)) * min(period, 1000))
        flows = tuple(
            Flow(f"{name}/{a}>{b}", name, a, b, RATE * up // 8000)
            for a, b in zip(hosts, hosts[1:] + hosts[:1], strict=True)
        )
        profile = Profile(period * MS, (Phase(0, up * MS, RATE),))
        gpus = rng.choice((2, 2, 8))
        jobs.append(Job(name, "model", gpus, hosts, profile, 1e12 * (period - up) * gpus, flows))
    return tuple(jobs)


def as_choice(jobs: Sequence[Job], made: Plan, seed: int) -> tuple[Instance, Choice]:
    """The evaluator's form of a finished plan: planned paths, else ECMP's; slots move as a live controller moves them."""
    way = {f.name: tuple(pairwise(made.flows[f.name].path or drawn(f, seed))) for j in jobs for f in j.flows}
    number = {ends: i for i, ends in enumerate(sorted({e for links in way.values() for e in links}))}
    players = tuple(
        JointJob(
            j.name,
            float(j.gpus),
            steps_of(j.profile),
            tuple(JointFlow(1.0, (tuple(number[e] for e in way[f.name]),)) for f in j.flows),
        )
        for j in jobs
    )
    planned = [made.jobs[j.name] for j in jobs]
    choice = Choice(
        (0,) * sum(len(j.flows) for j in jobs),
        tuple(t.level for t in planned),
        tuple((t.period_ns, t.shift_ns % t.period_ns) if t.period_ns else UNSCHEDULED for t in planned),
        (False,) * len(jobs),
    )
    return Instance(players, (RATE,) * len(number), 0.01, levels=16, slowest=9.0, slots_move=True), choice


def drawn(flow: Flow, seed: int) -> Path:
    return path_of(FABRIC, TABLE, flow.src, flow.dst, draw_port(flow.name, seed))


def used(jobs: Sequence[Job], made: Plan, seed: int) -> float:
    instance, choice = as_choice(jobs, made, seed)
    return float(Evaluator(instance).utilisation(choice, UNSEEN).mean())


def hard(jobs: Sequence[Job], made: Plan, seed: int) -> bool:
    """Whether these paths make a loop, or put two jobs on a link that they cannot share in time."""
    instance, choice = as_choice(jobs, made, seed)
    links = shared_links(instance, choice.path_choice)
    time_sharing, at = TimeSharing(instance), {j.name: i for i, j in enumerate(jobs)}
    pairs = [(at[a], at[b]) for k in links for a in k.demands for b in k.demands if at[a] < at[b]]
    return has_loop(links) or not all(time_sharing.can_share(a, b) for a, b in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("fits", [True, False], ids=["compatible", "incompatible"])
def test_it_is_never_worse_than_a_mechanism_alone_and_better_where_they_are_not_enough(fits: bool) -> None:
    rng = random.Random(f"door {fits}")
    gains = []
    for seed in range(SETS):
        jobs = random_jobs(rng, fits)
        # Without the floor, which the mechanisms do not have either.
        policies = {name: POLICIES[name] for name in ALONE}
        policies["polyrhythm"] = POLICIES["polyrhythm"].with_options({"max_slowdown": None})
        plans = {
            name: plan(PlanInput(FABRIC, jobs, policy, 0, seed=seed)) for name, policy in policies.items()
        }
        values = {name: used(jobs, made, seed) for name, made in plans.items()}
        ours = values.pop("polyrhythm")
        best = max(values.values())
        assert ours > 0.99 * best, (seed, values, ours)
        bound = Evaluator(as_choice(jobs, plans["ecmp"], seed)[0]).bound
        if bound > 1.02 * best and any(hard(jobs, plans[name], seed) for name in ("ecmp", "routing")):
            gains.append((ours - best) / (bound - best))
    assert len(gains) >= 3
    assert sum(gains) / len(gains) > 0.2
