# SPDX-License-Identifier: Apache-2.0
"""The messages that a fabric process sends to its parent: the fabric's description and the session's result.

They are the same for the embedded fabric and the Mininet fabric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hostagent.host import measured_profile
from hostagent.job import IterationRecord, JobSpec
from polyrhythm.fabric.presence import Presence
from polyrhythm.scenario import Scenario
from topo.graph import Topology
from topo.jsonio import topology_to_json

_ITERATION_FIELDS = (
    "rank",
    "start_ns",
    "end_ns",
    "communication_ns",
    "ecn_marks",
    "retransmits",
    "compute_ns",
)


def description(scenario: Scenario, topology: Topology, addresses: Mapping[str, str]) -> dict[str, Any]:
    """The description of a fabric that its controller reads.

    `topology` is the graph as the controller may know it. `addresses` maps each switch to the address of its
    P4Runtime server.
    """
    return {
        "name": topology.name,
        "scenario": scenario.name,
        "topology": topology_to_json(topology),
        "switches": {
            s.name: {"address": addresses[s.name], "device_id": s.device_id} for s in topology.switches
        },
        "strays": scenario.strays,
        "ecn": {
            "kmin": scenario.ecn.kmin,
            "kmax": scenario.ecn.kmax,
            "pmax": scenario.ecn.pmax,
            "frame_bytes": scenario.frame_bytes,
        },
        "elephant_bytes": scenario.elephant_bytes,
        "verify": True,
    }


def session_result(
    records: Mapping[str, Sequence[IterationRecord]],
    specs: Mapping[str, JobSpec],
    *,
    presence: Mapping[str, Presence],
    ended_ns: int,
    deterministic: bool,
    notes: Sequence[str],
    failovers: Sequence[Mapping[str, Any]],
    pfc: Mapping[str, Any] | None = None,
    profiled: Mapping[str, Sequence[IterationRecord]] | None = None,
) -> dict[str, Any]:
    """The body of the message "result".

    It holds the iterations of every worker by job, the presence of each job, the end of the session, and the
    profile of each job as its first worker measured it, if it finished two iterations. `profiled` has the
    iterations that a profile is measured over, None: the job's own. The index of an iteration is 0 for the
    first one that counts; earlier ones have negative indexes.
    """
    profiles = {}
    for name, own in (records if profiled is None else profiled).items():
        measured = [r for r in own if r.rank == 0]
        if not any(r.index for r in measured):
            continue
        profile = measured_profile(measured, specs[name])
        phases = [[p.start_ns, p.end_ns, p.rate_bps] for p in profile.phases]
        profiles[name] = {"period_ns": profile.period_ns, "phases": phases}
    return {
        "iterations": {
            name: [
                {key: getattr(r, key) for key in _ITERATION_FIELDS}
                | {"index": r.index - (presence[name].first or 0)}
                for r in own
            ]
            for name, own in records.items()
        },
        "presence": {name: asdict(own) for name, own in presence.items()},
        "ended_ns": ended_ns,
        "profiles": profiles,
        "deterministic": deterministic,
        "notes": list(notes),
        "failovers": list(failovers),
        "pfc": pfc,
    }
