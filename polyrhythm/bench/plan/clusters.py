# SPDX-License-Identifier: Apache-2.0
"""The jobs and fabrics of `polyrhythm bench plan`: ring jobs on blocks of hosts below random leaves."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from controller.model import Flow, Job, Phase, Profile
from topo.generate import leaf_spine, rail
from topo.graph import Host, Topology

RATE_BPS = 100_000_000_000
BLOCK = 32
"""The most hosts that a job has in a row below one leaf (the routing paper, section 4: 32 NICs a leaf)."""
_MS = 1_000_000


def cluster() -> Topology:
    """64 leaves with 32 hosts each and 32 spines, 100 Gbit/s everywhere (the routing paper, section 4)."""
    return leaf_spine(64, 32, 32, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


def rails() -> Topology:
    """2,048 servers with 8 NICs, one on each rail: 512 leaves, 32 spines."""
    return rail(64, 8, 32, 32, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


def ring_jobs(
    topology: Topology, jobs: int, flows: int, seed: int, periods_ms: tuple[int, int] = (200, 2_000)
) -> tuple[Job, ...]:
    """`jobs` jobs with `flows` flows in all. Each job has rings over its blocks of hosts below random leaves.

    Where there are more flows than hosts, a host sends several of them, to hosts of blocks farther along.
    Periods are drawn by the logarithm from `periods_ms`; Up phases are 25 to 65 % of them.
    """
    rng = Random(f"{seed}/bench plan/{topology.name}/{jobs}/{flows}")
    hosts = _shuffled_blocks(topology, rng)
    made, at = [], 0
    for i in range(jobs):
        count = flows // jobs + (i < flows % jobs)
        size = max(2, min(count, len(hosts) // jobs))
        members = tuple(hosts[(at + n) % len(hosts)] for n in range(size))
        at += size
        made.append(ring_job(f"j{i}", members, count, rng, periods_ms))
    return tuple(made)


def ring_job(
    name: str, hosts: Sequence[Host], flows: int, rng: Random, periods_ms: tuple[int, int] = (200, 2_000)
) -> Job:
    """A job whose flow n goes from its host n to the one in the same place of the next block of BLOCK hosts,
    as a ring for each rank has it; after a round, to the one a block farther."""
    low, high = periods_ms
    period = round(low * (high / low) ** rng.random() * _MS)
    up = round(rng.uniform(0.25, 0.65) * period)
    size, rate = len(hosts), RATE_BPS // -(-flows // len(hosts))
    steps = [BLOCK * (1 + n) % size or 1 for n in range(-(-flows // size))]
    pairs = [(hosts[n % size], hosts[(n + steps[n // size]) % size]) for n in range(flows)]
    made = tuple(
        Flow(f"{name}/{n}", name, a.name, b.name, rate * up // 8_000_000_000)
        for n, (a, b) in enumerate(pairs)
    )
    gpus, work = 8 * size, rng.uniform(1e14, 1e16)
    names = tuple(h.name for h in hosts)
    return Job(name, "bench", gpus, names, Profile(period, (Phase(0, up, rate),)), work, made)


def _shuffled_blocks(topology: Topology, rng: Random) -> list[Host]:
    """All hosts, in blocks of one leaf, the blocks in random order."""
    below: dict[str, list[Host]] = {}
    for host in topology.hosts:
        below.setdefault(host.leaf, []).append(host)
    blocks = [some[n : n + BLOCK] for some in below.values() for n in range(0, len(some), BLOCK)]
    rng.shuffle(blocks)
    return [host for block in blocks for host in block]
