# SPDX-License-Identifier: Apache-2.0
"""One run of some jobs on a training cluster, under ECMP or under ours."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from socket import IPPROTO_TCP
from typing import Any

from controller.routing.forwarding import forwarding
from controller.routing.paths import path_of
from polyrhythm.emulation.cpu_load import cpu_ticks, load_between
from polyrhythm.paper.real_training.capture import Capture, Tuple5
from polyrhythm.paper.real_training.cluster import Rank, TrainingCluster
from polyrhythm.paper.real_training.jobs import ProgramJob, start
from topo.mininet import MininetError, port_interface

LONGEST_WARM_UP_S = 180.0
"""Chosen: a job joins after six iterations and is measured over six more, one job after the other; on a busy
machine iterations are lost, and it takes several times as long."""
_LAST_WARM_UP_STEPS = 6
"""So many steps after the plan is in force the measured ones begin. Chosen: the jobs reach their slots, and
each rank hears of the end before it comes."""
_LOOK_S = 0.2
MOST_DRAWS = 20
"""Starts until the jobs' own ports collide under ECMP. On two spines three of four do."""

Carried = Mapping[tuple[str, str], Counter[Tuple5]]
"""Payload bytes by connection, for each link from a leaf to a spine."""


@dataclass(frozen=True, slots=True)
class MeasuredJob:
    """The iterations of a job in ms, all of them, and what it ends with: the hashes of its losses and of its
    parameters."""

    iterations_ms: tuple[float, ...]
    losses: str
    state: str


@dataclass(frozen=True, slots=True)
class Run:
    """What a run measured. `busy` is the part of the machine's processor time that was not idle while the
    jobs trained, `draws` how often the jobs were started, `on_planned` the part of their bytes that took the
    planned paths; None without a plan. `slots` is what the plan said of each job shortly before the end.
    Jobs that report took `warm_up_steps` before the measured ones; `not_planned` says why they were then
    measured without the plan for their profiles, and is empty if they were not.
    """

    jobs: Mapping[str, MeasuredJob]
    busy: float
    draws: int
    on_planned: float | None
    control_killed: bool = False
    slots: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    warm_up_steps: int = 0
    not_planned: str = ""


def run_jobs(
    cluster: TrainingCluster,
    jobs: Sequence[ProgramJob],
    steps: int,
    *,
    ours: bool,
    colliding: bool = False,
    kill_control: bool = False,
    slots: bool = False,
) -> Run:
    """Start the jobs, let them begin together, and wait for their end.

    With `ours` they are steered, and those that do not report are declared. Without, they know nothing of
    Polyrhythm; with `colliding` they are then started again until the ports that they chose by themselves let
    them share a link between switches. With `kill_control` controller and agents are killed in mid-training.

    Those that report warm up until the plan for their measured profiles is in force, with `slots` one that
    has slots for them, or for `LONGEST_WARM_UP_S`.

    Raises:
        MininetError: a rank failed.
    """
    silent = [job for job in jobs if ours and not job.reports]
    for job in silent:
        up_ms = job.up_ms(cluster.rate_bps)
        cluster.declare(job.name, job.hosts, job.compute_ms + up_ms, up_ms, job.sent_bytes)
    draws = 0
    while True:
        draws += 1
        with ExitStack() as ending:
            ranks = {job.name: start(cluster, job, steps, steered=ours) for job in jobs}
            for each in ranks.values():
                for rank in each:
                    ending.callback(rank.kill)
            for each in ranks.values():
                for rank in each:
                    rank.wait("ready")
            if colliding and not ours and not _collide(cluster, jobs):
                if draws == MOST_DRAWS:
                    raise MininetError(f"the jobs' ports did not collide in {draws} starts")
                continue
            run = _trained(cluster, jobs, ranks, steps, draws, ours, kill_control, slots)
        if not kill_control:
            for job in silent:
                cluster.end_job(job.name)
        return run


