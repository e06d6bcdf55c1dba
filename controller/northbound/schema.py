# SPDX-License-Identifier: Apache-2.0
"""The JSON answers of the REST API as pydantic models, separate from the controller's own values."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from controller.interleave.timing import SENDER_CHOICES

SwitchState = Literal["connecting", "waiting", "ready", "down"]
StrayReason = Literal["probe", "cnp", "answer", "rate", "control", "unplanned", "cpu"]
Time = Annotated[int, Field(description="Fabric time of the figures, in ns.")]
Next = Annotated[str | None, Field(description="Cursor of the next page; null: this is the last.")]
# Floats up to here have no neighbour that is the same integer.
_MOST_WHOLE = 1 << 53


class Out(BaseModel):
    """A frozen JSON object. Docstrings and field descriptions appear in the OpenAPI document."""

    model_config = ConfigDict(frozen=True)


class In(Out):
    """A frozen JSON object of a request. A key that it does not know is refused: it may be a wrong name. No
    value is turned into another type: true is no number, and "8" neither. But 8.0 is a whole number, as in
    JSON Schema."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        unknown = sorted(map(str, value.keys() - cls.model_fields)) if isinstance(value, dict) else []
        if unknown:
            words = "unknown key {unknown}; legal: {legal}"
            told = {"unknown": f"{unknown[0]!r:.100}", "legal": ", ".join(cls.model_fields)}
            raise PydanticCustomError("unknown_key", words, told)
        if isinstance(value, dict):
            return {key: _whole(given) for key, given in value.items()}
        return value


def _whole(value: Any) -> Any:
    """A float without a fraction as an integer; a field that holds floats takes integers too."""
    return (
        int(value) if isinstance(value, float) and abs(value) <= _MOST_WHOLE and value.is_integer() else value
    )


class PhaseOut(Out):
    """An Up phase (communication phase): the job sends in [start_ms, end_ms) of its period."""

    start_ms: float
    end_ms: float
    rate_bps: int = Field(description="Rate of each flow in bit/s.")


class ProfileOut(Out):
    """One iteration of the job alone on the fabric. Time 0 is the start of its first Up phase."""

    period_ms: float
    phases: tuple[PhaseOut, ...]


class ConfidenceOut(Out):
    """How exactly the measured profile is known: half-widths of 95 % intervals."""

    period_ms: float = Field(description="Of the period.")
    edges_ms: tuple[tuple[float, float], ...] = Field(
        description="Of the start and of the end of each phase of `profile`, in their order."
    )


class MeasurementOut(Out):
    """What agents measured of an iteration while the job was alone on the highest priority level."""

    iterations: int = Field(description="How many iterations were measured.")
    communication_ms: float = Field(description="CRUX's t: the time spent communicating.")
    compute_ms: float | None = Field(description="The time in which its GPUs compute; null: not reported.")
    flops: float | None = Field(
        description="CRUX's W: the work of all its GPUs; null: not reported, the declared work is used."
    )
    source: Literal["iterations", "bytes"] = Field(
        description="iterations: from iteration reports and byte counts; bytes: from byte counts alone."
    )
    confidence: ConfidenceOut | None = Field(
        description="How exactly `profile` is known; null: too few iterations to tell."
    )


