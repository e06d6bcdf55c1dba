# SPDX-License-Identifier: Apache-2.0
"""The keys of the agent's configuration, agent.toml: meaning, unit, legal values and default of each.

The same types read the file and give docs/schemas/agent.json.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, structs

from controller.wire.log_lines import LogFormat
from controller.wire.protocol import MAX_GPUS
from hostagent.job import MOST_BYTES
from hostagent.nic.roce import overhead_bytes
from hostagent.nic_config import NicSettings, RailSettings, SocketSettings, check_address, check_rails
from hostagent.training_config import TrainingSettings
from polyrhythm_files import (
    Document,
    InvalidValueError,
    Loc,
    Section,
    convert,
    finite,
    json_schema,
    read_document,
)

BUILT_SHIM = Path(__file__).parent / "shim" / "build" / "libpolyrhythm-verbs.so"
"""Where `make shim` puts the verbs shim."""
BUILT_SOCKET_SHIM = BUILT_SHIM.with_name("libpolyrhythm-sockets.so")
"""Where `make shim` puts the socket shim."""
DEFAULT_SOCKET = "/run/polyrhythm/agent.sock"


class AgentSettings(Section, frozen=True, kw_only=True):
    """The agent's host, its controller and its socket."""

    host: Annotated[
        str, Meta(description="this host's name in the fabric's description; with rails its server's name")
    ]
    ip: Annotated[
        str,
        Meta(description="this host's RoCE address, as the fabric's description has it; not with rails"),
    ] = ""
    controller: Annotated[
        str | tuple[str, ...],
        Meta(
            description="the controller's agents port, HOST:PORT or unix:/PATH; of several controllers a list"
        ),
    ] = "127.0.0.1:9560"
    socket: Annotated[str, Meta(description="Unix socket for training code; empty: none")] = DEFAULT_SOCKET
    deadline_ms: Annotated[
        float,
        finite(0.1, 1000.0, what="a flow without the controller's answer after this time is left to ECMP"),
    ] = 10.0
    hosts_file: Annotated[
        str, Meta(description="more addresses, as lines of hosts(5), for instance /etc/hosts")
    ] = ""
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="least severity that is logged")
    ] = "info"
    metrics: Annotated[
        str,
        Meta(
            description="ADDRESS:PORT of /metrics and /healthz; empty: none. An address that others reach "
            "needs tls.cert, and speaks HTTPS with it"
        ),
    ] = ""
    log_format: Annotated[
        LogFormat, Meta(description="text: lines for people; json: an object a line, with fields")
    ] = "text"

    def __post_init__(self) -> None:
        if not self.controllers or "" in self.controllers:
            raise InvalidValueError(("controller",), "no address; legal: HOST:PORT or unix:/PATH, or a list")

    @property
    def controllers(self) -> tuple[str, ...]:
        """The agents ports of all controllers, in the order of the file."""
        return (self.controller,) if isinstance(self.controller, str) else self.controller


class TlsSettings(Section, frozen=True, kw_only=True):
    """Certificates for the session with the controller: PEM files. No ca: no encryption."""

    ca: Annotated[
        str, Meta(description="authorities that a controller's certificate must come from; empty: no TLS")
    ] = ""
    cert: Annotated[
        str, Meta(description="this agent's certificate, which names agent.host; empty: none")
    ] = ""
    key: Annotated[str, Meta(description="its private key, without a password")] = ""
    server_name: Annotated[
        str, Meta(description="name in the controller's certificate, where it is not its address")
    ] = ""

    def __post_init__(self) -> None:
        given = next((key for key in ("cert", "key", "server_name") if getattr(self, key)), "")
        if given and not self.ca:
            raise InvalidValueError((given,), "means nothing without ca; legal: with ca, which turns TLS on")
        if bool(self.cert) != bool(self.key):
            raise InvalidValueError((), "one of cert and key is missing; legal: both or none")


