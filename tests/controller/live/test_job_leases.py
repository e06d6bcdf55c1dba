# SPDX-License-Identifier: Apache-2.0
"""Workers end with their lease, and by what their agents list."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control_rig import RATE_BPS, job

from controller.live.core import Core
from controller.live.messages import AgentDown, AgentUp, WorkerJoined, WorkersListed
from controller.live.settings import CoreSettings
from controller.planner import POLICIES
from topo.generate import leaf_spine

A = job("a", "h1", "h3")
ALL = {host: frozenset({("a", rank)}) for rank, host in enumerate(A.hosts)}


@pytest.fixture
def core() -> Core:
    """A controller that knows job a, whose agents' processes are then new ones."""
    topology = leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
    core = Core(CoreSettings(topology, POLICIES["ecmp"], 1, False, 10_000))
    for rank, host in enumerate(A.hosts):
        core.handle(AgentUp(host, "udp", workers=frozenset()))
        core.handle(WorkerJoined(host, rank, A))
    for host in A.hosts:
        core.handle(AgentDown(host))
        core.handle(AgentUp(host, "udp"))
    assert known(core) == {"a"}
    return core


def known(core: Core) -> set[str]:
    return {j.name for j in core.registry.jobs}


def test_a_young_agent_ends_no_job_until_it_lists_its_workers(core: Core) -> None:
    for rank, host in enumerate(A.hosts):
        core.handle(WorkerJoined(host, rank, A))
        core.handle(WorkersListed(host, ALL[host]))
        assert known(core) == {"a"}
    core.handle(WorkersListed("h1", frozenset()))
    assert known(core) == {"a"}
    core.handle(WorkersListed("h3", frozenset()))
    assert known(core) == set()


def test_a_job_whose_workers_do_not_come_back_makes_way_for_a_new_one_of_its_name(core: Core) -> None:
    other = replace(A, gpus=16)
    for rank, host in enumerate(A.hosts):
        core.handle(WorkerJoined(host, rank, other))
    assert [j.gpus for j in core.registry.jobs] == [16]


def test_a_job_of_which_a_worker_is_back_makes_way_for_nobody(core: Core) -> None:
    core.handle(WorkerJoined("h3", 1, A))
    core.handle(WorkerJoined("h1", 0, replace(A, gpus=16)))
    core.handle(WorkerJoined("h1", 0, A))
    assert [j.gpus for j in core.registry.jobs] == [A.gpus]
