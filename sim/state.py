# SPDX-License-Identifier: Apache-2.0
"""What a simulation knows, as values: what was asked for, what is under way, what became of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controller.model import Job, Plan
from controller.routing.forwarding import pair
from sim.cluster import Cluster, FreeGpus, JobRequest, Placement
from sim.decide import Decider, FabricState, JobDecision
from sim.jobrun import JobRun
from sim.scheduler import Scheduler, WaitingJob

Bits = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FabricFailure:
    """At `at_ns` a switch ("spine2") or a cable ("leaf1-spine2") goes down, or comes back (`up`)."""

    at_ns: int
    what: str
    up: bool = False


def parts(cluster: Cluster, failure: FabricFailure) -> tuple[tuple[str, str] | None, str | None]:
    """The cable or the switch that a failure names.

    Raises:
        ValueError: the fabric has neither.
    """
    topology = cluster.network.topology
    if failure.what in topology.switch:
        return None, failure.what
    cables = {pair(a, b) for a, b in cluster.network.names}
    for i, letter in enumerate(failure.what):
        cable = pair(failure.what[:i], failure.what[i + 1 :])
        if letter == "-" and cable in cables:
            return cable, None
    raise ValueError(
        f"failure of {failure.what!r}: it is no switch and no cable (leaf1-spine2) of the fabric"
    )


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """How to simulate. `replan_delay_ns`: from an event to the new plan's effect. `restore_ns`: from the time
    when a stopped job gets GPUs again to its next iteration. `until_ns`: stop then, 0: when all jobs are
    done. `samples_ns`: between two samples of the cluster's state, 0: none. `log` keeps every length of an
    iteration. `tidy`: after so many events all engines are made anew, which is where a checkpoint may be
    taken."""

    policy: str = "ecmp"
    seed: int = 1
    replan_delay_ns: int = 0
    restore_ns: int = 0
    until_ns: int = 0
    samples_ns: int = 0
    elephant_bytes: int = 1024
    log: bool = True
    tidy: int = 500


@dataclass(slots=True)
class RunningJob:
    """A job on its GPUs. Alone, no iteration of any of its ranks takes less than `shortest_ps`, and one of
    the job takes `ideal_ps`."""

    request: JobRequest
    placement: Placement
    run: JobRun
    job: Job
    lead_ps: int
    shortest_ps: int
    ideal_ps: int
    flows: tuple[str, ...]
    decision: JobDecision | None = None
    routed_on: FabricState | None = None
    load: dict[int, float] = field(default_factory=dict)

    @property
    def sends(self) -> bool:
        """Whether the job has flows between servers. A plan is made when such a job comes or leaves."""
        return bool(self.flows)


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The result of a job. Times in ps; -1 for what did not happen. `slot_wait`: time spent waiting for
    slots."""

    request: JobRequest
    started: int
    ended: int
    iterations: int
    total: int
    slot_wait: int
    longest: int
    preempted: int
    ideal: int
    lengths: dict[int, int]
    flows: tuple[tuple[str, str, str, float, float], ...]
    hosts: tuple[str, ...]
    waited: int


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The cluster at a moment: GPUs given out, GPUs that compute on average since the last sample, jobs
    that run and wait, and since the last sample the bits that each link has carried, plain and times the
    GPU intensity (flop per second of communication, CRUX) of the job they were of."""

    at: int
    gpus: int
    computing: float
    running: int
    waiting: int
    bits: Bits
    intensity: Bits


@dataclass(slots=True)
class SimulationState:
    """All of a simulation that a checkpoint holds. `departed`: a job that sends has left since the last
    plan."""

    now: int
    arrivals: deque[JobRequest]
    failures: deque[FabricFailure]
    plans: deque[tuple[int, Plan]]
    waiting: list[WaitingJob]
    running: dict[str, RunningJob]
    outcomes: dict[str, JobOutcome]
    samples: list[ClusterSample]
    free: FreeGpus
    fabric: FabricState
    decider: Decider
    scheduler: Scheduler
    started: dict[str, int]
    preempted: dict[str, int]
    kept: dict[str, JobRun]
    waited: dict[str, int]
    next_sample: int
    sampled: dict[str, tuple[float, Bits]]
    bits: Bits
    intensity: Bits
    computed: float = 0.0
    events: int = 0
    skipped: int = 0
    steps: int = 0
    departed: bool = False