class SafetySettings(Section, frozen=True, kw_only=True):
    """When a pinned flow goes back to ECMP, and when it is pinned again (routing paper, 3.5.5)."""

    enabled: Annotated[bool, Meta(description="watch the latency and loss of pinned flows")] = True
    window_ms: Annotated[float, finite(1.0, 60000.0, what="length of a window")] = 100.0
    windows: Annotated[
        int, Meta(ge=1, le=1000, description="bad windows in a row after which a flow falls back to ECMP")
    ] = 3
    loss_percent: Annotated[
        float, finite(0.0, 100.0, what="retransmitted packets of those sent, above which a window is bad")
    ] = 2.0
    latency_ms: Annotated[
        float,
        finite(0.0, 60000.0, what="round trip time above which a window is bad; 0: off"),
    ] = 0.0
    latency_factor: Annotated[
        float,
        finite(
            0.0,
            1000000.0,
            what="a window is bad above this multiple of the flow's least round trip time; 0: off, because "
            "the queues of a busy link lengthen it as much as a bad path",
        ),
    ] = 0.0
    hold_s: Annotated[
        float,
        finite(
            0.0,
            86400.0,
            what="how long a flow stays on ECMP before it is pinned again; doubles with each fallback",
        ),
    ] = 5.0
    longest_hold_s: Annotated[float, finite(0.0, 86400.0, what="the longest time on ECMP")] = 300.0
    good_s: Annotated[
        float, finite(0.0, 86400.0, what="good time after which the time on ECMP starts from hold_s again")
    ] = 60.0


class NcclSettings(Section, frozen=True, kw_only=True):
    """What `polyrhythm agent env` prints."""

    qps_per_connection: Annotated[
        int, Meta(ge=1, le=128, description="queue pairs of a connection, each with its own source port")
    ] = 1
    gid_index: Annotated[int, Meta(ge=-1, le=255, description="GID index of RoCEv2; -1: NCCL finds it")] = -1
    shim: Annotated[str, Meta(description="path of the verbs shim; empty: where `make shim` puts it")] = ""
    inspector: Annotated[str, Meta(description="path of libnccl-profiler-inspector.so; empty: not used")] = ""


class ObservedJobSettings(Section, frozen=True, kw_only=True):
    """A job that does not use the job library; the agent observes it in records or counters."""

    name: Annotated[str, Meta(description="name of the job, without '/'")]
    hosts: Annotated[tuple[str, ...], Meta(description="hosts in rank order")]
    record: Annotated[
        str,
        Meta(
            description="file or folder that NCCL's inspector or profiler writes; empty: the NIC's counters"
        ),
    ] = ""
    connections: Annotated[
        bool,
        Meta(
            description="observe the TCP connections between its hosts, and let switches pin them; needs "
            "sockets.map, and no record"
        ),
    ] = False
    user: Annotated[
        int, Meta(ge=-1, lt=1 << 32, description="with connections: the id of the user that runs it; -1: any")
    ] = -1
    ring: Annotated[
        tuple[tuple[str, str], ...], Meta(description="its flows, [source, destination] host; empty: a ring")
    ] = ()
    model: Annotated[str, Meta(description="name of the model")] = ""
    gpus: Annotated[int, Meta(ge=0, le=MAX_GPUS, description="of the whole job; 0: one a host")] = 0
    flops_per_iteration: Annotated[float, finite(0.0, what="of the whole job")] = 0.0
    bytes_per_flow: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_BYTES,
            description="bytes of a flow in an iteration; 0: as counted, or line rate",
        ),
    ] = 0
    sample_ms: Annotated[float, finite(1.0, 1000.0, what="how often the counters are read")] = 10.0
    window_s: Annotated[int, Meta(ge=2, le=600, description="how much of the record is kept")] = 120

    def __post_init__(self) -> None:
        if self.connections and self.record:
            raise InvalidValueError(("connections",), "true with a record; legal: one of both")
        if self.user >= 0 and not self.connections:
            raise InvalidValueError(
                ("user",), "means nothing without connections; legal: with connections = true"
            )


