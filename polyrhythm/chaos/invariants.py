# SPDX-License-Identifier: Apache-2.0
"""What must hold after each fault of `polyrhythm chaos`, and how it is seen from outside."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc

from controller.model.plan import FlowPin, FlowRemark
from controller.model.traffic import TRAFFIC_CLASSES
from controller.southbound import table_writes
from controller.southbound.artefacts import artefacts_dir, load_artefacts
from controller.southbound.codec import Codec
from controller.southbound.desired import EcnProfile
from controller.southbound.table_writes import DesiredState, SwitchWrites
from polyrhythm.chaos.processes import JOBS, ChaosCluster

# The longest black hole (issue: proven by probes), and the longest call of a training process: the library
# gives up an agent after 0.1 s, and the rest is for a busy machine. Chosen.
BLACK_HOLE_S = 3.0
BLOCKED_MS = 2_000.0
# Host time in which everything must be as it was before the fault. Chosen: several back-offs, on a busy
# machine, and the start of a planner's process.
RECOVERY_S = 60.0
# Host time for everything to be in place at the start. Chosen: the first plan may compile kernels.
START_S = 300.0
_LOOK_S = 0.1
_READ_S = 5.0
# Chosen: so many updates that a switch lacks are named.
_NAMED = 5


@dataclass(slots=True)
class Observed:
    """What was seen so far. Times in ms; `lost_jobs` counts jobs that did not come back."""

    answers_ms: list[float] = field(default_factory=list)
    recoveries_ms: list[float] = field(default_factory=list)
    violations: list[dict[str, Any]] = field(default_factory=list)
    lost_jobs: int = 0
    longest_black_hole_s: float = 0.0
    longest_call_ms: float = 0.0
    probes: int = 0
    alone: int = 0


class Invariants:
    """Looks at controller, switches, agents and probes, and notes what is wrong."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self.seen = Observed()
        self._cluster = cluster
        artefacts = load_artefacts()
        table_writes.set_fabric(cluster.topology, EcnProfile(5, 50, 0.1), artefacts_dir())
        self._codec = Codec(artefacts)
        self._flows: dict[str, tuple[str, str, int, int]] = {}
        self._holes_s: dict[str, float] = {}
        self._lost: list[str] = []

    def look(self) -> list[str]:
        """Take the reports of probes and trainers; returns what is wrong for good: loops, and training
        processes that were blocked.
        """
        seen, wrong = self.seen, []
        said = self._cluster.trainers.ask({})
        seen.answers_ms += said["answers_ms"]
        seen.alone += said["alone"]
        for worker, took_ms in said["longest_call_ms"].items():
            seen.longest_call_ms = max(seen.longest_call_ms, took_ms)
            if took_ms > BLOCKED_MS:
                wrong.append(f"the training process {worker} was blocked for {took_ms / 1e3:.1f} s")
        for flow, (port, dscp) in said["placements"].items():
            src, _, dst = flow.partition("/")[2].partition(">")
            self._flows[flow] = (src, dst, port, dscp)
        report = self._cluster.command(do="flows", flows=self._flows)
        wrong += [f"a loop: {loop}" for loop in report["loops"]]
        for flow, hole_s in report["holes_s"].items():
            seen.longest_black_hole_s = max(seen.longest_black_hole_s, hole_s)
            self._holes_s[flow] = max(self._holes_s.get(flow, 0.0), hole_s)
        seen.probes += sum(report["delivered"].values())
        self._lost = report["lost"]
        return wrong

    def black_holes(self) -> list[str]:
        """The black holes since the last call that were too long."""
        found = [
            f"a black hole: the probes of flow {flow} were lost for {hole_s:.1f} s"
            for flow, hole_s in sorted(self._holes_s.items())
            if hole_s > BLACK_HOLE_S
        ]
        self._holes_s.clear()
        return found

    def unsettled(self) -> str:
        """What is not as it should be now; empty if all is."""
        jobs = self._cluster.api("jobs")
        if jobs is None:
            return "the controller's API does not answer"
        missing = JOBS.keys() - {job["name"] for job in jobs["jobs"]}
        if missing:
            return f"the controller does not know the jobs {', '.join(sorted(missing))}"
        left_out = [job["name"] for job in jobs["jobs"] if job["left_out"]]
        if left_out:
            return f"jobs are left out of plans: {', '.join(left_out)}"
        plan = self._cluster.api("plan")
        planned = {f["flow"]: f for f in plan["flows"]} if plan is not None else {}
        for job, hosts in JOBS.items():
            for src, dst in zip(hosts, (*hosts[1:], hosts[0]), strict=True):
                flow = f"{job}/{src}>{dst}"
                if flow not in planned or planned[flow]["path"] is None:
                    return f"flow {flow} has no path in the plan"
                known = self._flows.get(flow)
                if known is None or known[2] != planned[flow]["source_port"]:
                    return f"host {src} does not use the plan's source port of flow {flow}"
        if self._lost:
            return f"probes of the flows {', '.join(sorted(self._lost))} are lost"
        return self._tables(list(planned.values()))

    def lost_jobs(self) -> int:
        """How many of the jobs the controller does not know."""
        jobs = self._cluster.api("jobs")
        known = {job["name"] for job in jobs["jobs"]} if jobs is not None else set()
        return len(JOBS.keys() - known)

    def forgotten(self) -> list[str]:
        """Call it when the controller has just started again: whether it lacks a job that it had accepted."""
        deadline = time.monotonic() + RECOVERY_S
        while (jobs := self._cluster.api("jobs")) is None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        known = {job["name"] for job in jobs["jobs"]} if jobs is not None else set()
        missing = sorted(JOBS.keys() - known)
        self.seen.lost_jobs += len(missing)
        return [f"the controller started again without the jobs {', '.join(missing)}"] if missing else []

    def settle(self, patience_s: float = RECOVERY_S) -> tuple[list[str], float]:
        """Wait until all is as it should be; returns what has gone wrong, and the time in ms."""
        began = time.monotonic()
        wrong: list[str] = []
        while True:
            wrong += self.look()
            what = self.unsettled()
            took_s = time.monotonic() - began
            if not what:
                return [*wrong, *self.black_holes()], 1e3 * took_s
            if took_s > patience_s:
                self.seen.lost_jobs += self.lost_jobs()
                wrong.append(f"after {took_s:.0f} s: {what}")
                return [*wrong, *self.black_holes()], 1e3 * took_s
            time.sleep(_LOOK_S)

    def _tables(self, flows: list[dict[str, Any]]) -> str:
        """Whether the switches hold just what they should, read beside the controller's session."""
        wanted = self._desired(flows)
        for switch in self._cluster.topology.switches:
            address = self._cluster.to_switch[switch.name].target
            request: p4r.ReadRequest = self._codec.read_tables(switch.device_id)
            try:
                with grpc.insecure_channel(address) as channel:
                    replies = p4r_grpc.P4RuntimeStub(channel).Read(request, timeout=_READ_S)
                    read = [reply.SerializeToString() for reply in replies]
            except grpc.RpcError as error:
                return f"switch {switch.name} cannot be read: {error.code().name}"
            writes = table_writes.reconcile(switch.name, read, wanted)
            if writes.updates:
                return (
                    f"switch {switch.name}: {writes.updates} entries are not as they should be; lacking: "
                    + "; ".join(self._in_words(writes))
                )
        return ""

    def _in_words(self, writes: SwitchWrites) -> list[str]:
        """The first updates that would lead to the desired state."""
        requests = [p4r.WriteRequest.FromString(data) for stage in writes.stages for data in stage]
        updates = [update for request in requests for update in request.updates]
        return [self._codec.describe(update) for update in updates[:_NAMED]]

    def _desired(self, flows: list[dict[str, Any]]) -> DesiredState:
        """What the switches should hold while nothing is down, with the plan's entries for single flows."""
        host = self._cluster.topology.host
        pins, remarks, pairs = [], [], set()
        for f in flows:
            ends = f["path"][0], f["path"][-1]
            nodes = dict(pairwise(f["path"]))
            if f["dscp"] != TRAFFIC_CLASSES.mice:
                pairs.add(ends)
            pins += [FlowPin(f["flow"], s, nodes[s], *ends, f["source_port"]) for s in f["pinned_in"]]
            if f["sent_dscp"] is not None:
                leaf = host[ends[0]].leaf
                where = (f["flow"], leaf, *ends, f["source_port"])
                remarks.append(FlowRemark(*where, f["sent_dscp"], f["dscp"]))
        return DesiredState(pins=tuple(pins), remarks=tuple(remarks), pairs=tuple(sorted(pairs)))
