# SPDX-License-Identifier: Apache-2.0
"""All methods to give jobs priorities behind one interface: jobs on links in, order and levels out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from controller.priority import baselines
from controller.priority.compress import HYSTERESIS, ORDERS, compress, compress_graph
from controller.priority.crux import Contender, RankedJob, contention, rank
from controller.priority.graph import Edges, Graph, graph_of_links
from controller.priority.jobs import LinkJob, Rates


@dataclass(frozen=True, slots=True)
class LevelAssignment:
    """The result of a method: `ranked` holds the jobs, highest first; `level` 0 is the highest.

    `edges` is the contention DAG, (higher, lower) -> the intensity of the higher job. `cut` is the weight of
    its edges between different levels, `lost` that of the others.
    """

    ranked: tuple[RankedJob, ...]
    level: Mapping[str, int]
    edges: Mapping[tuple[str, str], float]
    cut: float
    lost: float


@dataclass(frozen=True, slots=True)
class Setting:
    """What a method may use besides the jobs.

    `levels` is K (None: one level for each job), `seed` that of random choices. For CRUX `orders` is the
    number of sampled orders, and `previous` and `hysteresis` are those of `compress`.
    """

    levels: int | None = None
    seed: int = 0
    orders: int = ORDERS
    previous: Mapping[str, int] | None = None
    hysteresis: float = HYSTERESIS


Order = Callable[[Sequence[LinkJob], Rates, Setting], Sequence[RankedJob]]
Levels = Callable[[Sequence[RankedJob], Mapping[tuple[str, str], float], Setting], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Method:
    """An order of the jobs that send, and how that order is cut into levels.

    The priority of a ranked job is in the method's own unit, higher first. Jobs that send nothing are not
    passed to methods: they are last, on the lowest level.
    """

    name: str
    order: Order
    compress: Levels

    def assign(
        self, jobs: Sequence[LinkJob], rate_bps: Rates, setting: Setting | None = None
    ) -> LevelAssignment:
        """The order and levels of the jobs. Raises ValueError for two jobs of one name, or levels below 1."""
        setting = setting or Setting()
        _check_levels(setting)
        ranked = self.rank(jobs, rate_bps, setting)
        senders = [r for r in ranked if r.intensity is not None]
        on = {j.name: [link for link, sent in j.bytes_on.items() if sent > 0] for j in jobs}
        graph = graph_of_links([on[r.name] for r in senders], [r.intensity or 0.0 for r in senders])
        names = [r.name for r in senders]
        if setting.levels is None:
            levels: Sequence[int] = range(len(senders))
        elif self.compress is _cut:
            levels = _cut_graph(graph, names, setting)
        else:
            levels = self.compress(senders, {}, setting)
        cut = graph.cut(np.array(levels, dtype=np.int64))
        level = _all_levels(ranked, senders, levels, setting)
        return LevelAssignment(ranked, level, Edges(graph, names), cut, float(graph.weight.sum()) - cut)

    def rank(self, jobs: Sequence[LinkJob], rate_bps: Rates, setting: Setting) -> tuple[RankedJob, ...]:
        """All jobs, highest first; those that send nothing are last, by name.

        Raises ValueError for two jobs of one name.
        """
        if len({j.name for j in jobs}) < len(jobs):
            raise ValueError("two jobs have the same name")
        senders = [j for j in jobs if any(sent > 0 for sent in j.bytes_on.values())]
        silent = sorted({j.name for j in jobs} - {j.name for j in senders})
        return (
            *self.order(senders, rate_bps, setting),
            *(RankedJob(name, None, 1.0, 0.0) for name in silent),
        )

    def place(
        self, ranked: Sequence[RankedJob], sharing: Iterable[tuple[str, str]], setting: Setting
    ) -> LevelAssignment:
        """The levels of ranked jobs. `sharing` holds the pairs that contend. Raises ValueError for levels
        below 1.
        """
        _check_levels(setting)
        senders = [r for r in ranked if r.intensity is not None]
        names = {r.name for r in senders}
        edges = contention(senders, [pair for pair in sharing if names.issuperset(pair)])
        if setting.levels is None:
            levels: Sequence[int] = range(len(senders))
        else:
            levels = self.compress(senders, edges, setting)
        level = _all_levels(ranked, senders, levels, setting)
        cut = sum(w for (a, b), w in edges.items() if level[a] != level[b])
        return LevelAssignment(tuple(ranked), level, edges, cut, sum(edges.values()) - cut)


def _check_levels(setting: Setting) -> None:
    if setting.levels is not None and setting.levels < 1:
        raise ValueError(f"levels must be at least 1, not {setting.levels}")


def _all_levels(
    ranked: Sequence[RankedJob], senders: Sequence[RankedJob], levels: Sequence[int], setting: Setting
) -> dict[str, int]:
    """The levels of the senders, and those of the jobs that send nothing."""
    level = {r.name: k for r, k in zip(senders, levels, strict=True)}
    for place, r in enumerate(ranked[len(senders) :], len(senders)):
        level[r.name] = place if setting.levels is None else setting.levels - 1
    return level


def _seconds(jobs: Sequence[LinkJob], rate_bps: Rates) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The seconds that each job needs of each link, shape (jobs, links)."""
    times = [job.seconds_on(rate_bps) for job in jobs]
    links = sorted({link for on in times for link in on})
    return np.array([[on.get(link, 0.0) for link in links] for on in times]).reshape(len(jobs), len(links))


