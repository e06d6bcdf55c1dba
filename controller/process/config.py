# SPDX-License-Identifier: Apache-2.0
"""The fabric's description, a file for the controller: its keys, and how it is read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from finsy.grpcutil import GRPCCredentialsTLS
from msgspec import Meta

from controller.live.job_leases import LEASE_NS
from controller.live.reannouncement import RESTART_GRACE_NS
from controller.model import REALIGN, REALIGN_PCT
from controller.southbound.desired import FRAME_BYTES, EcnProfile
from controller.southbound.fleet import Target
from controller.southbound.host_guard import TCP, UDP, HostGuard, LevelFlow
from controller.wire.protocol import ANSWER_DEADLINE_NS
from polyrhythm_files import (
    LARGE,
    Document,
    InvalidValueError,
    Section,
    convert,
    finite,
    listed,
    read_document,
)
from topo.addresses import is_ipv6
from topo.files import read_topology
from topo.graph import Topology

MAX_MS = 10**9
"""Of every time in the file (chosen: eleven days)."""

MOST_LEVEL_FLOWS = 4096
"""The size of the switches' table `planned_flow`."""

DEFAULT_GUARD = HostGuard()


class TlsFile(Section, frozen=True, kw_only=True):
    """Certificates for the sessions with switches: PEM files, relative to the folder of the description."""

    ca: Annotated[
        str, Meta(min_length=1, description="authorities that a switch's certificate must come from")
    ]
    cert: Annotated[str, Meta(min_length=1, description="the controller's certificate")] | None = None
    key: Annotated[str, Meta(min_length=1, description="its private key, without a password")] | None = None
    server_name: Annotated[
        str, Meta(min_length=1, description="name in the switches' certificates, if not their address")
    ] | None = None  # fmt: skip

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise InvalidValueError((), "one of cert and key is missing; legal: both or none")


class LevelFlowFile(Section, frozen=True, kw_only=True):
    """A TCP or UDP flow between two hosts."""

    src: Annotated[str, Meta(description="the host that opens it")]
    dst: Annotated[str, Meta(description="the host that it leads to")]
    protocol: Literal["tcp", "udp"]
    src_port: Annotated[int, Meta(ge=1, le=65535)]
    dst_port: Annotated[int, Meta(ge=1, le=65535)]


class SwitchFile(Section, frozen=True, kw_only=True):
    """Where a switch serves P4Runtime."""

    address: Annotated[str, Meta(description="HOST:PORT or unix:/PATH")]
    device_id: Annotated[int, Meta(ge=1, description="P4Runtime device id; that of the topology")]

    def __post_init__(self) -> None:
        if not _is_address(self.address):
            raise InvalidValueError(
                ("address",), f"{self.address!r} is wrong; legal: HOST:PORT or unix:/PATH"
            )


class EcnRampFile(Section, frozen=True, kw_only=True):
    """How the job queues of the switches mark packets: none below kmin, a part pmax at kmax, all above."""

    kmin: Annotated[int, Meta(ge=0, description="queue length in packets; below kmax")]
    kmax: Annotated[int, Meta(ge=1, description="queue length in packets")]
    pmax: Annotated[float, finite(0, 1, what="part of the packets that is marked at kmax")]

    def profile(self, frame_bytes: int, tcp: EcnProfile | None = None) -> EcnProfile:
        """The profile for the switches. Raises InvalidValueError for one that makes no ramp."""
        try:
            return EcnProfile(self.kmin, self.kmax, self.pmax, frame_bytes, tcp)
        except ValueError as error:
            raise InvalidValueError((), str(error)) from None


class EcnFile(EcnRampFile, frozen=True, kw_only=True):
    """How the job queues of the switches mark packets."""

    frame_bytes: Annotated[int, Meta(ge=1, description="of a full packet on the wire")] = FRAME_BYTES
    tcp: Annotated[
        EcnRampFile | None,
        Meta(description="the ramp of ECN-capable TCP, on v1model; without it, that of all other packets"),
    ] = None


