# SPDX-License-Identifier: Apache-2.0
"""The random scenarios of the battery: a seed and a number give a scenario, as plain values.

docs/battery.md publishes what is drawn and from which ranges. All constants here are chosen so that a session
costs a few seconds of CPU, and so that jobs lose throughput to one another under plain ECMP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from polyrhythm.paper.battery_links import Link, RoutedFlow, contended_links, has_loop
from polyrhythm.scenario import ROCE_OVERHEAD_BYTES

KINDS = ("compatible", "incompatible", "looped")
MOST_JOBS = 10
SPINES = (1, 1, 2, 2, 3, 4)
"""Number of spines, drawn evenly from this list."""
RING_SIZES = (2, 2, 2, 2, 3, 3, 4, 5)
"""Hosts of a ring, drawn evenly from this list."""
MOST_HOSTS = 28
HOSTS_OF_ONE_LEAF = (3, 4, 5, 6)
GPUS = (2, 4, 8, 16, 32)
COMMON_PERIODS_MS = tuple(range(120, 281, 20))
PERIODS_MS = (120, 280)
COMPATIBLE_UP, INCOMPATIBLE_UP = (0.25, 0.45), (0.35, 0.65)
"""The Up phases of a job, as a part of its period."""
FITS = 0.95
"""Up phases that fill at most this part of the period fit one after another in spite of jitter."""
TWIN = 0.5
"""The chance that a job is the twin of the job before: the same phases, GPUs and leaves."""
TWO_PHASES = 0.15
"""The chance that a job sends in two Up phases of an iteration."""
SHARED_HOSTS = 0.15
"""The chance that jobs share hosts on a fabric of several leaves. On one leaf they always do."""
UNEVEN = 0.35
"""The chance that NICs and cables have uneven rates."""
CHANGES = 0.4
"""The chance that jobs arrive or leave during the session."""
JITTER_PCT = (0.0, 0.0, 1.0, 2.0, 3.0, 5.0)
"""Compute jitter of all jobs of a scenario, drawn evenly from this list."""
DRAWS, MEET = 16, 0.5
"""Jobs must share a full link in this part of so many draws of ECMP."""

SETTLE_PERIODS, MEASURED_PERIODS, EARLIER_PERIODS = 12, 18, 10
"""After each arrival or departure: the time that is not measured, then the measured time of the last span and
of the spans before it, in periods of the slowest job. Jobs with MLTCP take turns after up to a dozen
iterations, and plans and their expectations are for what comes then."""
PACKET_BYTES = 1024
BUFFER_PACKETS = 1024
"""Of each queue. It holds the windows of all flows that meet on a port (up to 15, of 40 packets, or 64 under
MLTCP), so that only failures lose packets, as on a fabric for RoCEv2."""
SCALES = (2000, 3000, 4000, 6000, 8000)
MOST_PACKETS = 160_000
"""Data packets of a session, if all jobs ran as alone. The scale is the smallest that keeps it."""
FEWEST_PACKETS = 40
"""Of each flow in each Up phase. With fewer, congestion control has no time to act."""
_EACH, _ATTEMPTS = 200, 20_000
"""Attempts for each number of jobs, leaves and spines, and in all."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which the same `jobs` are present, in ms of fabric time.

    It is measured from `measured_ms`: before that, the jobs settle.
    """

    begin_ms: int
    measured_ms: int
    end_ms: int
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatteryScenario:
    """A scenario of the battery: its file as a JSON document, and its spans. It ends with the last span."""

    number: int
    kind: str
    document: Mapping[str, Any]
    spans: tuple[Span, ...]

    @property
    def name(self) -> str:
        """The name of the scenario in files and reports."""
        return str(self.document["name"])

    def arrival_ms(self, job: str) -> int:
        """When the first span with a job begins. Its start offset counts from then."""
        return next(span.begin_ms for span in self.spans if job in span.jobs)


@dataclass(frozen=True, slots=True)
class _Fabric:
    """Hosts by name with their leaf and rate, and the rate of the cables by (leaf, spine)."""

    leaves: tuple[str, ...]
    spines: tuple[str, ...]
    leaf_of: dict[str, str]
    host_gbps: dict[str, float]
    cable_gbps: dict[tuple[str, str], float]

    def link_gbps(self) -> dict[Link, float]:
        found: dict[Link, float] = {}
        for (leaf, spine), rate in self.cable_gbps.items():
            found[leaf, spine] = found[spine, leaf] = rate
        for host, leaf in self.leaf_of.items():
            found[host, leaf] = found[leaf, host] = self.host_gbps[host]
        return found


@dataclass(frozen=True, slots=True)
class _Job:
    name: str
    gpus: int
    hosts: tuple[str, ...]
    gbps: float
    period_ms: int
    phases: tuple[tuple[int, int], ...]

    @property
    def up(self) -> float:
        return sum(end - begin for begin, end in self.phases) / self.period_ms


def draw(seed: int, number: int, most_jobs: int = MOST_JOBS) -> BatteryScenario:
    """Draw scenario `number` of the battery of `seed`, with at most `most_jobs` jobs (3 or more).

    Raises:
        ValueError: no legal scenario was found (never seen).
    """
    rng = Random(f"{seed}/battery/{number}/{most_jobs}")
    kind = rng.choice(KINDS)
    for attempt in range(_ATTEMPTS):
        if attempt % _EACH == 0:
            count = rng.randint(3 if kind == "looped" else 2, most_jobs)
            leaves = rng.choice((1, 3, 4) if kind == "looped" else (1, 2, 3, 4))
            spines = rng.choice(SPINES)
        fabric, jobs = _jobs(rng, kind, count, leaves, spines)
        if not _legal(rng, kind, fabric, jobs):
            continue
        times = _times(rng, jobs)
        scale = _scale(jobs, times)
        if scale is not None and _meet(rng, fabric, [j for j in jobs if times[j.name][1] is None]):
            return _scenario(rng, seed, number, kind, fabric, jobs, times, scale)
    raise ValueError(f"seed {seed}, scenario {number}: no legal scenario in {_ATTEMPTS} attempts")


def with_start_offsets(scenario: BatteryScenario, draw_number: int) -> BatteryScenario:
    """The same scenario with the random start offsets of a draw of its sessions. Those of draw 0 are its own.

    Without jitter, how the jobs begin decides for a long time which of their bursts meet. Draws that begin
    alike would all show the luck of one beginning.
    """
    if draw_number == 0:
        return scenario
    rng = Random(f"{scenario.name}/start offsets/{draw_number}")
    jobs = [
        {**job, "start_ms": scenario.arrival_ms(job["name"]) + rng.randrange(job["period_ms"])}
        for job in scenario.document["jobs"]
    ]
    return replace(scenario, document={**scenario.document, "jobs": jobs})


def _jobs(rng: Random, kind: str, count: int, leaves: int, spines: int) -> tuple[_Fabric, list[_Job]]:
    """Draw a fabric and its jobs: first the leaves of each ring, then hosts, rates and phases."""
    names = tuple(f"leaf{i + 1}" for i in range(leaves))
    shared = leaves == 1 or rng.random() < SHARED_HOSTS
    uneven = rng.random() < UNEVEN
    fabric = _Fabric(names, tuple(f"spine{i + 1}" for i in range(spines if leaves > 1 else 0)), {}, {}, {})
    rate = rng.choice((50.0, 50.0, 50.0, 100.0))
    for leaf in fabric.leaves:
        for spine in fabric.spines:
            fabric.cable_gbps[leaf, spine] = rng.choice((50.0, 100.0)) if uneven else rate
    if leaves == 1:
        for _ in range(rng.choice(HOSTS_OF_ONE_LEAF)):
            _host(rng, fabric, names[0], uneven)
    period = rng.choice(COMMON_PERIODS_MS)
    jobs: list[_Job] = []
    rings: list[list[str]] = []
    for j in range(count):
        twin = j > 0 and rng.random() < TWIN and not (kind == "looped" and j < 3)
        ring = rings[-1] if twin else _ring(rng, kind, fabric, j)
        rings.append(ring)
        hosts = _place(rng, fabric, ring, shared, uneven)
        if twin:
            last = jobs[-1]
            gpus, period_ms, phases = last.gpus, last.period_ms, last.phases
        else:
            gpus = rng.choice(GPUS)
            period_ms = rng.randint(*PERIODS_MS) if kind == "incompatible" else period
            phases = _phases(rng, period_ms, INCOMPATIBLE_UP if kind == "incompatible" else COMPATIBLE_UP)
        gbps = min((fabric.host_gbps[h] for h in hosts), default=0.0)
        jobs.append(_Job(f"job{j + 1}", gpus, tuple(hosts), gbps, period_ms, phases))
    return fabric, jobs


def _host(rng: Random, fabric: _Fabric, leaf: str, uneven: bool) -> str:
    name = f"h{len(fabric.leaf_of) + 1}"
    fabric.leaf_of[name] = leaf
    fabric.host_gbps[name] = rng.choice((25.0, 50.0, 50.0)) if uneven else 50.0
    return name


def _ring(rng: Random, kind: str, fabric: _Fabric, j: int) -> list[str]:
    """The leaf of each host of a ring. The first three jobs of a loop are the sides of a triangle.

    On one leaf, where jobs meet at their hosts, the names of the hosts stand for leaves.
    """
    places = list(fabric.leaves) if len(fabric.leaves) > 1 else list(fabric.leaf_of)
    if kind == "looped" and j < 3:
        return [places[j], places[(j + 1) % 3]]
    size = rng.choice(RING_SIZES)
    if len(fabric.leaves) == 1:
        return rng.sample(places, min(size, len(places)))
    ring: list[str] = []
    while len(ring) < size:
        ring.append(rng.choice([p for p in places if not ring or p != ring[-1]]))
    return ring


def _place(rng: Random, fabric: _Fabric, ring: Sequence[str], shared: bool, uneven: bool) -> list[str]:
    """The hosts of a ring: new ones, or, if `shared`, half of them those of other jobs."""
    if len(fabric.leaves) == 1:
        return list(ring)
    hosts: list[str] = []
    for leaf in ring:
        known = [h for h, at in fabric.leaf_of.items() if at == leaf and h not in hosts]
        if shared and known and rng.random() < 0.5:
            hosts.append(rng.choice(known))
        else:
            hosts.append(_host(rng, fabric, leaf, uneven))
    return hosts


def _phases(rng: Random, period_ms: int, up: tuple[float, float]) -> tuple[tuple[int, int], ...]:
    """One Up phase or two equal ones, in whole ms. Two divide the compute time unevenly.

    The period begins with an Up phase or with compute, with the same chance.
    """
    length = round(rng.uniform(*up) * period_ms)
    half, pause = length // 2, round(rng.uniform(0.3, 0.7) * (period_ms - length))
    phases = ((0, half), (half + pause, 2 * half + pause)) if rng.random() < TWO_PHASES else ((0, length),)
    first = rng.choice((0, rng.randint(0, period_ms - phases[-1][1])))
    return tuple((first + begin, first + end) for begin, end in phases)


def _legal(rng: Random, kind: str, fabric: _Fabric, jobs: Sequence[_Job]) -> bool:
    """Whether the hosts are few enough, and the jobs are what `kind` says."""
    if len(fabric.leaf_of) > MOST_HOSTS:
        return False
    if kind == "looped":
        return any(has_loop(_contended(rng, fabric, jobs).values()) for _ in range(DRAWS))
    return (kind == "compatible") == _fit(fabric, jobs)


def _fit(fabric: _Fabric, jobs: Sequence[_Job]) -> bool:
    """Whether all jobs have one period, and the Up phases on each NIC, and those of the flows that leave or
    enter each leaf on its cables, fit one after another: the longest first, each into the first cable with
    room.
    """
    if len({job.period_ms for job in jobs}) > 1:
        return False
    room: dict[tuple[str, bool], list[float]] = {}
    for host in fabric.leaf_of:
        room[host, True], room[host, False] = [FITS], [FITS]
    for leaf in fabric.leaves:
        # A cable of twice the rate of the fastest NIC carries two flows at a time.
        bins = [FITS for s in fabric.spines for _ in range(int(fabric.cable_gbps[leaf, s] // 50))]
        room[leaf, True], room[leaf, False] = bins, list(bins)
    for job in sorted(jobs, key=lambda job: -job.up):
        ring = zip(job.hosts, (*job.hosts[1:], job.hosts[0]), strict=True)
        for source, sink in ring:
            places = [(source, True), (sink, False)]
            if fabric.leaf_of[source] != fabric.leaf_of[sink]:
                places += [(fabric.leaf_of[source], True), (fabric.leaf_of[sink], False)]
            for place in places:
                free = next((i for i, left in enumerate(room[place]) if left >= job.up), None)
                if free is None:
                    return False
                room[place][free] -= job.up
    return True


def _contended(rng: Random, fabric: _Fabric, jobs: Sequence[_Job]) -> dict[Link, frozenset[str]]:
    """The contended links of one draw of ECMP: each flow between leaves takes a random spine."""
    flows = []
    for job in jobs:
        for source, sink in zip(job.hosts, (*job.hosts[1:], job.hosts[0]), strict=True):
            up, down = fabric.leaf_of[source], fabric.leaf_of[sink]
            middle = (up,) if up == down else (up, rng.choice(fabric.spines), down)
            flows.append(RoutedFlow(job.name, (source, *middle, sink), job.gbps))
    return contended_links(flows, fabric.link_gbps())


def _meet(rng: Random, fabric: _Fabric, jobs: Sequence[_Job]) -> bool:
    """Whether jobs share a full link in enough draws of ECMP."""
    return sum(bool(_contended(rng, fabric, jobs)) for _ in range(DRAWS)) >= MEET * DRAWS


def _times(rng: Random, jobs: Sequence[_Job]) -> dict[str, tuple[int, int | None, int]]:
    """For each job: the span in which it arrives, that before which it leaves (None: it stays), and a random
    start offset in ms within its first period.

    At most a third of the jobs arrive late or leave early, and at least two are there in each span.
    """
    moving: list[str] = []
    if len(jobs) >= 3 and rng.random() < CHANGES:
        moving = rng.sample([job.name for job in jobs], rng.randint(1, max(1, min(2, len(jobs) // 3))))
    found: dict[str, tuple[int, int | None, int]] = {}
    for job in jobs:
        arrives, leaves = 0, None
        if job.name in moving:
            border = moving.index(job.name) + 1
            if rng.random() < 0.5:
                arrives = border
            else:
                leaves = border
        found[job.name] = arrives, leaves, rng.randrange(job.period_ms)
    return found


def _spans(jobs: Sequence[_Job], times: Mapping[str, tuple[int, int | None, int]]) -> tuple[Span, ...]:
    """The spans between arrivals and departures."""
    longest = max(job.period_ms for job in jobs)
    last = max(max(arrives, leaves or 0) for arrives, leaves, _ in times.values())
    spans, begin = [], 0
    for k in range(last + 1):
        present = tuple(
            name
            for name, (arrives, leaves, _) in times.items()
            if arrives <= k and (leaves is None or k < leaves)
        )
        measured = begin + SETTLE_PERIODS * longest
        end = measured + (MEASURED_PERIODS if k == last else EARLIER_PERIODS) * longest
        spans.append(Span(begin, measured, end, present))
        begin = end
    return tuple(spans)


def _scale(jobs: Sequence[_Job], times: Mapping[str, tuple[int, int | None, int]]) -> int | None:
    """The smallest scale with few enough packets in the session. None: an Up phase would have too few."""
    spans = _spans(jobs, times)
    present_ms = {job.name: sum(s.end_ms - s.begin_ms for s in spans if job.name in s.jobs) for job in jobs}
    frame_bits = (PACKET_BYTES + ROCE_OVERHEAD_BYTES) * 8
    for scale in SCALES:
        a_ms = {job.name: job.gbps * 1e6 / scale / frame_bits for job in jobs}
        if sum(present_ms[j.name] * j.up * len(j.hosts) * a_ms[j.name] for j in jobs) <= MOST_PACKETS:
            fewest = min((end - begin) * a_ms[j.name] for j in jobs for begin, end in j.phases)
            return scale if fewest >= FEWEST_PACKETS else None
    return None


def _scenario(
    rng: Random,
    seed: int,
    number: int,
    kind: str,
    fabric: _Fabric,
    jobs: Sequence[_Job],
    times: Mapping[str, tuple[int, int | None, int]],
    scale: int,
) -> BatteryScenario:
    spans = _spans(jobs, times)
    jitter = rng.choice(JITTER_PCT)
    entries = []
    for job in jobs:
        arrives, leaves, offset = times[job.name]
        entry: dict[str, Any] = {
            "name": job.name,
            "model": kind,
            "gpus": job.gpus,
            "hosts": list(job.hosts),
            "period_ms": job.period_ms,
            "phases": [{"start_ms": a, "end_ms": b, "gbps": job.gbps} for a, b in job.phases],
            "start_ms": spans[arrives].begin_ms + offset,
            "jitter_pct": jitter,
        }
        if leaves is not None:
            entry["stop_ms"] = spans[leaves].begin_ms
        entries.append(entry)
    document = {
        "name": f"battery-{seed}-{number}",
        "about": f"scenario {number} of the battery of seed {seed}: {kind}",
        "fabric": {
            "kind": "explicit",
            "switches": [{"name": n, "tier": "leaf"} for n in fabric.leaves]
            + [{"name": n, "tier": "spine"} for n in fabric.spines],
            "hosts": [
                {"name": n, "leaf": leaf, "gbps": fabric.host_gbps[n]} for n, leaf in fabric.leaf_of.items()
            ],
            "links": [{"a": a, "b": b, "gbps": rate} for (a, b), rate in fabric.cable_gbps.items()],
        },
        "jobs": entries,
        "scale": scale,
        "packet_bytes": PACKET_BYTES,
        "buffer_packets": BUFFER_PACKETS,
        "warmup": SETTLE_PERIODS,
        "iterations": MEASURED_PERIODS,
        "profile": "declared",
    }
    return BatteryScenario(number, kind, document, spans)
