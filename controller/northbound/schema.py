# SPDX-License-Identifier: Apache-2.0
"""The JSON that leaves the controller: pydantic models, apart from the domain's values."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

SwitchState = Literal["connecting", "ready", "down"]
Time = Annotated[int, Field(description="Fabric time of the figures, in ns.")]


class Out(BaseModel):
    """A frozen JSON object; its docstring and fields' descriptions end up in the OpenAPI document."""

    model_config = ConfigDict(frozen=True)


class ErrorOut(Out):
    """What every error looks like."""

    detail: str = Field(description="What is wrong, and what would be legal.")


class HealthOut(Out):
    """The controller answers and has seen the fabric."""

    status: Literal["ok"]
    time_ns: Time
    switches_ready: int = Field(description="Switches whose pipeline is pushed and whose session is up.")
    switches: int = Field(description="Switches of the fabric.")


class PhaseOut(Out):
    """An Up phase: the job sends in [start_ms, end_ms) of its period."""

    start_ms: float
    end_ms: float
    rate_bps: int = Field(description="Rate of each flow in bit/s.")


class ProfileOut(Out):
    """One iteration of the job alone on the fabric. Time 0 is the start of its first Up phase."""

    period_ms: float
    phases: tuple[PhaseOut, ...]


class MeasurementOut(Out):
    """What agents measured of one iteration, while the job was alone on the highest level."""

    iterations: int = Field(description="Iterations that it was measured over.")
    communication_ms: float = Field(description="CRUX's t: the time spent communicating.")
    compute_ms: float | None = Field(description="The time in which its GPUs work; null: nobody tells.")
    flops: float | None = Field(description="CRUX's W, of all its GPUs; null: nobody tells, declared counts.")
    source: Literal["iterations", "bytes"] = Field(
        description="Reported iterations with byte counts, or byte counts alone."
    )


class JobOut(Out):
    """A live training job."""

    name: str
    model: str
    gpus: int
    hosts: tuple[str, ...]
    iterations: int = Field(description="Iterations finished so far.")
    recent_ms: tuple[float, ...] = Field(description="The last iteration times, oldest first, at most 120.")
    mean_ms: float | None = Field(description="Mean iteration time; null before the first iteration.")
    p99_ms: float | None = Field(description="99th percentile of the iteration time.")
    level: int | None = Field(description="Priority level, 0 the highest; null while unplanned.")
    dscp: int | None = Field(description="DSCP that its elephants carry.")
    shift_ms: float | None = Field(description="Time-shift: where in its period the job starts to send.")
    period_ms: float | None = Field(description="Period that its agents hold; null if the job runs free.")
    intensity: float | None = Field(
        description="CRUX's GPU intensity: flop/s of the job per second of communication."
    )
    profile: ProfileOut | None = Field(description="What the plan goes by; null: not known yet.")
    declared: ProfileOut | None = Field(description="What the job says of itself; null: nothing.")
    measured: MeasurementOut | None = Field(description="null: `profile` is the declared one.")
    measuring: bool = Field(description="Whether it waits to be measured, or is being measured.")
    flops_per_iteration: float = Field(description="Work of one iteration, measured or declared.")
    pattern_changes: int = Field(description="How often the job has changed its pattern.")
    realigned: int = Field(description="How often a worker had drifted too far and waited for its slot.")
    why: str | None = Field(description="Why the plan treats the job so.")


class FlowOut(Out):
    """Where one flow (a queue pair) goes."""

    flow: str = Field(description='Unique name, "job/source>destination".')
    job: str
    path: tuple[str, ...] | None = Field(description="Nodes from host to host; null if left to ECMP.")
    source_port: int | None = Field(description="UDP source port under which the fabric takes that path.")
    dscp: int = Field(description="DSCP that its packets bear in the fabric.")
    pinned_in: tuple[str, ...] = Field(
        description="Switches that hold an entry for this flow alone, for its port does not lead there."
    )
    sent_dscp: int | None = Field(
        description="DSCP that its queue pair keeps, where its leaf rewrites that; null: it sends `dscp`."
    )
    fallback_reason: str | None = Field(
        description="Why its agent lets it go by ECMP for now, whatever the plan; null: it goes as planned."
    )
    why: str


class JobDetailOut(JobOut):
    """A live training job and its flows."""

    flows: tuple[FlowOut, ...]