class FabricFile(Section, frozen=True, kw_only=True):
    """A fabric's description."""

    name: str
    clock: Annotated[
        Literal["embedded", "host"],
        Meta(description="embedded: the fabric sends its own time; host: the controller's host keeps it"),
    ]
    control_delay_ns: Annotated[
        int, Meta(ge=0, description="from a decision of the controller to its effect, in fabric time")
    ]
    topology: Annotated[Any, Meta(description="as in a topology file")]
    switches: Annotated[
        Mapping[str, SwitchFile],
        Meta(description="by name; the switches of the topology, no more and no less"),
    ]
    ecn: EcnFile
    verify: Annotated[bool, Meta(description="check by INT probes which path a source port leads along")] = (
        True
    )
    scenario: Annotated[str, Meta(description="name that the web page shows")] = ""
    poll_ms: Annotated[int, Meta(ge=1, le=MAX_MS, description="between two readings of the counters")] = 100
    elephant_bytes: Annotated[
        int, Meta(ge=0, description="a flow with less in an iteration is a mouse: it is left to ECMP")
    ] = 10_000
    strays: Annotated[
        Literal["remark", "stop", "trust"],
        Meta(
            description="what switches do with packets that hosts may not send: remark: send them on with "
            "the lowest priority; stop: drop INT probes and false CNPs of hosts, remark the others; trust: "
            "let hosts use every DSCP"
        ),
    ] = "remark"
    level_flows: Annotated[
        tuple[LevelFlowFile, ...],
        Meta(
            max_length=MOST_LEVEL_FLOWS,
            description="TCP and UDP flows that may use the DSCPs of levels, as RoCEv2 flows of plans may",
        ),
    ] = ()
    read_back_ms: Annotated[
        int, Meta(ge=1, le=MAX_MS, description="between two checks that switches hold what they should")
    ] = 60_000
    grace_ms: Annotated[
        int, Meta(ge=0, le=MAX_MS, description="a switch without a session for this long counts as lost")
    ] = 1_000
    restart_grace_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_MS,
            description="after a start: how long agents may take to announce their jobs again; until then, "
            "entries for single flows that switches hold stay. A switch without a session by then counts as "
            "lost",
        ),
    ] = RESTART_GRACE_NS // 1_000_000
    lease_ms: Annotated[
        int, Meta(ge=1, le=MAX_MS, description="the jobs of a host end after this time without its agent")
    ] = LEASE_NS // 1_000_000
    tls: TlsFile | None = None
    profile: Annotated[
        Literal["measured", "declared"],
        Meta(description="measured: the controller measures each job's profile; declared: the job states it"),
    ] = "measured"
    profile_window_ms: Annotated[
        int, Meta(ge=1, le=MAX_MS, description="the longest measurement of one job")
    ] = 30_000
    realign_pct: Annotated[
        float,
        finite(above=0, most=50, what="a phase later than this part of its period waits for its next slot"),
    ] = REALIGN_PCT
    answer_deadline_ms: Annotated[
        float, finite(0.1, 1000, what="a flow whose agent has no answer by then is left to ECMP")
    ] = ANSWER_DEADLINE_NS / 1e6


@dataclass(frozen=True, slots=True)
class FabricDescription:
    """A fabric as the controller uses it.

    A flow of less than `elephant_bytes` in an iteration is left to ECMP. `guard` says what ports
    to hosts trust. The switches' content is read back every `read_back_ns`, and a switch counts as lost
    when its session is gone for `grace_ns`; a host's jobs end when its agent is gone for `lease_ns`. After a
    start, agents have `restart_grace_ns` to announce their jobs again. `measured`: the controller measures
    each job's profile, for `profile_window_ns` at most; otherwise it takes the profile that the job declares.
    A phase that starts later than the part `realign` of its period waits for its next slot. A flow whose
    agent has no answer within `answer_deadline_ns` is left to ECMP.
    """

    name: str
    clock: str
    topology: Topology
    targets: Mapping[str, Target]
    ecn: EcnProfile
    verify: bool
    scenario: str
    poll_ns: int
    elephant_bytes: int
    guard: HostGuard = DEFAULT_GUARD
    read_back_ns: int = 60_000_000_000
    grace_ns: int = 1_000_000_000
    restart_grace_ns: int = RESTART_GRACE_NS
    lease_ns: int = LEASE_NS
    measured: bool = True
    profile_window_ns: int = 30_000_000_000
    realign: float = REALIGN
    answer_deadline_ns: int = ANSWER_DEADLINE_NS


