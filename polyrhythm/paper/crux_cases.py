# SPDX-License-Identifier: Apache-2.0
"""The small cases of CRUX, section 4.4: five jobs on a two-layer Clos, and all solutions of each case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product

import numpy as np
from numpy.typing import NDArray

from controller.priority.baselines import balanced, top_levels
from controller.priority.compress import compress_graph
from controller.priority.graph import graph_of_links
from controller.priority.jobs import LinkJob
from controller.priority.methods import METHODS, Setting
from polyrhythm.paper.crux_case_paths import RingFabric, least_congested_paths

JOBS, LEVELS, AGGREGATIONS = 5, 3, 2
HOSTS, GPUS_A_HOST = 20, 8
HORIZON_S = 60.0
TOO_EASY = 0.95
"""Cases in which plain ECMP reaches this fraction of the optimum are omitted. Chosen."""

_RATE = 400e9
_FLOPS = 100e12
_SIZES = (2, 2, 3, 4, 6, 8)
_COMPUTE_S = (0.1, 3.0)
_TRAFFIC = (0.5, 2.5)
_OVERLAP = (0.3, 1.0)
_SAME = 1e-9

Floats = NDArray[np.float64]
Levels = tuple[int, ...]
Paths = tuple[int, ...]

PARTITIONS: tuple[Levels, ...] = tuple(
    c for c in product(range(LEVELS), repeat=JOBS) if set(c) == set(range(max(c) + 1))
)
"""The 181 ordered partitions of five jobs into at most three levels: each job's level."""
PATHS: tuple[Paths, ...] = tuple(c for c in product(range(AGGREGATIONS), repeat=JOBS) if c[0] == 0)
"""Each job's aggregation switch; the other sixteen choices are mirror images, with the switches swapped."""
_PARTITION = {levels: i for i, levels in enumerate(PARTITIONS)}
_SPLITS = tuple(c for c in product((0, 1), repeat=JOBS - 1) if sum(c) < LEVELS)


@dataclass(frozen=True)
class MicrobenchCase:
    """A case. `tors[j]` are the ToRs of job j's hosts. Times are in s per iteration, shape (jobs,).

    The all-reduce ring of a job passes each of its ToRs once. If a job has several ToRs, each of them sends
    and receives as much as a host, so every link of the job is busy for `traffic` seconds per iteration.
    """

    gpus: Floats
    hosts: tuple[int, ...]
    tors: tuple[tuple[int, ...], ...]
    compute: Floats
    traffic: Floats
    overlap: Floats

    @cached_property
    def before(self) -> Floats:
        """The compute time before the communication starts, in s."""
        return np.asarray(self.compute * self.overlap)

    @cached_property
    def period(self) -> Floats:
        """The iteration time of each job alone, in s."""
        return np.asarray(self.before + np.maximum(self.compute - self.before, self.traffic))

    @cached_property
    def alone(self) -> float:
        """The GPU-seconds in the horizon if no jobs shared links: an upper bound of the optimum U*."""
        return float((self.gpus * self.compute / self.period).sum() * HORIZON_S)

    def crossing(self, job: int) -> tuple[int, ...]:
        """The ToRs whose links to an aggregation switch the job uses; empty inside one ToR."""
        return self.tors[job] if len(self.tors[job]) > 1 else ()

    def jobs(self, paths: Paths) -> list[LinkJob]:
        """The jobs as the methods see them.

        An uplink is as busy as the downlink next to it, so one link stands for both. The work W_j is in flop;
        all GPUs are alike. The distance is the planner's: the hops of the job's farthest flow.
        """
        found = []
        for j in range(JOBS):
            links = [f"nic{j}", *(f"tor{t}-agg{paths[j]}" for t in self.crossing(j))]
            found.append(
                LinkJob(
                    name=f"job{j}",
                    gpus=int(self.gpus[j]),
                    work=float(self.gpus[j] * self.compute[j] * _FLOPS),
                    compute_s=float(self.compute[j]),
                    bytes_on=dict.fromkeys(links, float(self.traffic[j]) * _RATE / 8),
                    overlap_start=float(self.overlap[j]),
                    distance=4 if self.crossing(j) else 2,
                )
            )
        return found

    def rates(self, jobs: Sequence[LinkJob]) -> dict[str, float]:
        """The rate in bit/s of every link that the jobs use."""
        return {link: _RATE for job in jobs for link in job.bytes_on}

    def seconds(self, paths: Paths) -> Floats:
        """The traffic as an array of shape (jobs, links), in s: first the NICs of each job, then the links of
        ToRs.
        """
        table = np.zeros((JOBS, JOBS + 4 * AGGREGATIONS))
        for j in range(JOBS):
            table[j, j] = self.traffic[j]
            for tor in self.crossing(j):
                table[j, JOBS + AGGREGATIONS * tor + paths[j]] = self.traffic[j]
        return table

    def utilities(self, paths: Sequence[Paths], partitions: Sequence[Levels]) -> Floats:
        """GPU-seconds computed in the horizon, shape (paths, partitions). Needs Numba."""
        from polyrhythm.paper.crux_kernel import utilities

        seconds = np.array([self.seconds(p) for p in paths])
        levels = np.array(partitions, dtype=np.int64)
        after = self.compute - self.before
        return utilities(self.before, after, seconds, levels, self.gpus, HORIZON_S)


