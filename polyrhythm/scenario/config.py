# SPDX-License-Identifier: Apache-2.0
"""The keys of a scenario file: for each its meaning, unit, legal values and default.

The same types read the files and give docs/schemas/scenario.json.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from controller.model import REALIGN_PCT
from controller.wire.senders import Sender
from controller.wire.traffic_config import TrafficConfig
from polyrhythm.scenario.marking import EcnConfig, TcpConfig
from polyrhythm_files import InvalidValueError, Section, finite
from topo.addresses import Families
from topo.file_types import OwnFamilies

Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$(?!\n)",
        extra={
            "legal": "a name of 1 to 64 letters, digits, '_', '.' and '-' that begins with a letter or digit"
        },
    ),
]
MAX_GBPS = 10_000
"""Of a NIC or cable (chosen: ten times the fastest Ethernet port of today)."""
MAX_MS = 3_600_000
"""Of a period (chosen: an hour)."""
ELEPHANT_NOMINAL_BYTES = 10_000_000
"""A flow that sends less in an iteration, before scaling, is a mouse: it is left to ECMP and to the lowest
queue (chosen)."""
Gbps = Annotated[float, finite(above=0, most=MAX_GBPS)]
Milliseconds = Annotated[float, finite(0, MAX_MS)]
Teraflops = Annotated[float, finite(above=0, most=1e12)]


AddressFamilies = Annotated[
    Families, Meta(description="families of the hosts' addresses; jobs use the first")
]

LARGEST_SCALE = 1_000_000
"""The limit of `scale`. Chosen: a link of 50 Gbit/s is then one of 50 kbit/s."""


class LeafSpineConfig(Section, frozen=True, kw_only=True, tag_field="kind", tag="leaf_spine"):
    """A generated two-tier Clos: every leaf has one cable to every spine."""

    leaves: Annotated[int, Meta(ge=1, le=64)]
    spines: Annotated[int, Meta(ge=0, le=64)]
    hosts_per_leaf: Annotated[int, Meta(ge=1, le=64)]
    host_gbps: Annotated[Gbps, Meta(description="nominal rate of a host's NIC")]
    fabric_gbps: Annotated[Gbps, Meta(description="nominal rate of a cable between leaf and spine")]
    addresses: AddressFamilies = "ipv4"


class CableConfig(Section, frozen=True, kw_only=True):
    """A cable between two switches of an explicit fabric."""

    a: Name
    b: Name
    gbps: Annotated[Gbps, Meta(description="nominal rate in each direction")]


class HostConfig(Section, frozen=True, kw_only=True):
    """A host of an explicit fabric, with one NIC."""

    name: Name
    leaf: Annotated[Name, Meta(description="the switch of tier leaf that the NIC is connected to")]
    gbps: Annotated[Gbps, Meta(description="nominal rate of the NIC")]
    addresses: OwnFamilies = None


class SwitchConfig(Section, frozen=True, kw_only=True):
    """A switch of an explicit fabric."""

    name: Name
    tier: Literal["leaf", "spine", "core"]


class ExplicitConfig(Section, frozen=True, kw_only=True, tag_field="kind", tag="explicit"):
    """A fabric that is written out node by node."""

    switches: Annotated[tuple[SwitchConfig, ...], Meta(min_length=1, max_length=512)]
    hosts: Annotated[tuple[HostConfig, ...], Meta(min_length=1, max_length=4096)]
    links: tuple[CableConfig, ...] = ()
    addresses: AddressFamilies = "ipv4"


class FileConfig(Section, frozen=True, kw_only=True, tag_field="kind", tag="file"):
    """A fabric from a topology file."""

    path: Annotated[
        str,
        Meta(
            min_length=1, description="of the topology file; a relative path starts at the scenario's folder"
        ),
    ]
    gbps: Annotated[
        Gbps,
        Meta(
            description="nominal rate of the cables to which a p4lang tutorial's topology.json gives no "
            "bandwidth; bandwidths that it gives are emulated ones"
        ),
    ] = 100.0


class PhaseConfig(Section, frozen=True, kw_only=True):
    """An Up phase: a part of the period in which the flows of the job send."""

    start_ms: Annotated[
        Milliseconds,
        Meta(
            description="from the start of the period; a job computes until its first phase when it arrives"
        ),
    ]
    end_ms: Annotated[
        float,
        finite(
            above=0,
            most=2 * MAX_MS,
            what="from the start of the period; the last phase may reach into the next period, up to the "
            "start of the first phase there",
        ),
    ]
    gbps: Annotated[Gbps, Meta(description="nominal rate at which each flow of the job sends")]


Phases = Annotated[tuple[PhaseConfig, ...], Meta(min_length=1, max_length=64)]
Period = Annotated[float, finite(1, MAX_MS, what="length of an iteration of the job alone on the fabric")]


class ChangeConfig(Section, frozen=True, kw_only=True):
    """Another communication pattern that the job has from an iteration on, such as after a new batch size."""

    iteration: Annotated[int, Meta(ge=1, le=10_000_000, description="the first iteration, counted from 0")]
    period_ms: Period
    phases: Phases
    teraflops_per_iteration: Teraflops | None = None


class PcieConfig(Section, frozen=True, kw_only=True):
    """The PCIe link, on each host of the job, between the job's GPUs and the NIC.

    Jobs that name the same link share it, in the order of their priority levels.
    """

    link: Name
    gbps: Annotated[Gbps, Meta(description="nominal rate; the same in all jobs that name the link")]


class JobConfig(Section, frozen=True, kw_only=True):
    """A training job: either what it is (`traffic` and `compute_ms`), or when a ring over its hosts sends
    (`period_ms` and `phases`).
    """

    name: Name
    model: Annotated[str, Meta(min_length=1, max_length=64)]
    gpus: Annotated[int, Meta(ge=1, le=100_000, description="of the whole job")]
    hosts: Annotated[
        tuple[Name, ...],
        Meta(
            min_length=1,
            max_length=1024,
            description="in the order of the ring, two or more; with traffic in the order of the GPUs, and a "
            "server with several NICs under its own name",
        ),
    ]
    period_ms: Period | None = None
    phases: Annotated[
        tuple[PhaseConfig, ...],
        Meta(max_length=64, description="with period_ms: one ring all-reduce in each Up phase"),
    ] = ()
    traffic: Annotated[
        TrafficConfig | None, Meta(description="instead of period_ms and phases: they follow from it")
    ] = None
    compute_ms: Annotated[
        Annotated[float, finite(0, MAX_MS)] | None,
        Meta(description="with traffic: the GPUs' compute time of an iteration"),
    ] = None
    sender: Annotated[
        Literal[Sender, "kernel-tcp"],
        Meta(
            description="congestion control of the job's NICs; mltcp: mltcp-dcqcn. kernel-tcp: the job sends "
            "over TCP of the hosts' kernel, on the Mininet fabric only"
        ),
    ] = "dcqcn"
    congestion_control: Annotated[
        str,
        Meta(
            pattern="^[a-z0-9_]{0,15}$",
            description="with kernel-tcp: the name that the kernel knows it by, such as reno, cubic or "
            "mltcp_reno; empty: reno",
        ),
    ] = ""
    increase_timer: Annotated[
        float,
        finite(
            0.01,
            100,
            what="DCQCN's rate increase timer, as a multiple of the NIC profile's; below 1: greedier",
        ),
    ] = 1.0
    teraflops_per_iteration: Annotated[
        Teraflops | None,
        Meta(description="of the whole job; without it, 40 % of an A100's peak rate during the compute time"),
    ] = None
    announces: Annotated[
        Literal["profile", "nothing"],
        Meta(
            description="nothing: the job does not tell the controller its profile, which has to be measured"
        ),
    ] = "profile"
    silent: Annotated[
        bool, Meta(description="the job's iterations are not reported to the agent, so bytes are counted")
    ] = False
    pcie: PcieConfig | None = None
    start_ms: Annotated[
        Milliseconds, Meta(description="when the job arrives, from the start of the first jobs")
    ] = 0
    iterations: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        Meta(description="the job leaves after so many iterations"),
    ] = None
    stop_ms: Annotated[
        Milliseconds | None,
        Meta(description="when the job leaves, from the start of the first jobs; not with iterations"),
    ] = None
    jitter_pct: Annotated[
        float,
        finite(0, 100, what="each compute time is longer or shorter by a random part up to this"),
    ] = 0
    changes: Annotated[
        tuple[ChangeConfig, ...], Meta(max_length=64, description="in the order of their iterations")
    ] = ()


class NicConfig(Section, frozen=True, kw_only=True):
    """What the emulated NICs do not let the controller choose, and what they can do besides."""

    chooses_ports: Annotated[bool, Meta(description="the NIC draws the UDP source ports itself")] = False
    keeps_dscp: Annotated[bool, Meta(description="a queue pair keeps the DSCP that it is opened with")] = (
        False
    )
    any_order: Annotated[
        bool,
        Meta(
            description="the NIC takes packets in any order and repeats single ones, so that switches may "
            "spray its packets"
        ),
    ] = False
    hosts: Annotated[tuple[Name, ...], Meta(description="whose NICs; empty: of all hosts")] = ()


class PfcConfig(Section, frozen=True, kw_only=True):
    """Priority flow control (IEEE 802.1Qbb) between switches and NICs. A priority is a queue of a switch
    port: 6 to 1 for the job levels 0 to 5, 0 for everything else; 7 carries acknowledgements, CNPs and
    probes, and is never paused. Thresholds count for each port received on and priority, in full frames.
    """

    priorities: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=6)], ...],
        Meta(min_length=1, max_length=7, description="the lossless ones"),
    ] = (1, 2, 3, 4, 5, 6)
    xoff: Annotated[
        int, Meta(ge=1, le=100_000, description="above so many waiting packets the neighbour has to pause")
    ] = 96
    xon: Annotated[
        int, Meta(ge=0, le=100_000, description="at so many or fewer it may go on; at most xoff")
    ] = 64
    headroom: Annotated[
        Annotated[int, Meta(ge=0, le=100_000)] | None,
        Meta(
            description="packets that are taken beyond xoff; without it, what a switch's fastest cable needs"
        ),
    ] = None
    quanta: Annotated[
        int, Meta(ge=512, le=65_535, description="of a pause, in 512 bit times; it is repeated at half of it")
    ] = 65_535
    cable_ns: Annotated[
        int, Meta(ge=0, le=1_000_000, description="how long a bit is on its way in a cable")
    ] = 500

    def __post_init__(self) -> None:
        if self.xon > self.xoff:
            raise InvalidValueError(("xon",), f"{self.xon} is above xoff; legal: 0 to {self.xoff}")


class FailureConfig(Section, frozen=True, kw_only=True):
    """A switch that is powered off, or the cables between two switches that are cut."""

    what: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=129,
            description="a switch; two switches with ':' between them for the cables that join them; "
            "a switch, ':' and a port for one cable",
        ),
    ]
    at_ms: Annotated[Milliseconds, Meta(description="fabric time of the failure")]
    repair_ms: Annotated[
        Milliseconds | None,
        Meta(description="fabric time of the repair; without it there is none"),
    ] = None


class MiceConfig(Section, frozen=True, kw_only=True):
    """Background flows below the elephant threshold, between random pairs of hosts."""

    load_pct: Annotated[float, finite(above=0, most=100, what="mean load of each host's link")]
    bytes: Annotated[
        int, Meta(ge=1, le=ELEPHANT_NOMINAL_BYTES - 1, description="nominal size of a flow, before scaling")
    ]


class FloodConfig(Section, frozen=True, kw_only=True):
    """A host of no job that sends at the rate of its NIC without pause. It has no congestion control."""

    src: Name
    dst: Name
    frames: Annotated[
        Literal["all", "answers"],
        Meta(
            description="all: under every DSCP in turn RoCE data, TCP, UDP, and false and true "
            "acknowledgements and CNPs; answers: true acknowledgements and CNPs only"
        ),
    ] = "all"
    start_ms: Annotated[Milliseconds, Meta(description="from the start of the first jobs")] = 0


class ScenarioConfig(Section, frozen=True, kw_only=True):
    """A scenario file. Nominal rates are divided by `scale` for the emulation."""

    name: Name
    about: Annotated[str, Meta(max_length=2000, description="one line for people")] = ""
    fabric: LeafSpineConfig | ExplicitConfig | FileConfig
    jobs: Annotated[tuple[JobConfig, ...], Meta(min_length=1, max_length=256)]
    scale: Annotated[float, finite(1, LARGEST_SCALE, what="nominal rates over emulated rates")] = 2000
    packet_bytes: Annotated[int, Meta(ge=256, le=8192, description="payload of a packet")] = 1024
    buffer_packets: Annotated[int, Meta(ge=16, le=100_000, description="of each queue of a switch port")] = (
        256
    )
    ecn: EcnConfig = EcnConfig()
    tcp: TcpConfig = TcpConfig()
    pfc: PfcConfig | None = None
    warmup: Annotated[int, Meta(ge=1, le=10_000, description="iterations of a job that are not measured")] = 5
    iterations: Annotated[
        int, Meta(ge=1, le=1_000_000, description="iterations of a job that are measured")
    ] = 50
    start_jitter_ms: Annotated[
        float, finite(0, 1000, what="each job starts later by a random time up to this")
    ] = 1.0
    hash: Annotated[
        Literal["told", "unknown"],
        Meta(
            description="unknown: the controller is not told the switches' ECMP hash and learns it by probes"
        ),
    ] = "told"
    draws: Annotated[
        int, Meta(ge=1, le=100, description="runs of the ECMP baseline, each with other source ports")
    ] = 1
    profile: Annotated[
        Literal["measured", "declared"],
        Meta(description="measured: the controller measures each job's profile; declared: the job states it"),
    ] = "measured"
    profile_window_ms: Annotated[
        int, Meta(ge=1, le=MAX_MS, description="the longest measurement of one job")
    ] = 30_000
    realign_pct: Annotated[
        float,
        finite(
            above=0,
            most=50,
            what="a phase that starts later than this part of the period waits for its next slot",
        ),
    ] = REALIGN_PCT
    clock_offset_ms: Annotated[
        float, finite(0, 1e9, what="each host's clock is off by a random time up to this")
    ] = 0
    clock_drift_ppm: Annotated[
        float, finite(0, 200, what="each host's clock runs fast or slow by a random rate up to this")
    ] = 0
    nics: NicConfig = NicConfig()
    failures: Annotated[tuple[FailureConfig, ...], Meta(max_length=64)] = ()
    mice: MiceConfig | None = None
    floods: Annotated[
        tuple[FloodConfig, ...],
        Meta(
            max_length=64,
            description="`run` also measures the policy without them, and with trusted hosts (`strays`)",
        ),
    ] = ()
    strays: Annotated[
        Literal["remark", "stop", "trust"],
        Meta(
            description="what switches do with packets that hosts may not send: remark: send them on with "
            "the lowest priority; stop: drop INT probes and false CNPs of hosts, remark the others; trust: "
            "let hosts use every DSCP"
        ),
    ] = "remark"