def load_fabric(path: Path) -> FabricDescription:
    """Read and check a description.

    Raises:
        ConfigError: the file cannot be read or is no legal description; with file, line and path.
    """
    document = read_document(path, LARGE)
    given = convert(document, FabricFile)
    topology = read_topology(document, ("topology",), given.name)
    with document.checks():
        tls = _tls(given.tls, path.parent) if given.tls is not None else None
        targets = _targets(given, topology, tls)
        guard = _guard(given, topology)
    return FabricDescription(
        name=given.name,
        clock=given.clock,
        topology=topology,
        targets=targets,
        ecn=_ecn(document, given.ecn),
        verify=given.verify,
        scenario=given.scenario,
        poll_ns=given.poll_ms * 1_000_000,
        elephant_bytes=given.elephant_bytes,
        guard=guard,
        read_back_ns=given.read_back_ms * 1_000_000,
        grace_ns=given.grace_ms * 1_000_000,
        restart_grace_ns=given.restart_grace_ms * 1_000_000,
        lease_ns=given.lease_ms * 1_000_000,
        measured=given.profile == "measured",
        profile_window_ns=given.profile_window_ms * 1_000_000,
        realign=given.realign_pct / 100,
        answer_deadline_ns=round(given.answer_deadline_ms * 1e6),
    )


def _ecn(document: Document, given: EcnFile) -> EcnProfile:
    tcp = None
    if given.tcp is not None:
        with document.checks(("ecn", "tcp")):
            tcp = given.tcp.profile(given.frame_bytes)
    with document.checks(("ecn",)):
        return given.profile(given.frame_bytes, tcp)


def _tls(given: TlsFile, folder: Path) -> GRPCCredentialsTLS:
    """The files that a description names. Each session with a switch reads them when it begins."""
    pem = {
        key: _pem(("tls", key), folder / name)
        for key, name in (("ca", given.ca), ("cert", given.cert), ("key", given.key))
        if name is not None
    }
    return GRPCCredentialsTLS(
        cacert=pem["ca"],
        cert=pem.get("cert"),
        private_key=pem.get("key"),
        target_name_override=given.server_name or "",
    )


def _pem(loc: tuple[str, str], path: Path) -> Path:
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidValueError(loc, f"{path}: {why}; legal: a PEM file") from None
    if b"-----BEGIN " not in content:
        raise InvalidValueError(loc, f"{path} holds no PEM; legal: a PEM file")
    return path


def _guard(given: FabricFile, topology: Topology) -> HostGuard:
    numbers = {"tcp": TCP, "udp": UDP}
    flows: list[LevelFlow] = []
    known: set[tuple[str, str, int, int, int]] = set()
    for i, flow in enumerate(given.level_flows):
        for key, host in (("src", flow.src), ("dst", flow.dst)):
            if host not in topology.host:
                raise InvalidValueError(
                    ("level_flows", i, key), f"{host!r} is no host; legal: a name in topology.hosts"
                )
        if flow.src == flow.dst:
            raise InvalidValueError(
                ("level_flows", i, "dst"), f"{flow.dst!r} is src too; legal: another host"
            )
        if is_ipv6(topology.host[flow.src].ip) != is_ipv6(topology.host[flow.dst].ip):
            words = f"{flow.dst!r} has no address of {flow.src!r}'s family; legal: both IPv4 or both IPv6"
            raise InvalidValueError(("level_flows", i, "dst"), words)
        made = LevelFlow(flow.src, flow.dst, numbers[flow.protocol], flow.src_port, flow.dst_port)
        if any(way in known for way in made.ways):
            raise InvalidValueError(("level_flows", i), "the same flow as one above; legal: each once")
        known.update(made.ways)
        flows.append(made)
    return HostGuard(given.strays, tuple(flows))


def _targets(given: FabricFile, topology: Topology, tls: GRPCCredentialsTLS | None) -> Mapping[str, Target]:
    wanted = topology.switch
    legal = listed(list(wanted))
    missing = next((name for name in wanted if name not in given.switches), None)
    if missing is not None:
        raise InvalidValueError(
            ("switches", missing), f"missing; legal: each switch of the topology: {legal}"
        )
    for name, item in given.switches.items():
        if name not in wanted:
            raise InvalidValueError(("switches", name), f"no switch of the topology; legal: {legal}")
        if item.device_id != wanted[name].device_id:
            raise InvalidValueError(
                ("switches", name, "device_id"),
                f"{item.device_id} is not the topology's; legal: {wanted[name].device_id}",
            )
    return {name: Target(item.address, item.device_id, tls) for name, item in given.switches.items()}


def _is_address(address: str) -> bool:
    if address.startswith("unix:"):
        return address.startswith("unix:/")
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdigit() and 0 < int(port) < 65536