class SourceSettings(Section, frozen=True, kw_only=True):
    """Where the host's counters and NCCL's output are."""

    inspector_dir: Annotated[
        str, Meta(description="directory that NCCL's inspector writes to; empty: its own choice")
    ] = ""
    sysfs: Annotated[str, Meta(description="where the RDMA devices are")] = "/sys/class/infiniband"
    jobs: Annotated[
        tuple[ObservedJobSettings, ...],
        Meta(description="jobs that the agent observes in records, counters or connections"),
    ] = ()


class Config(Section, frozen=True, kw_only=True):
    """The whole file."""

    agent: Annotated[AgentSettings, Meta(description="the agent's host, its controller and its socket")]
    tls: Annotated[TlsSettings, Meta(description="certificates of the session with the controller")] = (
        TlsSettings()
    )
    nic: Annotated[NicSettings, Meta(description="the NIC of this host, and how flows are pinned")] = (
        NicSettings()
    )
    sockets: Annotated[SocketSettings, Meta(description="TCP and UDP connections of training processes")] = (
        SocketSettings()
    )
    rails: Annotated[
        tuple[RailSettings, ...],
        Meta(
            max_length=64,
            description="the NICs of a host with several; then agent.ip, nic.device and nic.interface are "
            "not given",
        ),
    ] = ()
    safety: Annotated[SafetySettings, Meta(description="when a pinned flow goes back to ECMP")] = (
        SafetySettings()
    )
    hosts: Annotated[Mapping[str, str], Meta(description="address of each host of the fabric, by name")] = {}
    nccl: Annotated[NcclSettings, Meta(description="NCCL's environment")] = NcclSettings()
    sources: Annotated[
        SourceSettings, Meta(description="where the host's counters and NCCL's output are")
    ] = SourceSettings()
    training: Annotated[TrainingSettings, Meta(description="emulated training")] = TrainingSettings()

    def __post_init__(self) -> None:
        if self.rails:
            self._check_rails()
        elif not self.agent.ip:
            raise InvalidValueError(("agent", "ip"), "missing; legal: the host's address, or rails")
        else:
            check_address(self.agent.ip, ("agent", "ip"))
        if self.agent.metrics:
            metrics_address(self.agent, self.tls)
        for name, address in self.hosts.items():
            check_address(address, ("hosts", name))
        if self.training.jobs and self.nic.driver != "udp":
            raise InvalidValueError(
                ("training", "jobs"), f"nic.driver is {self.nic.driver!r}; legal: only with driver 'udp'"
            )
        for index, job in enumerate(self.training.jobs):
            loc: Loc = ("training", "jobs", index)
            try:
                spec = job.spec(self.payload_bps)
            except ValueError as error:
                raise InvalidValueError(loc, str(error)) from None
            self._check_hosts(loc, spec.hosts)
        if self.nic.driver == "sockets" and not self.sockets.map:
            raise InvalidValueError(("sockets", "map"), "missing; legal: a path, with driver 'sockets'")
        self._check_observed_jobs()

    @property
    def payload_bps(self) -> int:
        """The payload that the udp driver carries at line rate, in bit/s."""
        mtu = self.nic.mtu
        return int(self.nic.rate_mbps * 1e6 * mtu / (mtu + overhead_bytes(next(iter(self.nics.values())))))

    @property
    def nics(self) -> Mapping[str, str]:
        """The address of each NIC of this host, by its name in the fabric's description."""
        return {rail.host: rail.ip for rail in self.rails} or {self.agent.host: self.agent.ip}

    def of_each_nic(self) -> tuple[Config, ...]:
        """The configuration of each NIC of this host, as if it were the only one."""
        return tuple(map(self._of_rail, self.rails)) or (self,)

    def _of_rail(self, rail: RailSettings) -> Config:
        training = tuple(job for job in self.training.jobs if rail.host in job.hosts)
        observed = tuple(job for job in self.sources.jobs if rail.host in job.hosts)
        return structs.replace(
            self,
            agent=structs.replace(self.agent, host=rail.host, ip=rail.ip),
            nic=structs.replace(self.nic, device=rail.device, port=rail.port, interface=rail.interface),
            rails=(),
            sources=structs.replace(self.sources, jobs=observed),
            training=structs.replace(self.training, jobs=training),
        )

    def _check_rails(self) -> None:
        for loc, given in (
            (("agent", "ip"), self.agent.ip),
            (("nic", "device"), self.nic.device),
            (("nic", "interface"), self.nic.interface),
        ):
            if given:
                raise InvalidValueError(loc, f"{given!r} with rails; legal: a key of each of the rails")
        check_rails(self.rails)

    def _check_hosts(self, loc: Loc, hosts: tuple[str, ...]) -> None:
        if not self.nics.keys() & set(hosts):
            own = " and ".join(self.nics)
            raise InvalidValueError(
                (*loc, "hosts"), f"{own} is not among {', '.join(hosts)}; legal: with this host"
            )

    def _check_observed_jobs(self) -> None:
        names = [job.name for job in self.sources.jobs]
        for index, job in enumerate(self.sources.jobs):
            loc: Loc = ("sources", "jobs", index)
            if not job.name or "/" in job.name or names.index(job.name) < index:
                raise InvalidValueError(
                    (*loc, "name"), f"{job.name!r} is wrong; legal: a name of its own, without '/'"
                )
            self._check_hosts(loc, job.hosts)
            if job.connections and not self.sockets.map:
                raise InvalidValueError(
                    (*loc, "connections"), "true without sockets.map; legal: with it, the agent reports them"
                )
            for k, pair in enumerate(job.ring):
                if pair[0] == pair[1] or not set(pair) <= set(job.hosts):
                    legal = ", ".join(job.hosts)
                    raise InvalidValueError(
                        (*loc, "ring", k), f"{'>'.join(pair)} joins no two hosts of the job; legal: {legal}"
                    )
            nics = [n.nic for n in self.of_each_nic() if n.agent.host in job.hosts]
            counted = all(n.device or (n.interface and n.driver != "udp") for n in nics)
            if not (job.record or job.connections or counted):
                raise InvalidValueError(
                    (*loc, "record"),
                    "missing; legal: a record, connections, or counters by nic.device or nic.interface",
                )

    def addresses(self) -> dict[str, str]:
        """Host name -> address: the hosts file, then `hosts`, then this host's own NICs.

        Of the hosts file the lines of the family of their addresses count: a name may stand there with both.

        Raises InvalidValueError for a hosts file that cannot be read.
        """
        found, own = {}, self.nics
        ipv6 = ":" in next(iter(own.values()))
        if self.agent.hosts_file:
            try:
                text = Path(self.agent.hosts_file).read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                raise InvalidValueError(
                    ("agent", "hosts_file"), f"{self.agent.hosts_file}: {error.strerror}"
                ) from None
            for line in text.splitlines():
                address, *names = line.partition("#")[0].split() or [""]
                if names and (":" in address) == ipv6:
                    found.update(dict.fromkeys(names, address))
        return {**found, **self.hosts, **own}