def draw_case(random: np.random.Generator) -> MicrobenchCase:
    """Draw a case: 2 to 4 ToRs, 16 to 20 hosts, and five jobs of 2 to 8 whole hosts anywhere."""
    tors = int(random.integers(2, 5))
    sizes = random.choice(_SIZES, JOBS)
    while sizes.sum() > HOSTS:
        sizes = random.choice(_SIZES, JOBS)
    hosts = int(random.integers(max(16, sizes.sum()), HOSTS + 1))
    tor = np.arange(hosts) * tors // hosts
    taken = np.split(random.permutation(hosts)[: sizes.sum()], np.cumsum(sizes)[:-1])
    low, high = _COMPUTE_S
    compute = low * (high / low) ** random.random(JOBS)
    return MicrobenchCase(
        gpus=sizes * float(GPUS_A_HOST),
        hosts=tuple(int(n) for n in sizes),
        tors=tuple(tuple(int(t) for t in np.unique(tor[mine])) for mine in taken),
        compute=compute,
        traffic=compute * random.uniform(*_TRAFFIC, JOBS),
        overlap=random.uniform(*_OVERLAP, JOBS),
    )


def measure(seed: int, number: int) -> dict[str, float] | None:
    """The fraction of the optimum that each method reaches in case `number`; None for a case that is too
    easy.
    """
    random = np.random.default_rng([seed, number])
    case = draw_case(random)
    ecmp = tuple(int(a) for a in random.integers(0, AGGREGATIONS, JOBS))
    equal = float(case.utilities([ecmp], [(0,) * JOBS])[0, 0])
    if equal >= TOO_EASY * case.alone:
        return None
    table = case.utilities(PATHS, PARTITIONS)
    best = float(table.max())
    if equal >= TOO_EASY * best:
        return None
    at = int(table.max(axis=1).argmax())
    drawn = tuple(int(a) for a in random.integers(0, AGGREGATIONS, JOBS))
    found = {"ecmp": equal, "random": float(random.choice(table[_path(drawn)]))}
    found |= {f"path_selection{k}": float(table[_path(p)].max()) for k, p in _choices(case, drawn)}
    jobs = case.jobs(PATHS[at])
    rates = case.rates(jobs)
    for name, method in METHODS.items():
        ranked = method.assign(jobs, rates, Setting(seed=number)).ranked
        order = [int(r.name.removeprefix("job")) for r in ranked]
        split = max(table[at, _PARTITION[levels]] for levels in splits(order))
        found[f"priority_assignment{_suffix(name)}"] = float(split)
    optimal = {i for i, u in enumerate(table[at]) if u >= best * (1 - _SAME)}
    for name, levels in _compressions(case, jobs, _first_order(optimal), random):
        found[f"compression{name}"] = float(table[at, _PARTITION[levels]])
    return {name: value / best for name, value in found.items()}


def _suffix(method: str) -> str:
    return "" if method == "crux" else f"_{method}"


def _path(paths: Paths) -> int:
    """The index in PATHS of a choice of paths, or of its mirror image."""
    return PATHS.index(paths if paths[0] == 0 else tuple(1 - a for a in paths))


def _choices(case: MicrobenchCase, drawn: Paths) -> Iterator[tuple[str, Paths]]:
    """The paths of each method: the planner's choice of least congested paths, in the method's order of jobs.

    CRUX and TACCL* have the planner's measure of load, the highest rate of a job, and beside it two others:
    the duty cycle (`_by_duty`), and the bytes of an iteration (`_by_bytes`).
    """
    jobs = case.jobs(PATHS[0])
    fabric = RingFabric([case.crossing(j) for j in range(JOBS)], AGGREGATIONS, _RATE)
    intense = case.gpus * case.compute / case.traffic
    loads = {
        "": np.full(JOBS, _RATE),
        "_by_duty": _RATE * case.traffic / case.period,
        "_by_bytes": _RATE * case.traffic / 8,
    }
    for name, first in (("", intense), ("_taccl", [job.distance for job in jobs])):
        order = sorted(range(JOBS), key=lambda j: (-first[j], jobs[j].name))
        for measure_of_load, load in loads.items():
            yield f"{name}{measure_of_load}", least_congested_paths(fabric, order, load)
    yield "_random", drawn


def splits(order: Sequence[int]) -> Iterator[Levels]:
    """Every split of an order into at most three runs, as the level of each job."""
    for steps in _SPLITS:
        levels = [0] * JOBS
        for place in range(1, JOBS):
            levels[order[place]] = levels[order[place - 1]] + steps[place - 1]
        yield tuple(levels)


def _first_order(optimal: set[int]) -> tuple[int, ...]:
    """The first of all orders (by job numbers) that some split turns into an optimal partition."""
    # An order can be split into a partition if the levels never fall along it. The first such order sorts by
    # level.
    return min(tuple(sorted(range(JOBS), key=lambda j: (PARTITIONS[i][j], j))) for i in optimal)


def _compressions(
    case: MicrobenchCase, jobs: Sequence[LinkJob], order: Sequence[int], random: np.random.Generator
) -> Iterator[tuple[str, Levels]]:
    """The order, compressed to at most three levels by each method. Levels without jobs are removed.

    The method "random" draws one of the eleven splits of the order, all with the same probability.
    """
    intensity = (case.gpus * case.compute * _FLOPS / case.traffic)[list(order)]
    graph = graph_of_links([list(jobs[j].bytes_on) for j in order], intensity)
    cuts = {
        "": compress_graph(graph, LEVELS).tolist(),
        "_sincronia": top_levels(JOBS, LEVELS),
        "_varys": balanced(JOBS, LEVELS),
        "_random": list(accumulate(random.choice(_SPLITS), initial=0)),
    }
    for name, cut in cuts.items():
        used = sorted(set(cut))
        levels = dict(zip(order, cut, strict=True))
        yield name, tuple(used.index(levels[j]) for j in range(JOBS))
