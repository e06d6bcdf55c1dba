# SPDX-License-Identifier: Apache-2.0
"""The stages where there are too many jobs for the loop to judge: only what cannot do harm is held."""

from __future__ import annotations

from dataclasses import replace

from controller.interleave.hold import Holding
from controller.planner.demand import Demands
from controller.planner.order import Order, method_of
from controller.planner.rhythm import Rhythms
from controller.planner.space import Space
from controller.priority.methods import Setting


def unjudged(demands: Demands) -> tuple[Space, Rhythms, Order]:
    """Paths without regard to turns, turns only for groups that meet nobody else, levels for all others.

    A held job that also meets one outside of its group is lengthened past its slot by that one and then
    waits for its next: whether turns are worth that, only the loop's judge can tell. What is left is CRUX's
    plan, on paths that are no worse.
    """
    space = Space(demands, turns=False)
    link_jobs = demands.link_jobs(space.links_of)
    ranked = method_of(demands.inputs.policy).rank(
        link_jobs, demands.rates, Setting(seed=demands.inputs.seed)
    )
    rhythms = Rhythms(demands, space.shared, tuple(r.name for r in ranked))
    holding = rhythms.holding
    meeting = {job for pair in rhythms.contending for job in pair}
    let_go = {h.group for job, h in holding.held.items() if job in meeting}
    if let_go:
        held = {job: h for job, h in holding.held.items() if h.group not in let_go}
        reasons = {
            job: "its turns would be upset by jobs outside of them"
            for job, h in holding.held.items()
            if h.group in let_go
        }
        fits = tuple(f for f in holding.fits if held.keys() >= set(f.jobs))
        kept = Holding(held, {**holding.reasons, **reasons}, fits, ())
        rhythms = replace(rhythms, given=kept)
    return space, rhythms, Order(demands, ranked, rhythms, tuple(link_jobs))