def _with_places(contenders: Sequence[Contender]) -> list[RankedJob]:
    """The contenders in the given order, each with its intensity; the priority counts down to 1."""
    count = len(contenders)
    return [RankedJob(c.name, c.intensity, 1.0, float(count - i)) for i, c in enumerate(contenders)]


def _crux(jobs: Sequence[LinkJob], rate_bps: Rates, setting: Setting) -> Sequence[RankedJob]:
    del setting
    return rank([j.contender(rate_bps) for j in jobs])


def _intensity(jobs: Sequence[LinkJob], rate_bps: Rates, setting: Setting) -> Sequence[RankedJob]:
    del setting
    plain = [RankedJob(j.name, i, 1.0, i or 0.0) for j in jobs for i in [j.contender(rate_bps).intensity]]
    return sorted(plain, key=lambda r: (-r.priority, r.name))


def _sincronia(jobs: Sequence[LinkJob], rate_bps: Rates, setting: Setting) -> Sequence[RankedJob]:
    del setting
    jobs = sorted(jobs, key=lambda j: j.name)
    return _with_places([jobs[i].contender(rate_bps) for i in baselines.bssi(_seconds(jobs, rate_bps))])


def _varys(jobs: Sequence[LinkJob], rate_bps: Rates, setting: Setting) -> Sequence[RankedJob]:
    del setting
    jobs = sorted(jobs, key=lambda j: j.name)
    return _with_places([jobs[i].contender(rate_bps) for i in baselines.sebf(_seconds(jobs, rate_bps))])


def _taccl(jobs: Sequence[LinkJob], rate_bps: Rates, setting: Setting) -> Sequence[RankedJob]:
    del setting
    ordered = sorted(jobs, key=lambda j: (-j.distance, j.name))
    return [RankedJob(j.name, j.contender(rate_bps).intensity, 1.0, float(j.distance)) for j in ordered]


def _random(jobs: Sequence[LinkJob], rate_bps: Rates, setting: Setting) -> Sequence[RankedJob]:
    ordered = sorted(jobs, key=lambda j: j.name)
    random.Random(setting.seed).shuffle(ordered)
    return _with_places([j.contender(rate_bps) for j in ordered])


def _cut(
    ranked: Sequence[RankedJob], edges: Mapping[tuple[str, str], float], setting: Setting
) -> Sequence[int]:
    found = compress(
        [r.name for r in ranked],
        edges,
        setting.levels or 1,
        orders=setting.orders,
        seed=setting.seed,
        previous=setting.previous,
        hysteresis=setting.hysteresis,
    )
    return [found.level[r.name] for r in ranked]


def _cut_graph(graph: Graph, names: Sequence[str], setting: Setting) -> Sequence[int]:
    """The same for edges in arrays."""
    previous = setting.previous
    found: list[int] = compress_graph(
        graph,
        setting.levels or 1,
        orders=setting.orders,
        seed=setting.seed,
        previous=None if previous is None else [previous.get(name, -1) for name in names],
        hysteresis=setting.hysteresis,
    ).tolist()
    return found


def _top(
    ranked: Sequence[RankedJob], edges: Mapping[tuple[str, str], float], setting: Setting
) -> Sequence[int]:
    del edges
    return baselines.top_levels(len(ranked), setting.levels or 1)


def _balanced(
    ranked: Sequence[RankedJob], edges: Mapping[tuple[str, str], float], setting: Setting
) -> Sequence[int]:
    del edges
    return baselines.balanced(len(ranked), setting.levels or 1)


def _classes(
    ranked: Sequence[RankedJob], edges: Mapping[tuple[str, str], float], setting: Setting
) -> Sequence[int]:
    """One level for each distance, the largest distance highest; further distances share the lowest."""
    del edges
    distances = sorted({r.priority for r in ranked}, reverse=True)
    return [min(distances.index(r.priority), (setting.levels or 1) - 1) for r in ranked]


def _draws(
    ranked: Sequence[RankedJob], edges: Mapping[tuple[str, str], float], setting: Setting
) -> Sequence[int]:
    """A random cut into runs: each job draws a level, and the drawn levels are sorted."""
    del edges
    rng = random.Random(setting.seed + 1)
    return sorted(rng.randrange(setting.levels or 1) for _ in ranked)


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method("crux", _crux, _cut),
        Method("intensity", _intensity, _cut),
        Method("sincronia", _sincronia, _top),
        Method("varys", _varys, _balanced),
        Method("taccl", _taccl, _classes),
        Method("random", _random, _draws),
    )
}
