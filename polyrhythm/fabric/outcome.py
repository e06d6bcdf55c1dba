# SPDX-License-Identifier: Apache-2.0
"""What a session tells its parent at the end, whichever fabric it ran on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hostagent.host import measured_profile
from hostagent.job import IterationRecord, JobSpec

_TOLD = ("rank", "start_ns", "end_ns", "communication_ns", "ecn_marks", "retransmits")


def session_result(
    records: Mapping[str, Sequence[IterationRecord]],
    specs: Mapping[str, JobSpec],
    *,
    first: Mapping[str, int],
    deterministic: bool,
    notes: Sequence[str],
    failovers: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The body of "result": every worker's iterations by job, counted from `first` of the job on, and each
    job's profile as its first worker measured it. Raises ValueError for a job without a record."""
    profiles = {}
    for name, own in records.items():
        profile = measured_profile([r for r in own if r.rank == 0], specs[name])
        phases = [[p.start_ns, p.end_ns, p.rate_bps] for p in profile.phases]
        profiles[name] = {"period_ns": profile.period_ns, "phases": phases}
    return {
        "iterations": {
            name: [
                {key: getattr(r, key) for key in _TOLD} | {"index": r.index - first[name]}
                for r in own
                if r.index >= first[name]
            ]
            for name, own in records.items()
        },
        "profiles": profiles,
        "deterministic": deterministic,
        "notes": list(notes),
        "failovers": list(failovers),
    }