def read_config(path: Path) -> tuple[Document, Config]:
    """Read and check the configuration; the document has the lines for later errors.

    Raises ConfigError, one line with the file, the line and the path in it.
    """
    document = read_document(path)
    return document, convert(document, Config)


def load_config(path: Path) -> Config:
    """Read and check the configuration. Raises ConfigError as `read_config`."""
    return read_config(path)[1]


def config_schema() -> dict[str, Any]:
    """The JSON schema of the configuration."""
    return json_schema([Config], "Polyrhythm host agent")


def metrics_address(settings: AgentSettings, tls: TlsSettings) -> tuple[str, int]:
    """The address and port of `agent.metrics`. Raises InvalidValueError if it is not legal."""
    loc = ("agent", "metrics")
    host, _, port = settings.metrics.rpartition(":")
    try:
        address = ipaddress.ip_address(host.strip("[]").replace("localhost", "127.0.0.1"))
    except ValueError:
        address = None
    if address is None or not port.isdecimal() or not 0 <= int(port) < 65536:
        raise InvalidValueError(loc, f"{settings.metrics!r} is wrong; legal: an IP address and :PORT")
    if not address.is_loopback and not tls.cert:
        raise InvalidValueError(
            loc, f"{host}: other hosts reach this address; legal: a loopback address, or with tls.cert"
        )
    return str(address), int(port)