class JobOut(Out):
    """A live training job."""

    name: str
    model: str
    gpus: int
    hosts: tuple[str, ...]
    iterations: int = Field(description="Iterations finished so far.")
    recent_ms: tuple[float, ...] = Field(description="The last iteration times, oldest first, at most 120.")
    last_end_ns: int | None = Field(
        description="Fabric time at which a worker last ended an iteration; null before the first."
    )
    mean_ms: float | None = Field(description="Mean iteration time; null before the first iteration.")
    p99_ms: float | None = Field(description="99th percentile of the iteration time.")
    level: int | None = Field(description="Priority level, 0 the highest; null while unplanned.")
    dscp: int | None = Field(description="DSCP of its elephant flows; null while unplanned.")
    shift_ms: float | None = Field(
        description="Time-shift: when in its period the job starts to send; null: no slots."
    )
    period_ms: float | None = Field(
        description="Period of the slots that its agents hold it to; null: it is not held to slots."
    )
    intensity: float | None = Field(
        description="CRUX's GPU intensity: flop/s of the job per second of communication."
    )
    profile: ProfileOut | None = Field(description="The profile that plans use; null: not known yet.")
    declared: ProfileOut | None = Field(description="The profile that the job declares; null: none.")
    measured: MeasurementOut | None = Field(
        description="The measurement behind `profile`; null: `profile` is the declared one."
    )
    measuring: bool = Field(description="Whether the job waits to be measured, or is being measured.")
    flops_per_iteration: float = Field(description="Work (flop) of one iteration, measured or declared.")
    sender: str = Field(description="Congestion control that the job chose for its senders.")
    pattern_changes: int = Field(description="How often the job has changed its communication pattern.")
    realigned: int = Field(
        description="How often one of its workers had drifted too far from its slot and waited for the next."
    )
    floor_breaches: int = Field(
        description="How often it took longer than its plan's `floor_ms` for ten iterations in a row, since "
        "it or a job that shares a link with it last changed."
    )
    shares_level_with: tuple[str, ...] = Field(
        description="The jobs with which it shares one level at its own pace, because one of them was below "
        "its floor twice; empty: none."
    )
    left_out: str | None = Field(
        description="Why no plan contains the job, whose flows go by ECMP; null: plans contain it."
    )
    silence: str | None = Field(
        description="That no worker of the job reports iterations any more; null: they do, or never have."
    )
    why: str | None = Field(description="Why the plan decides so for this job, or does not contain it.")


class FlowOut(Out):
    """The path and the DSCP of one flow (a queue pair)."""

    flow: str = Field(description='Unique name, "job/source>destination".')
    job: str
    path: tuple[str, ...] | None = Field(description="Nodes from host to host; null: left to ECMP.")
    source_port: int | None = Field(description="UDP source port that leads along the path.")
    dscp: int = Field(description="DSCP of its packets in the fabric.")
    pinned_in: tuple[str, ...] = Field(
        description="Switches with an entry for this flow alone, because no free source port leads there."
    )
    sent_dscp: int | None = Field(
        description="DSCP that its queue pair sends and its leaf rewrites to `dscp`; null: it sends `dscp`."
    )
    fallback_reason: str | None = Field(
        description="Why its agent has moved it back to ECMP; null: it goes as planned."
    )
    why: str


class JobDetailOut(JobOut):
    """A live training job and its flows."""

    flows: tuple[FlowOut, ...]
    before_plan_ms: float | None = Field(
        description="Mean of its last 20 iterations before the present plan; null: there were none."
    )


class JobsOut(Out):
    """A page of the live jobs, sorted by name."""

    time_ns: Time
    jobs: tuple[JobOut, ...]
    next: Next


class PolicyOut(Out):
    """The policy that made the plan."""

    name: str = Field(description="The registered name, or package.module:NAME.")
    distribution: str = Field(description="The installed package that the policy comes from.")
    version: str = Field(description="The version of that package.")
    routing: str = Field(description="The class of the object that chooses paths.")
    priority: str = Field(description="The class of the object that orders jobs.")
    timing: str = Field(description="The class of the object that sets time-shifts.")
    options: dict[str, bool | int | float | str | None] = Field(
        description='The options by name: "max_slowdown", and those of the three objects, such as '
        '"priority.levels".'
    )


class JobPlanOut(Out):
    """The plan for one job: its priority and its time-shift."""

    job: str
    level: int = Field(description="Priority level, 0 the highest.")
    dscp: int
    shift_ms: float
    period_ms: float | None = Field(description="Period of its slots; null: it is not held to slots.")
    once: bool = Field(
        description="true: only its next iteration waits for its slot; then the job runs at its own pace."
    )
    intensity: float | None = Field(
        description="CRUX's GPU intensity: flop/s of the job per second of communication."
    )
    sender: str = Field(
        description=f"Congestion control of its senders: {', '.join(SENDER_CHOICES)}; job: its own choice."
    )
    expected_ms: float | None = Field(
        description="The mean iteration that the planner expects; null: this plan was not evaluated."
    )
    ecmp_ms: float | None = Field(
        description="The mean iteration that the planner expects under plain ECMP with the same jobs."
    )
    floor_ms: float | None = Field(
        description="The longest mean iteration that the policy's max_slowdown allows; null: no limit."
    )
    ecmp_ratio: float | None = Field(description="`expected_ms` divided by `ecmp_ms`.")
    why: str


class SharedLinkOut(Out):
    """A directed link that several jobs share."""

    src: str
    dst: str
    jobs: tuple[str, ...]
    score: float = Field(description="CASSINI's compatibility score; 1 is no overlap beyond capacity.")


