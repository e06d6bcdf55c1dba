# SPDX-License-Identifier: Apache-2.0
"""What floods of a scenario cost its jobs: the same run without them, with them, and with trusted hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyrhythm.run.figures import JobFigures
from polyrhythm.run.session import SessionResult
from polyrhythm.run.windows import common_windows, figures_in, session_times

TRUST = "trust"
"""The value of a scenario's key `strays` that lets hosts use every DSCP."""


@dataclass(frozen=True, slots=True)
class AttackResult:
    """The figures of each job under the policy: without the floods, with them, and with them while switches
    let hosts use every DSCP."""

    without: Mapping[str, JobFigures]
    guarded: Mapping[str, JobFigures]
    trusted: Mapping[str, JobFigures]


def attack_result(sessions: Sequence[SessionResult], warmup: int) -> AttackResult:
    """The figures of three sessions (without floods, guarded, trusted), over the times that they share."""
    times = [session_times(s.iterations, s.presence, s.ended_ns, warmup) for s in sessions]
    windows = common_windows(times)
    without, guarded, trusted = (
        {job: figures_in(own, windows, job) for job in sessions[0].iterations} for own in times
    )
    return AttackResult(without, guarded, trusted)


def attack_json(result: AttackResult) -> list[dict[str, Any]]:
    """For each job the iteration times of the three runs, and what those with floods lose, as parts of 1."""
    return [
        {
            "name": job,
            **{
                f"{side}_{key}_ms": getattr(figures[job], f"{key}_ms")
                for side, figures in (
                    ("without", result.without),
                    ("guarded", result.guarded),
                    ("trusted", result.trusted),
                )
                for key in ("mean", "p99")
            },
            **{
                f"{side}_{key}_loss": getattr(figures[job], f"{key}_ms") / getattr(quiet, f"{key}_ms") - 1
                for side, figures in (("guarded", result.guarded), ("trusted", result.trusted))
                for key in ("mean", "p99")
            },
        }
        for job, quiet in result.without.items()
    ]


def attack_lines(jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each job of `attack_json` one line."""
    return [
        f"{job['name']} beside the floods: mean {job['guarded_mean_loss']:+.1%}, p99 "
        f"{job['guarded_p99_loss']:+.1%} ({job['without_mean_ms']:.1f} ms without them); with trusted hosts: "
        f"mean {job['trusted_mean_loss']:+.1%}, p99 {job['trusted_p99_loss']:+.1%}"
        for job in jobs
    ]
