# SPDX-License-Identifier: Apache-2.0
"""An earlier plan for the jobs of today, so that it can come into force again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import pairwise

from controller.model.job import Job
from controller.model.plan import LinkPlan, Plan
from controller.planner.planned_pairs import planned_pairs


class RollbackError(ValueError):
    """The earlier plan does not fit the fabric of today; the message says why."""


def rolled_back(
    earlier: Plan,
    jobs: Iterable[Job],
    version: int,
    down_links: Collection[tuple[str, str]] = (),
    down_switches: Collection[str] = (),
) -> Plan:
    """`earlier` under the number `version`, for the present `jobs`. Jobs that have left are left out.

    Slots count from the earlier epoch. `down_links` are pairs of nodes, sorted.

    Raises:
        RollbackError: a present job or flow is not in the earlier plan, or one of its paths leads over what
            is down.
    """
    present = {job.name for job in jobs}
    wanted = {flow.name for job in jobs for flow in job.flows}
    if new := sorted(present - earlier.jobs.keys()):
        raise RollbackError(f"plan {earlier.version} has no job {new[0]}, which is present")
    if other := sorted(wanted - earlier.flows.keys()):
        raise RollbackError(f"plan {earlier.version} has no flow {other[0]}, which is present")
    flows = {name: flow for name, flow in earlier.flows.items() if name in wanted}
    for flow in flows.values():
        path = flow.path or ()
        dead = [n for n in path if n in down_switches]
        dead += ["-".join(pair) for pair in pairwise(path) if tuple(sorted(pair)) in down_links]
        if dead:
            raise RollbackError(
                f"plan {earlier.version} sends flow {flow.flow} over {dead[0]}, which is down"
            )
    links = (
        LinkPlan(link.src, link.dst, tuple(j for j in link.jobs if j in present), link.score)
        for link in earlier.links
    )
    pairs, mice_pairs = planned_pairs(jobs, flows)
    return replace(
        earlier,
        version=version,
        flows=flows,
        jobs={name: job for name, job in earlier.jobs.items() if name in present},
        links=tuple(link for link in links if len(link.jobs) > 1),
        pins=tuple(pin for pin in earlier.pins if pin.flow in wanted),
        remarks=tuple(remark for remark in earlier.remarks if remark.flow in wanted),
        pairs=pairs,
        mice_pairs=mice_pairs,
    )
