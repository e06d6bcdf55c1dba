# SPDX-License-Identifier: Apache-2.0
"""The agent's configuration: agent.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.wire.protocol import MAX_GPUS
from hostagent.declared import read, schema, setting
from hostagent.job import MOST_BYTES, JobSpec, MeasuredPhase, MeasuredProfile, PcieUse, PhaseSpec
from hostagent.nic.driver import SENDERS
from hostagent.nic.roce import ip_bytes
from polyrhythm_files import ConfigError
from polyrhythm_job.pcie import check_link_name

DRIVERS = ("auto", "verbs", "shim", "udp", "none")
BUILT_SHIM = Path(__file__).parent / "shim" / "build" / "libpolyrhythm-verbs.so"
"""Where `make shim` puts the verbs shim."""
DEFAULT_SOCKET = "/run/polyrhythm/agent.sock"
DEFAULT_PORT_MAP = "/run/polyrhythm/ports"
LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Who the agent is and whom it speaks to."""

    host: str = setting("this host's name in the fabric's description")
    ip: str = setting("this host's RoCE address, as the fabric's description has it")
    controller: str = setting("the controller's agents port, HOST:PORT or unix:/PATH", "127.0.0.1:9560")
    socket: str = setting("where training code talks to the agent; empty: nowhere", DEFAULT_SOCKET)
    deadline_ms: float = setting(
        "the longest a flow waits for the controller's answer before it goes by ECMP",
        10.0, least=0.1, most=1000.0,
    )  # fmt: skip
    hosts_file: str = setting("more addresses, as lines of hosts(5), for instance /etc/hosts", "")
    log_level: str = setting("least severity that is logged", "info", choices=LEVELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The session's certificates, PEM files; without any the session is in the clear."""

    ca: str = setting("authorities that a controller's certificate must come from; empty: no TLS", "")
    cert: str = setting("this agent's certificate, which names agent.host; empty: none is shown", "")
    key: str = setting("its private key, without a password", "")
    server_name: str = setting("name in the controller's certificate, where it is not its address", "")

    def __post_init__(self) -> None:
        given = next((key for key in ("cert", "key", "server_name") if getattr(self, key)), "")
        if given and not self.ca:
            raise ConfigError(f"tls.{given}: means nothing without tls.ca, which turns TLS on")
        if bool(self.cert) != bool(self.key):
            raise ConfigError("tls: cert and key belong together; give both or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class NicSettings:
    """What sends, and how its flows are pinned."""

    driver: str = setting("how flows are pinned; auto: the first of shim, verbs, none that can", "auto",
                          choices=DRIVERS)  # fmt: skip
    device: str = setting("RDMA device under /sys/class/infiniband; empty: any (verbs), counters of none", "")
    port: int = setting("port of the RDMA device", 1, least=1, most=255)
    interface: str = setting(
        "network interface: udp binds its sockets to it, other drivers without a device count its bytes",
        "",
    )
    port_map: str = setting("the port map that the shim reads", DEFAULT_PORT_MAP)
    rate_mbps: float = setting("line rate of the udp driver, headers included", 100.0, least=0.1, most=1e6)
    mtu: int = setting("payload bytes of a packet of the udp driver, in steps of 4", 1024, least=256,
                       most=4096)  # fmt: skip
    retransmit_ms: float = setting("time-out of the udp driver; 0: 160 frame times, at least 50 ms", 0.0,
                                   least=0.0, most=60000.0)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetySettings:
    """When a pinned flow goes back to ECMP, and when it is pinned again (routing paper, 3.5.5)."""

    enabled: bool = setting("watch the latency and loss of pinned flows", True)
    window_ms: float = setting("how often they are judged", 100.0, least=1.0, most=60000.0)
    windows: int = setting("bad windows in a row that end a pin", 3, least=1, most=1000)
    loss_percent: float = setting("packets sent again, of those sent, that make a window bad", 2.0, least=0.0,
                                  most=100.0)  # fmt: skip
    latency_ms: float = setting("round trip that makes a window bad; 0: the factor alone", 0.0, least=0.0,
                                most=60000.0)  # fmt: skip
    latency_factor: float = setting("times the flow's least round trip that makes a window bad; 0: off",
                                    20.0, least=0.0, most=1e6)  # fmt: skip
    hold_s: float = setting("how long a flow stays on ECMP before it is pinned again; doubles with each fall",
                            5.0, least=0.0, most=86400.0)  # fmt: skip
    longest_hold_s: float = setting("the longest hold", 300.0, least=0.0, most=86400.0)
    good_s: float = setting("how long a pin must be good for the hold to be the first again", 60.0, least=0.0,
                            most=86400.0)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclSettings:
    """What `polyrhythm agent env` prints."""

    qps_per_connection: int = setting("queue pairs of a connection, over as many ports", 1, least=1, most=128)
    gid_index: int = setting("GID index of RoCEv2; -1: NCCL finds it", -1, least=-1, most=255)
    shim: str = setting("path of the verbs shim; empty: where `make shim` puts it", "")
    inspector: str = setting("path of libnccl-profiler-inspector.so; empty: not used", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedJobSettings:
    """A job that says nothing itself, followed by what is recorded of it."""

    name: str = setting("name of the job, without '/'")
    hosts: tuple[str, ...] = setting("hosts in rank order")
    record: str = setting(
        "file, or folder of files, that NCCL's inspector or profiler writes; empty: nic.device's counters",
        "",
    )
    ring: tuple[tuple[str, str], ...] = setting("its flows, [source, destination] host; empty: a ring", ())
    model: str = setting("name of the model", "")
    gpus: int = setting("of the whole job; 0: one a host", 0, least=0, most=MAX_GPUS)
    flops_per_iteration: float = setting("of the whole job", 0.0, least=0.0)
    bytes_per_flow: int = setting(
        "bytes a flow carries in an iteration; 0: as counted, or line rate", 0, least=0, most=MOST_BYTES
    )
    sample_ms: float = setting("how often the counters are read", 10.0, least=1.0, most=1000.0)
    window_s: int = setting("how much of the record is kept in mind", 120, least=2, most=600)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """Where the host's counters and NCCL's output are."""

    inspector_dir: str = setting("directory NCCL's inspector writes to; empty: its own choice", "")
    sysfs: str = setting("where the RDMA devices are", "/sys/class/infiniband")
    jobs: tuple[ObservedJobSettings, ...] = setting("jobs that are followed by what is recorded of them", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPhase:
    """An Up phase of an emulated job and the Down phase after it."""

    up_ns: int = setting("nominal length of the Up phase", least=0)
    bytes_per_flow: int = setting("bytes each flow sends in it", least=0)
    rate_bps: int = setting("most a flow sends at; 0: the line's", 0, least=0)
    down_ns: int = setting("compute after it", least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProfile:
    """A profile measured earlier, told to the controller instead of the nominal one."""

    period_ns: int = setting("one iteration alone", least=1)
    phases: tuple[tuple[int, int, int], ...] = setting(
        "[start_ns, end_ns, rate_bps] of each Up phase", least=0
    )

    def measured(self) -> MeasuredProfile:
        """The profile as workers know it."""
        return MeasuredProfile(self.period_ns, tuple(MeasuredPhase(*phase) for phase in self.phases))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPcie:
    """A PCIe link of the machine, between the job's GPUs and their NIC. All who say its name take turns on
    it by the levels of the plan, whatever agent they belong to."""

    link: str = setting("its name, such as a PCI address: letters, digits and . : _ -")
    rate_mbps: float = setting("its rate", least=0.1, most=1e6)

    def __post_init__(self) -> None:
        check_link_name(self.link)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """An emulated training job of which one or more workers run on this host."""

    name: str = setting("name of the job, without '/'")
    hosts: tuple[str, ...] = setting("hosts in rank order")
    ring: tuple[tuple[str, str], ...] = setting("its flows, [source, destination] host; empty: a ring", ())
    phases: tuple[TrainingPhase, ...] = setting("one iteration")
    model: str = setting("name of the model", "")
    gpus: int = setting("of the whole job; 0: one a host", 0, least=0)
    flops_per_iteration: float = setting("of the whole job", 0.0, least=0.0)
    sender: str = setting(
        "congestion control of its senders, unless the plan says otherwise", "dcqcn", choices=SENDERS
    )
    silent: bool = setting("nobody reports its iterations; the controller counts bytes", False)
    start_ns: int = setting(
        "when it starts, on the host's monotonic clock; 0: 1 s after the agent", 0, least=0
    )
    start_jitter_ns: int = setting("the start is later by up to this", 0, least=0)
    compute_jitter_ns: int = setting("each Down phase is longer or shorter by up to this", 0, least=0)
    iterations: int = setting("how many; 0: until the agent ends", 0, least=0)
    profile: TrainingProfile | None = setting("a measured profile", None)
    pcie: TrainingPcie | None = setting("the PCIe link its GPUs share with other jobs of the host", None)

    def spec(self) -> JobSpec:
        """The job as its workers know it. Raises ValueError for one that cannot run."""
        ring = self.ring or tuple(
            (host, self.hosts[(rank + 1) % len(self.hosts)]) for rank, host in enumerate(self.hosts)
        )
        return JobSpec(
            name=self.name,
            model=self.model or self.name,
            gpus=self.gpus or len(self.hosts),
            hosts=self.hosts,
            ring=ring,
            phases=tuple(PhaseSpec(p.up_ns, p.bytes_per_flow, p.rate_bps, p.down_ns) for p in self.phases),
            flops_per_iteration=self.flops_per_iteration,
            compute_jitter_ns=self.compute_jitter_ns,
            sender=self.sender,
            silent=self.silent,
            profile=self.profile.measured() if self.profile is not None else None,
            pcie=PcieUse(self.pcie.link, int(self.pcie.rate_mbps * 1e6)) if self.pcie is not None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """Emulated training on this host; only with the udp driver."""

    records: str = setting(
        "file each finished iteration is written to, a JSON object a line; empty: none", ""
    )
    moves: str = setting(
        "file each place that the controller gives a flow is written to, a JSON object a line; empty: none",
        "",
    )
    seed: int = setting("of start and compute jitter and ECMP's source ports; the same on every host", 1)
    jobs: tuple[TrainingJob, ...] = setting("the jobs", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """agent.toml."""

    agent: AgentSettings = setting("who the agent is and whom it speaks to")
    tls: TlsSettings = setting("certificates of the session with the controller", TlsSettings)
    nic: NicSettings = setting("what sends, and how its flows are pinned", NicSettings)
    safety: SafetySettings = setting("when a pinned flow goes back to ECMP", SafetySettings)
    hosts: Mapping[str, str] = setting("address of each host of the fabric, by name", dict)
    nccl: NcclSettings = setting("NCCL's environment", NcclSettings)
    sources: SourceSettings = setting("where the host's counters and NCCL's output are", SourceSettings)
    training: TrainingSettings = setting("emulated training", TrainingSettings)

    def __post_init__(self) -> None:
        _address(self.agent.ip, "agent.ip")
        for name, address in self.hosts.items():
            _address(address, f"hosts.{name}")
        if self.nic.mtu % 4:
            raise ConfigError(f"nic.mtu: {self.nic.mtu} is no multiple of 4")
        if self.training.jobs and self.nic.driver != "udp":
            raise ConfigError(
                f"training.jobs: only driver 'udp' sends by itself; nic.driver is {self.nic.driver!r}"
            )
        for index, job in enumerate(self.training.jobs):
            try:
                spec = job.spec()
            except ValueError as error:
                raise ConfigError(f"training.jobs[{index}]: {error}") from None
            if self.agent.host not in spec.hosts:
                raise ConfigError(
                    f"training.jobs[{index}].hosts: {self.agent.host} is not among {', '.join(spec.hosts)}"
                )

        self._check_followed()

    def _check_followed(self) -> None:
        names = [job.name for job in self.sources.jobs]
        for index, job in enumerate(self.sources.jobs):
            where = f"sources.jobs[{index}]"
            if not job.name or "/" in job.name or names.index(job.name) < index:
                raise ConfigError(f"{where}.name: {job.name!r}; a name of its own, without '/', is needed")
            if self.agent.host not in job.hosts:
                raise ConfigError(f"{where}.hosts: {self.agent.host} is not among {', '.join(job.hosts)}")
            for pair in job.ring:
                if pair[0] == pair[1] or not set(pair) <= set(job.hosts):
                    raise ConfigError(
                        f"{where}.ring: {'>'.join(pair)} must join two of {', '.join(job.hosts)}"
                    )
            counted = self.nic.device or (self.nic.interface and self.nic.driver != "udp")
            if not job.record and not counted:
                raise ConfigError(
                    f"{where}.record: missing; or give nic.device or nic.interface, whose counters tell then"
                )

    def addresses(self) -> dict[str, str]:
        """Host name -> address: the hosts file, then `hosts`, then this host itself.

        Raises ConfigError for a hosts file that cannot be read.
        """
        found = {}
        if self.agent.hosts_file:
            try:
                text = Path(self.agent.hosts_file).read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                raise ConfigError(f"agent.hosts_file: {self.agent.hosts_file}: {error.strerror}") from None
            for line in text.splitlines():
                address, *names = line.partition("#")[0].split() or [""]
                if address.count(".") == 3:
                    found.update(dict.fromkeys(names, address))
        return {**found, **self.hosts, self.agent.host: self.agent.ip}


def load_config(path: Path) -> Config:
    """Read and check agent.toml.

    Raises ConfigError, one line with the file and the path in it.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    try:
        return read(Config, data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def config_schema() -> dict[str, Any]:
    """The JSON schema of agent.toml."""
    return schema(Config, "Polyrhythm host agent")


def _address(text: str, path: str) -> None:
    try:
        ip_bytes(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
