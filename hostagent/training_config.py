# SPDX-License-Identifier: Apache-2.0
"""The keys of the agent's configuration for emulated training jobs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from controller.wire.senders import Sender, canonical_sender
from controller.wire.traffic_config import TrafficConfig
from hostagent.job import JobSpec, MeasuredPhase, MeasuredProfile, PcieUse, PhaseSpec
from hostagent.job_traffic import expanded, phase_specs
from polyrhythm_files import MAX_WHOLE, InvalidValueError, Section, Whole, finite
from polyrhythm_job.pcie import check_link_name


class TrainingPhase(Section, frozen=True, kw_only=True):
    """An Up phase of an emulated job and the Down phase after it."""

    up_ns: Annotated[int, Meta(ge=0, le=MAX_WHOLE, description="nominal length of the Up phase")]
    bytes_per_flow: Annotated[
        Whole | tuple[Whole, ...],
        Meta(description="bytes that each flow sends in it, or a list with those of each flow"),
    ]
    rate_bps: Annotated[int, Meta(ge=0, le=MAX_WHOLE, description="rate cap of a flow; 0: line rate")] = 0
    down_ns: Annotated[int, Meta(ge=0, le=MAX_WHOLE, description="compute time after it")]


class TrainingProfile(Section, frozen=True, kw_only=True):
    """A profile that was measured earlier; the controller gets it instead of the nominal profile."""

    period_ns: Annotated[int, Meta(ge=1, le=MAX_WHOLE, description="one iteration alone")]
    phases: Annotated[
        tuple[tuple[Whole, Whole, Whole], ...],
        Meta(description="[start_ns, end_ns, rate_bps] of each Up phase"),
    ]

    def measured(self) -> MeasuredProfile:
        """The profile as workers know it."""
        return MeasuredProfile(self.period_ns, tuple(MeasuredPhase(*phase) for phase in self.phases))


class TrainingPcie(Section, frozen=True, kw_only=True):
    """A PCIe link of the machine, between the job's GPUs and their NIC.

    Jobs that name the same link share it in the order of their priority levels, across agents.
    """

    link: Annotated[str, Meta(description="its name, such as a PCI address: letters, digits and . : _ -")]
    rate_mbps: Annotated[float, finite(0.1, 1000000.0, what="its rate")]

    def __post_init__(self) -> None:
        try:
            check_link_name(self.link)
        except ValueError as error:
            raise InvalidValueError(("link",), str(error)) from None


class TrainingJob(Section, frozen=True, kw_only=True):
    """An emulated training job of which one or more workers run on this host."""

    name: Annotated[str, Meta(description="name of the job, without '/'")]
    hosts: Annotated[tuple[str, ...], Meta(description="hosts in rank order")]
    ring: Annotated[
        tuple[tuple[str, str], ...], Meta(description="its flows, [source, destination] host; empty: a ring")
    ] = ()
    phases: Annotated[
        tuple[TrainingPhase, ...], Meta(description="one iteration; not with traffic, which gives them")
    ] = ()
    traffic: Annotated[
        TrafficConfig | None,
        Meta(description="what the job is; its flows and phases follow. Not with ring or phases"),
    ] = None
    compute_ns: Annotated[
        int, Meta(ge=0, le=MAX_WHOLE, description="with traffic: the GPUs' compute time of an iteration")
    ] = 0
    rails: Annotated[
        int, Meta(ge=1, le=64, description="with traffic: so many neighbours in hosts are NICs of one server")
    ] = 1
    model: Annotated[str, Meta(description="name of the model")] = ""
    gpus: Annotated[int, Meta(ge=0, le=MAX_WHOLE, description="of the whole job; 0: one a host")] = 0
    flops_per_iteration: Annotated[float, finite(0.0, what="of the whole job")] = 0.0
    sender: Annotated[
        Sender,
        Meta(description="congestion control of its senders, unless the plan names one; mltcp: mltcp-dcqcn"),
    ] = "dcqcn"
    increase_timer: Annotated[
        float,
        finite(0.01, 100.0, what="DCQCN's rate increase timer, as a multiple of the NIC profile's"),
    ] = 1.0
    silent: Annotated[
        bool, Meta(description="its iterations are not reported, so the controller counts bytes")
    ] = False
    start_ns: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_WHOLE,
            description="when it starts, on the host's monotonic clock; 0: 1 s after the agent",
        ),
    ] = 0
    start_jitter_ns: Annotated[
        int, Meta(ge=0, le=MAX_WHOLE, description="the start is later by up to this")
    ] = 0
    compute_jitter_pct: Annotated[
        float, finite(0.0, 100.0, what="each Down phase is longer or shorter by a random part up to this")
    ] = 0.0
    iterations: Annotated[int, Meta(ge=0, le=MAX_WHOLE, description="how many; 0: until the agent ends")] = 0
    stop_ns: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_WHOLE,
            description="when it leaves, on the host's monotonic clock, in mid-iteration if need be; "
            "0: at no fixed time",
        ),
    ] = 0
    profile: Annotated[TrainingProfile | None, Meta(description="a measured profile")] = None
    pcie: Annotated[
        TrainingPcie | None, Meta(description="the PCIe link its GPUs share with other jobs of the host")
    ] = None

    def spec(self, payload_bps: int) -> JobSpec:
        """The job as its workers know it, on NICs that carry `payload_bps` bit/s of payload.

        Raises ValueError for a job that cannot run.
        """
        ring = self.ring or tuple(
            (host, self.hosts[(rank + 1) % len(self.hosts)]) for rank, host in enumerate(self.hosts)
        )
        phases = tuple(PhaseSpec(p.up_ns, p.bytes_per_flow, p.rate_bps, p.down_ns) for p in self.phases)
        gpus = self.gpus or len(self.hosts)
        if self.traffic is not None:
            if self.ring or self.phases:
                raise ValueError(f"job {self.name}: ring and phases follow from traffic; legal: one of both")
            traffic, flows = expanded(self.name, self.traffic, self.hosts, gpus, self.rails)
            ring = tuple((f.src, f.dst) for f in flows)
            phases = phase_specs(traffic, flows, self.compute_ns, payload_bps)
        elif self.compute_ns or self.rails != 1:
            key = "compute_ns" if self.compute_ns else "rails"
            raise ValueError(f"job {self.name}: {key} without traffic; legal: with traffic only")
        return JobSpec(
            name=self.name,
            model=self.model or self.name,
            gpus=gpus,
            hosts=self.hosts,
            ring=ring,
            phases=phases,
            flops_per_iteration=self.flops_per_iteration,
            compute_jitter=self.compute_jitter_pct / 100,
            sender=canonical_sender(self.sender),
            increase_timer=self.increase_timer,
            silent=self.silent,
            profile=self.profile.measured() if self.profile is not None else None,
            pcie=PcieUse(self.pcie.link, int(self.pcie.rate_mbps * 1e6)) if self.pcie is not None else None,
        )


class TrainingSettings(Section, frozen=True, kw_only=True):
    """Emulated training on this host; only with the udp driver."""

    records: Annotated[
        str, Meta(description="file for finished iterations, one JSON object a line; empty: none")
    ] = ""
    moves: Annotated[
        str,
        Meta(
            description="file for the flows' new source ports and DSCPs, one JSON object a line; empty: none"
        ),
    ] = ""
    start: Annotated[
        str,
        Meta(
            description="file with the time from which start_ns and stop_ns of the jobs count, in ns of the "
            "host's monotonic clock; no job begins before the file is there; empty: they count from 0"
        ),
    ] = ""
    seed: Annotated[
        int,
        Meta(
            ge=-MAX_WHOLE,
            le=MAX_WHOLE,
            description="of start jitter, compute jitter and ECMP's source ports; the same on every host",
        ),
    ] = 1
    jobs: Annotated[tuple[TrainingJob, ...], Meta(description="the jobs")] = ()
