# SPDX-License-Identifier: Apache-2.0
"""The file of `polyrhythm sweep`: what is to be simulated, and with which options."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from controller.planner import PolicyError, policy_named
from polyrhythm.simulated_workload import ClusterOptions, is_scenario
from polyrhythm.sweep.point import Point
from polyrhythm_files import InvalidValueError, Section, convert, finite, listed, read_document
from sim.scheduler import SCHEDULERS
from sim.workload import GENERATORS

MOST_POINTS = 100_000
"""Chosen: their rows, of 1 kB each, still fit the memory of the process that collects them."""
Name = Annotated[str, Meta(min_length=1, extra={"legal": "text of one character or more"})]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]


class SweepFile(Section, frozen=True, kw_only=True):
    """Simulations of every trace on every topology, under every policy and scheduler, with every seed."""

    traces: Annotated[
        tuple[Name, ...],
        Meta(
            min_length=1,
            description="traces and scenarios (files, from this file's folder), names of scenarios that come "
            f"with Polyrhythm, and generators ({', '.join(f'{g}:...' for g in GENERATORS)})",
        ),
    ]
    topologies: Annotated[
        tuple[Name, ...],
        Meta(description="topology files, from this file's folder; a scenario has its own fabric"),
    ] = ()
    policies: Annotated[tuple[Name, ...], Meta(min_length=1, description="registered policies")] = ("ecmp",)
    schedulers: Annotated[tuple[Name, ...], Meta(min_length=1, description=f"of {', '.join(SCHEDULERS)}")] = (
        "fifo",
    )
    seeds: Annotated[tuple[Seed, ...], Meta(min_length=1, description="of all random choices")] = (1,)
    gpus_per_server: Annotated[int, Meta(ge=1, le=1_000_000)] = 8
    pcie_gbps: Annotated[float, finite(0, 1e6, what="between GPUs and NIC of a server; 0: no limit")] = 0.0
    nvlink_gbps: Annotated[float, finite(0, 1e6, what="between the GPUs of a server; 0: no limit")] = 0.0
    host_gbps: Annotated[float, finite(1e-3, 1e6, what="of the NICs in Lingjun's topo.csv")] = 200.0
    fabric_gbps: Annotated[
        float, finite(1e-3, 1e6, what="of the links between switches in Lingjun's topo.csv")
    ] = 400.0
    hours: Annotated[float, finite(1e-3, 2_500, what="over which generated jobs arrive")] = 24.0
    lease_s: Annotated[float, finite(1e-3, 1e9, what="of the placement schedulers")] = 7_200.0
    restore_s: Annotated[
        float, finite(0, 9e6, what="in which a stopped job saves its state and continues elsewhere")
    ] = 0.0
    until_s: Annotated[float, finite(0, 9e6, what="stop at this time; 0: when all jobs have ended")] = 0.0
    replan_delay_ms: Annotated[float, finite(0, 9e6, what="from an event to the new plan's effect")] = 0.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """The simulations of a file, in its order, and the options that they share."""

    points: tuple[Point, ...]
    options: ClusterOptions


def load_sweep(path: Path) -> Sweep:
    """Read and check a file; the traces and topologies that it names are read later.

    Raises:
        ConfigError: with file, line and path.
    """
    document = read_document(path)
    given = convert(document, SweepFile)
    with document.checks():
        return _sweep(given, path.parent)


def _sweep(given: SweepFile, folder: Path) -> Sweep:
    for key in ("traces", "topologies", "policies", "schedulers", "seeds"):
        values = getattr(given, key)
        for i, value in enumerate(values):
            if value in values[:i]:
                raise InvalidValueError((key, i), f"{value!r} is there twice; legal: each once")
    for i, name in enumerate(given.policies):
        try:
            policy_named(name)
        except PolicyError as error:
            raise InvalidValueError(("policies", i), str(error)) from None
    for i, name in enumerate(given.schedulers):
        if name not in SCHEDULERS:
            raise InvalidValueError(
                ("schedulers", i), f"{name!r:.60} is no scheduler; legal: {listed(SCHEDULERS)}"
            )
    points = []
    for i, trace in enumerate(given.traces):
        file = _file(trace, folder)
        scenario = is_scenario(file)
        if not given.topologies and scenario is False:
            raise InvalidValueError(
                ("traces", i), "only a scenario has its own fabric; legal: with topologies"
            )
        fabrics = ("",) if scenario or not given.topologies else given.topologies
        points += [
            Point(
                trace, file, topology, str(folder / topology) if topology else "",
                policy, scheduler, seed, given.lease_s, given.until_s, given.replan_delay_ms, given.restore_s,
            )
            for topology, policy, scheduler, seed in product(
                fabrics, given.policies, given.schedulers, given.seeds
            )
        ]  # fmt: skip
        if len(points) > MOST_POINTS:
            raise InvalidValueError(("traces", i), f"more than {MOST_POINTS} simulations; legal: fewer")
    return Sweep(
        tuple(points), ClusterOptions(**{f.name: getattr(given, f.name) for f in fields(ClusterOptions)})
    )


def _file(trace: str, folder: Path) -> str:
    """A trace as `load_workload` takes it: a path from the present folder, or a name."""
    named = ":" in trace or not Path(trace).suffix
    return trace if named and not (folder / trace).is_file() else str(folder / trace)
