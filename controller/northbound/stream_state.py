# SPDX-License-Identifier: Apache-2.0
"""What the event stream shows of a view: columns of the fabric, figures of links, and small tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.model.view import ColumnarLinks, JobView, LinkLoad, View
from topo.graph import Topology

End = tuple[str, int]
UNKNOWN = -1
"""Stands for an unknown figure in the columns of links."""
LINK_COLUMNS = ("load", "marks", "queue_packets")
Row = Mapping[str, Any]
Tables = Mapping[str, Mapping[str, Row]]

_NS_PER_MS = 1e6
# Chosen: a picture of a second needs no more digits than microseconds.
_MS_DIGITS = 3


@dataclass(frozen=True, slots=True)
class StreamState:
    """A view as the stream shows it. `links` (3, n) has a row for each of LINK_COLUMNS and a column for each
    direction of a cable: 2 k from the first end of cable k to the second, 2 k + 1 back."""

    time_ns: int
    scenario: str
    tables: Tables
    links: NDArray[np.int32]


def sending_ends(topology: Topology) -> tuple[End, ...]:
    """The sending end of each direction of a cable, node and port (0: a host's NIC), in the order of the
    stream: both of the first cable, both of the second one, and so on."""
    return tuple(end for a, b, _ in _cables(topology) for end in (a, b))


def _cables(topology: Topology) -> list[tuple[End, End, int]]:
    """Both ends of each cable and its bit/s: those between switches in the order of the topology, then those
    of the hosts."""
    between = [((k.a, k.a_port), (k.b, k.b_port), k.rate_bps) for k in topology.links]
    return between + [((h.name, 0), (h.leaf, h.leaf_port), h.rate_bps) for h in topology.hosts]


class StreamFabric:
    """A fabric in the stream: its columns, and the numbers of nodes and directions.

    Cables between switches come first, in the order of the topology; then those of the hosts. `emulated`:
    requests can cut the cables.
    """

    def __init__(self, topology: Topology, *, emulated: bool = False) -> None:
        self.topology = topology
        names = [s.name for s in topology.switches] + [h.name for h in topology.hosts]
        node = {name: number for number, name in enumerate(names)}
        first_host = len(topology.switches)
        self.host = {h.name: number for number, h in enumerate(topology.hosts)}
        ends = _cables(topology)
        self.ends = sending_ends(topology)
        """The sending end of each direction: node and port, 0 for a host's NIC."""
        self._direction = {end: number for number, end in enumerate(self.ends)}
        self.directions = len(self.ends)
        # For each direction, its place in the columns of `ColumnarLinks`.
        self._column_at = np.array([topology.directions[end] for end in self.ends], np.intp)
        self._cable = [topology.cable_at[b if b[0] in topology.switch else a] for a, b, _ in ends]
        self.columns: dict[str, Any] = {
            "name": topology.name,
            "emulated": emulated,
            "switches": {
                "name": names[:first_host],
                "tier": [s.tier.value for s in topology.switches],
                "device_id": [s.device_id for s in topology.switches],
            },
            "hosts": {
                "name": names[first_host:],
                "ip": [h.ip for h in topology.hosts],
                "leaf": [node[h.leaf] for h in topology.hosts],
                "leaf_port": [h.leaf_port for h in topology.hosts],
                "rate_bps": [h.rate_bps for h in topology.hosts],
                "server": [h.server for h in topology.hosts],
            },
            "cables": {
                "a": [node[a] for (a, _), _, _ in ends],
                "a_port": [port for (_, port), _, _ in ends],
                "b": [node[b] for _, (b, _), _ in ends],
                "b_port": [port for _, (_, port), _ in ends],
                "rate_bps": [rate_bps for *_, rate_bps in ends],
            },
        }

    def state(self, view: View) -> StreamState:
        """What the stream shows of a view of this fabric."""
        links = np.full((len(LINK_COLUMNS), self.directions), UNKNOWN, np.int32)
        if isinstance(view.links, ColumnarLinks):
            columns = view.links.columns()
            at, load, marks = self._column_at, columns.load, columns.marks
            links[0] = np.where(np.isnan(load), UNKNOWN, np.rint(100 * np.nan_to_num(load)))[at]
            links[1] = np.where(np.isnan(marks), UNKNOWN, np.nan_to_num(marks))[at]
            links[2] = columns.queue_packets[at]
            dead = set((np.flatnonzero(~columns.up[at]) // 2).tolist())
        else:
            dead = self._one_by_one(view.links, links)
        return StreamState(view.time_ns, view.scenario, self._tables(view, dead), links)

    def _one_by_one(self, found: Iterable[LinkLoad], links: NDArray[np.int32]) -> set[int]:
        """Fill the figures of links that are no columns; the numbers of the cables that are down."""
        dead = set()
        for link in found:
            at = self._direction[link.src, link.src_port]
            if not link.up:
                dead.add(at // 2)
            if link.load is not None:
                links[0, at] = round(100 * link.load)
            if link.marks is not None:
                links[1, at] = link.marks
            if link.queue_packets is not None:
                links[2, at] = link.queue_packets
        return dead

    def _tables(self, view: View, dead: Set[int]) -> Tables:
        known = {s.name: s for s in view.switches}
        return {
            "status": dict(_status(view)),
            "alarms": {
                a.name: {
                    "kind": a.kind,
                    "subject": a.subject,
                    "since_ns": a.since_ns,
                    "text": a.text,
                }
                for a in view.alarms
            },
            "cables": dict(self._cables(view, dead)),
            "switches": {
                s.name: {
                    "state": known[s.name].state if s.name in known else "connecting",
                    "entries": known[s.name].entries if s.name in known else 0,
                    "drained": s.name in view.drained_switches,
                    "strays": sum(x.packets for x in known[s.name].strays) if s.name in known else 0,
                }
                for s in self.topology.switches
            },
            "jobs": {job.name: self._job(view, job) for job in view.jobs},
            "shared": {
                f"{link.src}>{link.dst}": {
                    "src": link.src,
                    "dst": link.dst,
                    "jobs": list(link.jobs),
                    "score": round(link.score, 4),
                }
                for link in (view.plan.links if view.plan is not None else ())
            },
            "fallback": {
                f.flow: {"host": f.host, "since_ns": f.since_ns, "why": f.why} for f in view.fallback_flows
            },
        }

    def _cables(self, view: View, dead: Set[int]) -> Iterator[tuple[str, Row]]:
        """The cables that do not work as usual. `dead`: the numbers of those whose ports are down."""
        failed = view.down_links - view.drained_links
        failed |= {self._cable[number] for number in dead}
        for cable in failed | view.drained_links:
            yield "-".join(cable), {"up": cable not in failed, "drained": cable in view.drained_links}

    def _job(self, view: View, job: JobView) -> Row:
        planned = view.plan.jobs.get(job.name) if view.plan is not None else None
        profile = job.profile
        return {
            "model": job.model,
            "gpus": job.gpus,
            "hosts": [self.host[name] for name in job.hosts],
            "iterations": job.iterations,
            "last_ms": _digits(job.recent_ms[-1] if job.recent_ms else None),
            "mean_ms": _digits(job.mean_ms),
            "p99_ms": _digits(job.p99_ms),
            "level": job.level,
            "dscp": job.dscp,
            "shift_ms": _digits(job.shift_ms),
            "period_ms": _digits(job.period_ms),
            "phases": None
            if profile is None
            else [[_ms(p.start_ns), _ms(p.end_ns), p.rate_bps] for p in profile.phases],
            "alone_ms": None if profile is None else _ms(profile.period_ns),
            "expected_ms": None if planned is None else _ms(planned.expected_ns),
            "ecmp_ms": None if planned is None else _ms(planned.ecmp_ns),
            "floor_ms": None if planned is None else _ms(planned.floor_ns),
            "measuring": job.measuring,
            "left_out": job.left_out or None,
            "silence": job.silence or None,
        }


def _status(view: View) -> Iterator[tuple[str, Row]]:
    if view.plan is not None:
        plan = view.plan
        yield "plan", {"version": plan.version, "policy": plan.policy.name, "epoch_ns": plan.epoch_ns}
    yield "paths", {"verified": view.verified_paths, "unverified": view.unverified_paths}
    yield "measured", {"time_ns": view.measured_ns}


def _ms(value_ns: int | None) -> float | None:
    return None if value_ns is None else _digits(value_ns / _NS_PER_MS)


def _digits(value_ms: float | None) -> float | None:
    return None if value_ms is None else round(value_ms, _MS_DIGITS)
