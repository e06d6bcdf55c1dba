# SPDX-License-Identifier: Apache-2.0
"""A plan of the history as JSON, and how it is read back.

The flows of a plan that the planner made are stored as its columns, job by job. So a plan costs what differs
from the plan before, and not a record for each flow: the threads that answer agents share the interpreter
with the one that encodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import msgspec
import numpy as np

from controller.model.flow_plans import FlowPlans, JobFlows
from controller.model.job import Flow
from controller.model.plan import FlowPlan, Plan
from controller.store.interface import StoredPlan, StoreRefusedError
from controller.store.records import decode, encode
from topo.graph import Switch, Tier, Topology

PIECE = 500
"""How many flows are encoded without a pause for other threads. Chosen: less than a millisecond."""


@dataclass(frozen=True, slots=True)
class _StoredJob:
    """`JobFlows`. A row has a flow's name, source, destination, bytes, source port and hops."""

    dscp: int
    notes: dict[int, str]
    rows: list[tuple[str, str, str, int, int, list[int]]]


@dataclass(frozen=True, slots=True)
class _Columns:
    """`FlowPlans`. `switches` are all names by number. `kept` has the indices of the kept flows by job."""

    switches: list[str]
    elephant_bytes: int
    jobs: dict[str, _StoredJob]
    kept: dict[str, list[int]]
    others: dict[str, FlowPlan]


@dataclass(frozen=True, slots=True)
class _StoredPlan(Plan):
    """A plan whose flows are in `columns`, if it has them."""

    columns: _Columns | None = None


class PlanEncoder:
    """Encodes one plan after the other. It keeps what it has encoded for the jobs of the last one."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[JobFlows, bytes]] = {}
        self._switches: tuple[tuple[str, ...], bytes] = ((), b"[]")

    def stored(self, time_ns: int, plan: Plan) -> StoredPlan:
        """A plan for the history. `time_ns` is Unix time."""
        values = {f.name: getattr(plan, f.name) for f in fields(plan)}
        if isinstance(plan.flows, FlowPlans):
            values |= {"flows": {}, "columns": msgspec.Raw(self._columns(plan.flows))}
        return StoredPlan(plan.version, time_ns, plan.policy.name, encode(values))

    def _columns(self, flows: FlowPlans) -> bytes:
        before, self._jobs = self._jobs, {}
        for name, job in flows.jobs.items():
            known = before.get(name)
            self._jobs[name] = known if known is not None and known[0] is job else (job, _job(job))
        if self._switches[0] is not flows.switches:
            self._switches = flows.switches, encode(flows.switches)
        kept = {
            name: np.flatnonzero(each).tolist() for name, each in flows.kept.items() if name in flows.jobs
        }
        return encode(
            {
                "switches": msgspec.Raw(self._switches[1]),
                "elephant_bytes": flows.elephant_bytes,
                "jobs": {name: msgspec.Raw(body) for name, (_, body) in self._jobs.items()},
                "kept": kept,
                "others": dict(flows.others),
            }
        )


def _job(job: JobFlows) -> bytes:
    pieces = []
    for at in range(0, len(job.flows), PIECE):
        part = slice(at, at + PIECE)
        rows = zip(job.flows[part], job.port[part].tolist(), job.hops[part].tolist(), strict=True)
        found = [
            (f.name, f.src, f.dst, f.bytes_per_iteration, port, [hop for hop in hops if hop >= 0])
            for f, port, hops in rows
        ]
        pieces.append(encode(found)[1:-1])
    rows_of = msgspec.Raw(b"[" + b",".join(pieces) + b"]")
    return encode({"dscp": job.dscp, "notes": dict(job.notes), "rows": rows_of})


def plan_of(stored: StoredPlan) -> Plan:
    """The plan of an entry of the history. Raises StoreRefusedError."""
    where = f"plan {stored.version}"
    read = decode(stored.body, _StoredPlan, where)
    values = {f.name: getattr(read, f.name) for f in fields(Plan)}
    if read.columns is None:
        # It was stored flow by flow.
        return Plan(**values)
    try:
        return Plan(**values | {"flows": dict(_flows(read.columns))})
    except (LookupError, ValueError, OverflowError) as error:
        raise StoreRefusedError(f"{where} is not readable: {error}; restore a backup") from None


def _flows(columns: _Columns) -> Iterator[tuple[str, FlowPlan]]:
    jobs = {name: _read_back(name, job) for name, job in columns.jobs.items()}
    kept = {}
    for name, indices in columns.kept.items():
        kept[name] = np.zeros(len(columns.jobs[name].rows), bool)
        kept[name][indices] = True
    switches = tuple(Switch(name, Tier.LEAF, 0, "") for name in columns.switches)
    topology = Topology("", (), switches, (), {})
    return FlowPlans(topology, columns.elephant_bytes, jobs, kept, columns.others).each()


def _read_back(name: str, job: _StoredJob) -> JobFlows:
    flows = tuple(Flow(flow, name, src, dst, size) for flow, src, dst, size, _, _ in job.rows)
    hops = np.full((len(flows), max((len(row[-1]) for row in job.rows), default=0) or 1), -1, np.int32)
    for i, row in enumerate(job.rows):
        hops[i, : len(row[-1])] = row[-1]
    return JobFlows(flows, hops, np.array([row[4] for row in job.rows], np.int32), job.dscp, job.notes)
