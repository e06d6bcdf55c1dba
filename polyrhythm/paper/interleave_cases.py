# SPDX-License-Identifier: Apache-2.0
"""Sets of jobs on the testbed of the thesis and on a large fabric: compatible, incompatible, looped,
adversarial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from random import Random

from controller.interleave.cassini import has_loop
from controller.interleave.joint.instance import Instance, JointFlow, JointJob, Step
from controller.interleave.joint.time_sharing import TimeSharing
from controller.interleave.joint.timings import shared_links
from controller.planner.search_instance import SLOWEST
from controller.routing.ecmp import draw_port
from controller.routing.fabric import UnsuitableError
from controller.routing.forwarding import forwarding
from controller.routing.from_topology import Failures
from controller.routing.greedy import Commodity, connection_order
from controller.routing.paths import Forwarding, Path, path_of, paths
from controller.routing.protocol import RoutingProblem
from controller.routing.routings import LeastCongested, Optimal
from sim.network import Network
from topo.generate import explicit, leaf_spine
from topo.graph import Tier, Topology

TESTBED, LARGE, SMALL = "testbed", "64x32", "2x2"
JITTER = 0.01
"""Each compute time varies by up to this fraction. Chosen."""
_NIC = 50_000_000_000
_MS = 1_000_000
_WAYS = 8


@cache
def testbed() -> Network:
    """24 servers, 13 switches, 48 cables, 50 Gbit/s each, 2:1 oversubscribed above the ToRs (thesis, 4.5.1).

    The layout is 2 pods with 3 ToRs and 2 aggregation switches each, and 3 cores.
    """
    switches = [(f"tor{i}", Tier.LEAF) for i in range(1, 7)]
    switches += [(f"agg{i}", Tier.SPINE) for i in range(1, 5)] + [
        (f"core{i}", Tier.CORE) for i in range(1, 4)
    ]
    hosts = [(f"s{i + 1}", f"tor{i // 4 + 1}", _NIC) for i in range(24)]
    cables = [
        (f"tor{3 * pod + t}", f"agg{2 * pod + a}", _NIC) for pod in (0, 1) for t in (1, 2, 3) for a in (1, 2)
    ]
    cables += [(f"agg{a}", f"core{c}", _NIC) for a in range(1, 5) for c in range(1, 4)]
    return Network(explicit("testbed", switches, hosts, cables))


@cache
def large() -> Network:
    """64 leaves, 32 spines, 32 servers on each leaf, 100 Gbit/s everywhere."""
    return Network(leaf_spine(64, 32, 32, host_bps=2 * _NIC, fabric_bps=2 * _NIC, name=LARGE))


@cache
def small() -> Network:
    """Two leaves with three servers each, two spines, 50 Gbit/s everywhere."""
    return Network(leaf_spine(2, 2, 3, host_bps=_NIC, fabric_bps=_NIC, name=SMALL))


@cache
def _forwarding(fabric: str) -> Forwarding:
    return forwarding(network_of(fabric).topology)


def network_of(fabric: str) -> Network:
    """The fabric of this name."""
    return {TESTBED: testbed, LARGE: large, SMALL: small}[fabric]()


@dataclass(frozen=True, slots=True)
class JobCase:
    """A job: a ring all-reduce over `hosts` with one GPU each, in `steps`."""

    name: str
    hosts: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The (source, destination) pairs of the ring."""
        n = len(self.hosts)
        return tuple((self.hosts[i], self.hosts[(i + 1) % n]) for i in range(n))


@dataclass(frozen=True)
class InterleaveCase:
    """A set of jobs on a fabric. `seed` draws the source ports of ECMP."""

    name: str
    fabric: str
    kind: str
    jobs: tuple[JobCase, ...]
    seed: int

    @cached_property
    def topology(self) -> Topology:
        """The fabric."""
        return network_of(self.fabric).topology

    @cached_property
    def commodities(self) -> tuple[Commodity, ...]:
        """The flows that leave their hosts, job by job."""
        return tuple(
            Commodity(f"{j.name}/{a}>{b}", a, b, float(max(s.rate_bps for s in j.steps)), j.name)
            for j in self.jobs
            for a, b in j.pairs
        )

    @cached_property
    def candidates(self) -> tuple[tuple[Path, ...], ...]:
        """The candidate paths of every flow for the search.

        On large fabrics these are the paths of ECMP, the max-min fair paths, and a few more.
        """
        table = _forwarding(self.fabric)
        found = []
        for c in self.commodities:
            every = paths(self.topology, table, c.src, c.dst)
            if len(every) > 2 * _WAYS:
                rng = Random(f"{self.seed}/{c.name}/ways")
                every = tuple(dict.fromkeys((*self._given(c.name), *rng.sample(every, _WAYS))))
            found.append(every)
        return tuple(found)

    def _given(self, flow: str) -> tuple[Path, ...]:
        return tuple(chosen[flow] for chosen in self.routes.values())

    @cached_property
    def routes(self) -> Mapping[str, Mapping[str, Path]]:
        """Paths by flow: of ECMP, and max-min fair (optimal if the fabric allows it, otherwise greedy)."""
        table = _forwarding(self.fabric)
        ecmp = {
            c.name: path_of(self.topology, table, c.src, c.dst, draw_port(c.name, self.seed))
            for c in self.commodities
        }
        ordered = connection_order(self.topology, self.commodities)
        problem = RoutingProblem(self.topology, table, ordered, Failures(), {}, None, dict, dict, self.seed)
        try:
            best = problem.routes(Optimal().choices(problem.fabric, problem.demand))
        except UnsuitableError:
            best = LeastCongested().route(problem)
        return {"ecmp": ecmp, "max-min": best.paths}

    @cached_property
    def instance(self) -> Instance:
        """The instance that the search gets."""
        network = network_of(self.fabric)
        ways = iter(self.candidates)
        players = []
        for job in self.jobs:
            flows = tuple(JointFlow(1.0, tuple(network.links(p) for p in next(ways))) for _ in job.pairs)
            players.append(JointJob(job.name, float(len(job.hosts)), job.steps, flows))
        return Instance(tuple(players), tuple(int(c) for c in network.capacity), JITTER, slowest=SLOWEST)

    @cached_property
    def starts(self) -> dict[str, tuple[int, ...]]:
        """The routes as indexes of candidate paths."""
        return {
            name: tuple(
                every.index(chosen[c.name])
                for c, every in zip(self.commodities, self.candidates, strict=True)
            )
            for name, chosen in self.routes.items()
        }

    @cached_property
    def looped(self) -> bool:
        """Whether the affinity graph has a loop, on the paths of ECMP or on the max-min fair ones."""
        return any(has_loop(shared_links(self.instance, ways)) for ways in self.starts.values())

    @cached_property
    def incompatible(self) -> bool:
        """Whether two jobs that share a full link, on either set of paths, cannot share it in time."""
        time_sharing = TimeSharing(self.instance)
        number = {p.name: j for j, p in enumerate(self.instance.jobs)}
        for ways in self.starts.values():
            for link in shared_links(self.instance, ways):
                on = [number[name] for name in link.demands]
                if any(not time_sharing.can_share(a, b) for i, a in enumerate(on) for b in on[i + 1 :]):
                    return True
        return False