def _trained(
    cluster: TrainingCluster,
    jobs: Sequence[ProgramJob],
    ranks: Mapping[str, Sequence[Rank]],
    steps: int,
    draws: int,
    ours: bool,
    kill_control: bool,
    with_slots: bool,
) -> Run:
    # Jobs that report are planned for while they run, so their first steps cannot be on planned paths.
    silent = [job.name for job in jobs if ours and not job.reports]
    planned = [cluster.planned(name) for name in silent]
    cluster.wait_pinned(sum(map(len, planned)))
    every = [rank for each in ranks.values() for rank in each]
    firsts = {name: each[0] for name, each in ranks.items()}
    captures = {leaf: _capture(cluster, leaf) for leaf in cluster.topology.prefixes}
    for rank in every:
        rank.begin()
    warm_up_steps, not_planned = 0, ""
    reporting = {job.name: ranks[job.name] for job in jobs if ours and job.reports}
    if reporting:
        warm_up_steps, not_planned = _warm_up(cluster, reporting, with_slots)
    before = cpu_ticks()
    if kill_control:
        for rank in firsts.values():
            rank.wait("step", steps // 2)
        cluster.kill_control()
        if any("state" in line for rank in firsts.values() for line in rank.lines()):
            raise MininetError("the jobs ended before controller and agents were killed")
    slots: Mapping[str, Mapping[str, Any]] = {}
    if ours and not kill_control:
        for rank in firsts.values():
            rank.wait("step", steps - 2)
        slots = cluster.slots()
    for rank in firsts.values():
        rank.wait("state")
    after = cpu_ticks()
    for rank in every:
        rank.end()
    carried = {
        (leaf, spine): sent[interface]
        for leaf, (capture, spines) in captures.items()
        for sent in (capture.stop(),)
        for interface, spine in spines.items()
    }
    return Run(
        jobs={name: _job_run(rank) for name, rank in firsts.items()},
        busy=load_between(before, after),
        draws=draws,
        on_planned=on_planned_paths(_by_address(cluster, planned), carried) if planned else None,
        control_killed=kill_control,
        slots=slots,
        warm_up_steps=warm_up_steps,
        not_planned=not_planned,
    )


def _warm_up(
    cluster: TrainingCluster, ranks: Mapping[str, Sequence[Rank]], with_slots: bool
) -> tuple[int, str]:
    """Wait for the plan that the jobs are measured under, and let them begin the steps that count. Returns
    the most steps that a job took before, and why it has no plan for its profile."""
    deadline = time.monotonic() + LONGEST_WARM_UP_S
    while (missing := cluster.unplanned(ranks, slots=with_slots)) and time.monotonic() < deadline:
        for each in ranks.values():
            for rank in each:
                rank.warm_up_steps()
        time.sleep(_LOOK_S)
    most = 0
    for each in ranks.values():
        end = max(rank.warm_up_steps() for rank in each) + _LAST_WARM_UP_STEPS
        most = max(most, end)
        for rank in each:
            rank.end_warm_up(end)
    return most, missing


def on_planned_paths(
    planned: Iterable[Mapping[tuple[str, str], tuple[str, ...]]], carried: Carried
) -> float | None:
    """The part of the bytes between the ends of planned flows that left their leaf for the planned spine.

    `planned` has the path of each flow of a job, (host, leaf, spine, ...), by source and destination address.
    None if nothing was sent between them.
    """
    right = total = 0
    for flows in planned:
        for ends, (_, leaf, spine, *_) in flows.items():
            for (at, to), sizes in carried.items():
                size = sum(n for t, n in sizes.items() if (t.source, t.destination) == ends)
                total += size if at == leaf else 0
                right += size if (at, to) == (leaf, spine) else 0
    return right / total if total else None


def _by_address(
    cluster: TrainingCluster, planned: Iterable[Mapping[tuple[str, str], tuple[str, ...]]]
) -> list[dict[tuple[str, str], tuple[str, ...]]]:
    ip = {name: host.ip for name, host in cluster.topology.host.items()}
    return [{(ip[a], ip[b]): path for (a, b), path in flows.items()} for flows in planned]


def _capture(cluster: TrainingCluster, leaf: str) -> tuple[Capture, Mapping[str, str]]:
    """A capture at a leaf's ports to spines, and the spine of each of its interfaces."""
    spines = {
        port_interface(port): peer.node
        for port, peer in cluster.topology.ports[leaf].items()
        if peer.node not in cluster.topology.host
    }
    return Capture(cluster.network, leaf, list(spines), cluster.folder), spines


def _collide(cluster: TrainingCluster, jobs: Sequence[ProgramJob]) -> bool:
    """Whether the ports that the jobs have chosen by themselves let them share a link between switches."""
    topology = cluster.topology
    table = forwarding(topology)
    host_of = {host.ip: host.name for host in topology.hosts}
    links: list[set[tuple[str, str]]] = []
    for job in jobs:
        links.append(set())
        for host in job.hosts:
            for connection in cluster.connections(host):
                (_, port), (peer, other) = connection.local, connection.peer
                if host_of.get(peer) in job.hosts and job.carries_data(port, other):
                    path = path_of(
                        topology, table, host, host_of[peer], port, protocol=IPPROTO_TCP, dest_port=other
                    )
                    links[-1].update(pairwise(path[1:-1]))
    return any(a & b for i, a in enumerate(links) for b in links[:i])


def _job_run(rank: Rank) -> MeasuredJob:
    lines = rank.lines()
    end = lines[-1]
    return MeasuredJob(tuple(line["ms"] for line in lines if "step" in line), end["losses"], end["state"])
