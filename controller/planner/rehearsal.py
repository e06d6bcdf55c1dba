# SPDX-License-Identifier: Apache-2.0
"""Compile the kernels that plans need, before a job needs them: plans for jobs that nobody has."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from controller.interleave import rotate
from controller.interleave.joint import kernel_sources
from controller.kernel import cache_folder, installed
from controller.model import Flow, Job, Phase, Profile
from controller.planner.compose import plan
from controller.planner.first_plan import first_plan
from controller.planner.inputs import PlanInput
from controller.planner.registry import POLICIES
from controller.routing import backend
from topo.generate import leaf_spine

_SOURCES = (backend.FOLDER, rotate.KERNELS, *kernel_sources.SOURCES)
_RATE_BPS = 10_000_000_000
_MS = 1_000_000
# Chosen: no two repeat together soon, so that the search has something to decide.
_PERIODS_MS = (200, 300, 470, 610, 1_000)
_RINGS = 16
"""Rings of each job. Chosen: so many flows in all that routing uses its kernels (`backend.SMALL`)."""


def kernels_are_cold() -> bool:
    """Whether a plan may have to compile kernels: this takes half a minute of processor time, once on a
    machine for each version. What was compiled in part, by a process that has ended, counts as cold."""
    return installed() and not _complete().exists()


def _complete() -> Path:
    """The file that says that all kernels of these sources, in this place, are compiled by the Numba that is
    installed. Numba keeps the code of each place apart."""
    place = hashlib.sha256(str(backend.FOLDER).encode()).hexdigest()[:16]
    return cache_folder(*_SOURCES) / f"complete-{place}-numba-{metadata.version('numba')}"


def compile_kernels() -> None:
    """Make plans by which all kernels that the default policy uses are compiled and kept."""
    topology = leaf_spine(4, 2, 2, host_bps=_RATE_BPS, fabric_bps=_RATE_BPS)
    jobs = tuple(
        _job(f"j{n}", [h.name for h in topology.hosts[n % 2 :: 2]], period)
        for n, period in enumerate(_PERIODS_MS)
    )
    inputs = PlanInput(topology, jobs, POLICIES["polyrhythm"], 0)
    before = first_plan(inputs)
    plan(replace(inputs, jobs=jobs[1:], previous=before))
    # Where the machine code cannot be kept, each process compiles the kernels again.
    with suppress(OSError):
        _complete().parent.mkdir(parents=True, exist_ok=True)
        _complete().touch()


def _job(name: str, hosts: list[str], period_ms: int) -> Job:
    period = period_ms * _MS
    pairs = [(a, hosts[(n + 1) % len(hosts)]) for n, a in enumerate(hosts)]
    size = _RATE_BPS * period // (2 * _RINGS * 8_000_000_000)
    flows = tuple(
        Flow(f"{name}/{ring}/{n}", name, a, b, size)
        for ring in range(_RINGS)
        for n, (a, b) in enumerate(pairs)
    )
    profile = Profile(period, (Phase(0, period // 2, _RATE_BPS // _RINGS),))
    return Job(name, "none", len(hosts), tuple(hosts), profile, 1e12, flows)