def draw_case(fabric: str, kind: str, number: int, seed: int) -> InterleaveCase:
    """Draw case `number` of a kind."""
    rng = Random(f"{seed}/{fabric}/{kind}/{number}")
    hosts = [h.name for h in network_of(fabric).topology.hosts]
    if fabric == LARGE:
        count = rng.choice((2, 5, 10, 20, 30, 40))
        taken = rng.sample(hosts, 32 * count)
        placed = [tuple(taken[32 * i : 32 * i + rng.choice((8, 16, 32))]) for i in range(count)]
    elif kind == "shared servers":
        count = rng.choice((6, 12, 20, 40))
        slots = [h for h in hosts for _ in range(4)]
        rng.shuffle(slots)
        placed = []
        for i in range(count):
            mine = list(dict.fromkeys(slots[2 * i : 2 * i + 2]))
            while len(mine) < 2:
                mine = list(dict.fromkeys([*mine, rng.choice(hosts)]))
            placed.append(tuple(mine))
    else:
        placed = _placed(rng, kind, hosts)
    rate = 2 * _NIC if fabric == LARGE else _NIC
    jobs = tuple(
        JobCase(f"j{i}", on, _steps(rng, kind, rate, many_jobs=kind == "shared servers"))
        for i, on in enumerate(placed)
    )
    return InterleaveCase(f"{fabric} {kind} {number}", fabric, kind, jobs, rng.randrange(1 << 30))


def _placed(rng: Random, kind: str, hosts: list[str]) -> list[tuple[str, ...]]:
    """The servers of each job on the testbed; no server has two jobs."""
    free = list(hosts)
    rng.shuffle(free)
    placed: list[tuple[str, ...]] = []
    if kind == "few":
        # Between two ToRs, so that ECMP puts jobs on the same links; the affinity graph often has no loops.
        one, other = (4 * t for t in rng.sample(range(6), 2))
        return [(hosts[one + i], hosts[other + i]) for i in range(rng.randint(2, 4))]
    if kind in ("looped", "adversarial"):
        # Every job over several ToRs, so that other jobs share each link.
        by_tor = [[h for h in free if (int(h[1:]) - 1) // 4 == t] for t in range(6)]
        while sum(map(bool, by_tor)) >= 2:
            tors = [t for t in range(6) if by_tor[t]]
            size = min(len(tors), rng.choice((2, 3, 4)) if kind == "looped" else rng.choice((4, 6)))
            placed.append(tuple(by_tor[t].pop() for t in rng.sample(tors, size)))
        return placed
    for _ in range(rng.randint(2, 12)):
        size = rng.choice((2, 2, 2, 3, 4))
        if len(free) < size:
            break
        placed.append(tuple(free.pop() for _ in range(size)))
    return placed


def _steps(rng: Random, kind: str, rate: int, many_jobs: bool) -> tuple[Step, ...]:
    if kind in ("compatible", "few"):
        period = rng.choice((120, 240, 240, 240, 480))
        up = rng.uniform(0.3, 0.48) * min(period, 240)
    elif kind == "incompatible":
        period = rng.choice((170, 191, 227, 239, 263, 307))
        up = rng.uniform(0.5, 0.75) * period
    elif kind == "adversarial":
        period = rng.choice((200, 200, 300, 313))
        up = rng.uniform(0.45, 0.6) * period
    else:
        period = rng.choice((150, 200, 200, 300, 300, 400, rng.randint(150, 400)))
        up = rng.uniform(0.2, 0.65) * period
    if many_jobs:
        up *= 0.5
    first = round(up * _MS)
    rest = period * _MS - first
    if kind in ("random", "looped", "shared servers") and rng.random() < 0.25:
        # Model parallel: two Up phases an iteration (thesis, 4.5.4).
        a = round(first * rng.uniform(0.3, 0.7))
        c = round(rest * rng.uniform(0.3, 0.7))
        return Step(a, rate, c), Step(first - a, rate, rest - c)
    return (Step(first, rate, rest),)