class JobsOut(Out):
    """All live jobs."""

    time_ns: Time
    jobs: tuple[JobOut, ...]


class PolicyOut(Out):
    """Which mechanisms the plan uses."""

    name: str
    routing: str
    priority: str
    interleave: str
    levels: int = Field(description="Priority levels that the switches have for jobs.")
    sender: str = Field(description="Senders' congestion control: job (its own choice), dcqcn, mltcp.")


class JobPlanOut(Out):
    """Who goes first and when: the plan for one job."""

    job: str
    level: int = Field(description="Priority level, 0 the highest.")
    dscp: int
    shift_ms: float
    period_ms: float | None = Field(description="null: the job runs free.")
    once: bool = Field(description="Only one iteration waits for the shift; the job's own pace then counts.")
    intensity: float | None = Field(
        description="CRUX's GPU intensity: flop/s of the job per second of communication."
    )
    sender: str = Field(description="job (its own choice), dcqcn or mltcp.")
    why: str


class SharedLinkOut(Out):
    """A directed link that several jobs share."""

    src: str
    dst: str
    jobs: tuple[str, ...]
    score: float = Field(description="CASSINI's compatibility score; 1 is no overlap beyond capacity.")


class PlanOut(Out):
    """Everything the controller has decided at one moment."""

    version: int
    policy: PolicyOut
    epoch_ns: int = Field(description="Fabric time that all shifts are counted from, in ns.")
    jobs: tuple[JobPlanOut, ...]
    flows: tuple[FlowOut, ...]
    links: tuple[SharedLinkOut, ...]


class HostOut(Out):
    """A GPU host with one NIC."""

    name: str
    ip: str
    leaf: str
    leaf_port: int
    rate_bps: int = Field(description="Line rate of the NIC in bit/s.")


class SwitchOut(Out):
    """A switch as the southbound sees it."""

    name: str
    tier: str = Field(description="leaf, spine or core.")
    device_id: int = Field(description="P4Runtime device id.")
    address: str | None = Field(description="Where its P4Runtime server listens.")
    state: SwitchState
    entries: int = Field(description="Table entries that the controller holds on it.")
    tables: dict[str, int] = Field(description="The same by table of the P4 program.")
    strays: int = Field(
        description="Packets stopped or remarked at its ports to hosts: INT probes, false CNPs."
    )


class LinkOut(Out):
    """One direction of a cable, over the last poll interval."""

    src: str
    dst: str
    src_port: int = Field(description="Port at src; 0 is a host's NIC.")
    dst_port: int = Field(description="Port at dst; 0 is a host's NIC.")
    capacity_bps: int
    rate_bps: int | None = Field(description="null: not measured.")
    load: float | None = Field(description="Busy fraction of the time, 0 to 1; null: not measured.")
    marks: int | None = Field(description="Packets ECN-marked in the interval; null: not measured.")
    up: bool


class FabricOut(Out):
    """The fabric: nodes, cables, their load, and how much of the planned paths is proven."""

    time_ns: Time
    name: str
    hosts: tuple[HostOut, ...]
    switches: tuple[SwitchOut, ...]
    links: tuple[LinkOut, ...]
    verified_paths: int = Field(description="Planned paths that an INT probe has confirmed.")
    unverified_paths: int = Field(description="Planned paths still to be confirmed.")


class QueueOut(Out):
    """Totals of one egress queue since the pipeline was pushed."""

    switch: str
    port: int
    peer: str | None = Field(description="Node wired to the port.")
    qid: int = Field(description="Queue, 0 to 7; 7 is served first.")
    packets: int
    bytes: int
    marks: int = Field(description="Packets ECN-marked.")


class CountersOut(Out):
    """Queue counters of all switches, or of the one asked for."""

    time_ns: Time
    counters: tuple[QueueOut, ...]


class FallbackFlowOut(Out):
    """A pinned flow that its host's agent lets go by ECMP, for its latency or loss went bad."""

    flow: str
    host: str
    source_port: int = Field(description="Its pin, which the agent tries again after a while.")
    since_ns: Time
    why: str


class ViewOut(Out):
    """All but the queue counters, at one moment of fabric time; also the data of a `view` event."""

    time_ns: Time
    scenario: str
    fabric: FabricOut
    jobs: tuple[JobOut, ...]
    plan: PlanOut | None
    fallback_flows: tuple[FallbackFlowOut, ...] = Field(
        description="Flows back on ECMP by their agents' decision."
    )
