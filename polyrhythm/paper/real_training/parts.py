# SPDX-License-Identifier: Apache-2.0
"""The parts of the experiment: which jobs meet on which fabric, and their repeated runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyrhythm.paper.real_training.cluster import TrainingCluster
from polyrhythm.paper.real_training.jobs import ProgramJob
from polyrhythm.paper.real_training.runs import Run, run_jobs

RATES_BPS = (25_000_000, 12_500_000, 6_250_000)
"""Rates of the links, from the largest. Chosen: what a kernel and switches in Python can forward."""
WIDTH = 512
"""Of the models' hidden layer at the largest rate: 197,248 parameters, 0.25 s for an all-reduce."""
MOST_BUSY = 0.8
"""A run in which the processors were busier is void: its times tell of the machine, not of the network."""
WARMUP = 2
"""Steps that are not measured."""


@dataclass(frozen=True, slots=True)
class Part:
    """Two jobs at a link rate. `spines` is the number of spines, `policy` that of the controller.

    `colliding`: without us the jobs run where their own ports collide. `spec` has for each job its name, its
    hosts, the pause of a step in ms, and the width of its model relative to `WIDTH`; the first one is of Open
    MPI with `mpi`. With `slots` the jobs fit the link in turn, so a plan has slots for them.
    """

    name: str
    about: str
    spines: int
    policy: str
    spec: tuple[tuple[str, tuple[str, ...], float, float], ...]
    colliding: bool = False
    reports: bool = False
    mpi: bool = False
    slots: bool = False

    def jobs(self, rate_bps: int) -> list[ProgramJob]:
        """The jobs, whose models fit the rate: the times stay the same."""
        return [
            ProgramJob(
                name, hosts, compute_ms, int(WIDTH * width * rate_bps / RATES_BPS[0]),
                reports=self.reports, mpi=self.mpi and not number,
            )
            for number, (name, hosts, compute_ms, width) in enumerate(self.spec)
        ]  # fmt: skip


_LEFT, _RIGHT = ("h1", "h3"), ("h2", "h4")
PARTS = (
    Part(
        "collide",
        "unchanged DistributedDataParallel, only pinned; under ECMP their ports collide",
        2,
        "routing",
        (("a", _LEFT, 150, 1), ("b", _RIGHT, 150, 1)),
        colliding=True,
    ),
    Part(
        "rhythm",
        "the same with the three lines, on one shared link that has time for both",
        1,
        "polyrhythm",
        (("a", _LEFT, 330, 1), ("b", _RIGHT, 330, 1)),
        reports=True,
        slots=True,
    ),
    Part(
        "priority",
        "the same where the link has not time for both",
        1,
        "polyrhythm",
        (("a", _LEFT, 300, 0.5), ("b", _RIGHT, 120, 2)),
        reports=True,
    ),
    Part(
        "mpi",
        "an all-reduce job of Open MPI beside DistributedDataParallel, only pinned; under ECMP they collide",
        2,
        "routing",
        (("m", _LEFT, 150, 1), ("b", _RIGHT, 150, 1)),
        colliding=True,
        mpi=True,
    ),
)


@dataclass(frozen=True, slots=True)
class PartResult:
    """The runs of a part at `rate_bps`: those under ECMP and those under ours, in turn.

    `void` is the number of runs at larger rates for which this machine was too slow. `killed` is a further
    run under ours in which controller and agents were killed.
    """

    part: Part
    rate_bps: int
    ecmp: tuple[Run, ...]
    ours: tuple[Run, ...]
    void: int
    killed: Run | None = None

    def valid(self) -> list[tuple[Run, Run]]:
        """The pairs of runs for which this machine was fast enough."""
        pairs = zip(self.ecmp, self.ours, strict=True)
        return [pair for pair in pairs if max(run.busy for run in pair) <= MOST_BUSY]


Progress = Callable[[], None]


def measure(
    part: Part,
    iterations: int,
    repeats: int,
    folder: Path,
    *,
    rates_bps: Sequence[int] = RATES_BPS,
    kill_control: bool = False,
    progress: Progress = lambda: None,
) -> PartResult:
    """Run a part `repeats` times under ECMP and under ours, in turn, with `iterations` measured steps each.

    If a run is void the part begins anew at the next smaller rate. At the smallest the void runs stay in the
    result. With `kill_control` controller and agents are killed in one more run.

    Raises:
        MininetError: something did not start, or a rank failed.
    """
    void = 0
    for number, rate_bps in enumerate(rates_bps):
        last = number == len(rates_bps) - 1
        runs: Mapping[bool, list[Run]] = {False: [], True: []}
        killed = None
        cluster = TrainingCluster(
            folder / f"{part.name}{number}", spines=part.spines, rate_bps=rate_bps, policy=part.policy,
            measured=part.reports,
        )  # fmt: skip
        try:
            cluster.start()
            jobs, steps = part.jobs(rate_bps), WARMUP + iterations
            for ours in (False, True) * repeats:
                run = run_jobs(cluster, jobs, steps, ours=ours, colliding=part.colliding, slots=part.slots)
                runs[ours].append(run)
                if run.busy > MOST_BUSY and not last:
                    break
                progress()
            else:
                if kill_control:
                    killed = run_jobs(cluster, jobs, steps, ours=True, kill_control=True)
                return PartResult(part, rate_bps, tuple(runs[False]), tuple(runs[True]), void, killed)
        finally:
            cluster.close()
        void += sum(map(len, runs.values()))
    raise ValueError("no rate to measure at")