class SpreadOut(Out):
    """Packets that switches spread over their ECMP groups instead of hashing them."""

    dscp: int
    action: str = Field(
        description="spray_in_turn, spray_random: packet by packet; move_flowlets: a flow that paused moves "
        "to the port that has sent the least."
    )
    gap_us: int | None = Field(description="move_flowlets: the shortest pause in us; null for the others.")
    half_life_us: int | None = Field(
        description="move_flowlets: a port's bytes are halved every so many us; null for the others."
    )


class PlanOut(Out):
    """The decisions of the controller at one moment: a page of its jobs, then flows, shared links and spread
    classes, each sorted."""

    version: int
    policy: PolicyOut
    epoch_ns: int = Field(description="Fabric time that all shifts are counted from, in ns.")
    jobs: tuple[JobPlanOut, ...]
    flows: tuple[FlowOut, ...]
    links: tuple[SharedLinkOut, ...]
    spread: tuple[SpreadOut, ...] = Field(description="By DSCP; empty: switches hash all packets.")
    next: Next


class HostOut(Out):
    """A GPU host with one NIC."""

    name: str
    ip: str
    leaf: str
    leaf_port: int
    rate_bps: int = Field(description="Line rate of the NIC in bit/s.")
    server: str = Field(description="The machine that the NIC is in.")


class StrayOut(Out):
    """Packets of a host that a switch dropped or remarked, for one reason."""

    port: int
    host: str = Field(description="The host behind the port.")
    reason: StrayReason = Field(
        description="probe: an INT probe of its own; cnp, answer: the DSCP of CNPs or acknowledgements on "
        "another packet; rate: more of these than the port may send; control: a DSCP of the controller; "
        "unplanned: the DSCP of a level on what is not a planned flow, or an answer between hosts without "
        "one. cpu: more packets for the controller than the port may send."
    )
    packets: int


class SwitchOut(Out):
    """A switch, as its P4Runtime session shows it."""

    name: str
    tier: str = Field(description="leaf, spine or core.")
    device_id: int = Field(description="P4Runtime device id.")
    address: str | None = Field(description="Address of its P4Runtime server.")
    state: SwitchState
    drained: bool = Field(description="Whether an operator has taken it out of use.")
    down: bool = Field(description="Whether plans avoid it because it has failed.")
    entries: int = Field(description="Table entries that the controller has written to it.")
    tables: dict[str, int] = Field(description="These entries by table of the P4 program.")
    strays: int = Field(
        description="Packets of hosts that it dropped or remarked, for hosts may not send them."
    )
    strays_by_port: tuple[StrayOut, ...] = Field(description="The same by port and reason, none that are 0.")


class LinkOut(Out):
    """One direction of a cable, over the last poll interval. What a host sends is its mean over its workers'
    last iterations, without headers."""

    name: str = Field(description='The cable, as "leaf1-spine2"; of several beside it, "leaf1:5-spine2:1".')
    src: str
    dst: str
    src_port: int = Field(description="Port at src; 0 is a host's NIC.")
    dst_port: int = Field(description="Port at dst; 0 is a host's NIC.")
    capacity_bps: int
    rate_bps: int | None = Field(description="null: not measured.")
    load: float | None = Field(
        description="Fraction of the time that it was busy, 0 to 1; null: not measured."
    )
    marks: int | None = Field(description="Packets ECN-marked in the interval; null: not measured.")
    queue_packets: int | None = Field(
        description="Packets that an INT probe found waiting at src_port, 30 s ago at most; null: unknown."
    )
    up: bool
    drained: bool = Field(description="Whether an operator has taken the cable out of use.")


class FabricOut(Out):
    """A page of the fabric: its switches, then its hosts, then both directions of its cables, each sorted by
    name; and how many planned paths are verified."""

    time_ns: Time
    name: str
    hosts: tuple[HostOut, ...]
    switches: tuple[SwitchOut, ...]
    links: tuple[LinkOut, ...]
    verified_paths: int = Field(description="Planned paths that an INT probe has confirmed.")
    unverified_paths: int = Field(description="Planned paths that no INT probe has confirmed.")
    next: Next


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
    """A page of the queues of all switches, or of those that were asked for, by switch, port and number."""

    time_ns: Time
    counters: tuple[QueueOut, ...]
    next: Next
