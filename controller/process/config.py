# SPDX-License-Identifier: Apache-2.0
"""The fabric's description, which whoever starts the controller writes: one JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finsy.grpcutil import GRPCCredentialsTLS

from controller.agents.translate import ANSWER_DEADLINE_NS
from controller.model import REALIGN, REALIGN_PCT
from controller.southbound.desired import FRAME_BYTES, STRAY_ACTIONS, EcnProfile
from controller.southbound.fleet import Target
from polyrhythm_files import ConfigError
from topo.files import read_topology
from topo.graph import Topology

_REQUIRED = {"name", "clock", "control_delay_ns", "topology", "switches", "ecn"}
_DEFAULTS: Mapping[str, Any] = {
    "verify": True,
    "scenario": "",
    "poll_ms": 100,
    "elephant_bytes": 10_000,
    "strays": STRAY_ACTIONS[0],
    "read_back_ms": 60_000,
    "grace_ms": 1_000,
    "tls": None,
    "profile": "measured",
    "profile_window_ms": 30_000,
    "realign_pct": REALIGN_PCT,
    "answer_deadline_ms": 10,
}
CLOCKS = ("embedded", "host")
PROFILES = ("measured", "declared")


@dataclass(frozen=True, slots=True)
class FabricDescription:
    """A fabric as the controller is told of it. A flow below `elephant_bytes` an iteration goes by ECMP;
    `strays` (one of STRAY_ACTIONS) is what becomes of what hosts may not say. Switches are read back every
    `read_back_ns`, and count as lost when their session is gone for `grace_ns`. `measured`: jobs are
    profiled, each for `profile_window_ns` at most; otherwise they are what they declare. A phase later
    than `realign` of its period waits for its next slot. A flow whose agent has no answer within
    `answer_deadline_ns` goes by ECMP."""

    name: str
    clock: str
    topology: Topology
    targets: Mapping[str, Target]
    ecn: EcnProfile
    verify: bool
    scenario: str
    poll_ns: int
    elephant_bytes: int
    strays: str = STRAY_ACTIONS[0]
    read_back_ns: int = 60_000_000_000
    grace_ns: int = 1_000_000_000
    measured: bool = True
    profile_window_ns: int = 30_000_000_000
    realign: float = REALIGN
    answer_deadline_ns: int = ANSWER_DEADLINE_NS


def load_fabric(path: Path) -> FabricDescription:
    """Read and check a description.

    Raises:
        ConfigError: the file is not readable, no JSON, or says something impossible.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    try:
        return _fabric(data, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _fabric(data: object, folder: Path) -> FabricDescription:
    if not isinstance(data, dict):
        raise ConfigError("an object is needed")
    legal = sorted(_REQUIRED | set(_DEFAULTS))
    for key in data:
        if key not in legal:
            raise ConfigError(f"{key}: unknown key; legal: {', '.join(legal)}")
    missing = sorted(_REQUIRED - set(data))
    if missing:
        raise ConfigError(f"missing: {', '.join(missing)}")
    data = {**_DEFAULTS, **data}
    if data["clock"] not in CLOCKS:
        raise ConfigError(f"clock: {data['clock']!r} is none of {', '.join(CLOCKS)}")
    if data["strays"] not in STRAY_ACTIONS:
        raise ConfigError(f"strays: {data['strays']!r} is none of {', '.join(STRAY_ACTIONS)}")
    if data["profile"] not in PROFILES:
        raise ConfigError(f"profile: {data['profile']!r} is none of {', '.join(PROFILES)}")
    if not isinstance(data["verify"], bool):
        raise ConfigError("verify: true or false is needed")
    topology = read_topology(data["topology"], "topology", str(data["name"]))
    _whole(data, "control_delay_ns", 0)
    return FabricDescription(
        name=str(data["name"]),
        clock=data["clock"],
        topology=topology,
        targets=_targets(data["switches"], topology, _tls(data["tls"], folder)),
        ecn=_ecn(data["ecn"]),
        verify=data["verify"],
        scenario=str(data["scenario"]),
        poll_ns=_whole(data, "poll_ms", 1) * 1_000_000,
        elephant_bytes=_whole(data, "elephant_bytes", 0),
        strays=data["strays"],
        read_back_ns=_whole(data, "read_back_ms", 1) * 1_000_000,
        grace_ns=_whole(data, "grace_ms", 0) * 1_000_000,
        measured=data["profile"] == "measured",
        profile_window_ns=_whole(data, "profile_window_ms", 1) * 1_000_000,
        realign=_percent(data, "realign_pct") / 100,
        answer_deadline_ns=_deadline(data["answer_deadline_ms"]),
    )


def _tls(data: object, folder: Path) -> GRPCCredentialsTLS | None:
    """The certificates for sessions with switches; files are relative to the description's folder."""
    if data is None:
        return None
    legal = {"ca", "cert", "key", "server_name"}
    if not isinstance(data, dict) or set(data) - legal or "ca" not in data:
        raise ConfigError("tls: an object with ca is needed, and cert, key and server_name at will")
    if ("cert" in data) != ("key" in data):
        raise ConfigError("tls: cert and key belong together; give both or none")
    for key, value in data.items():
        if not isinstance(value, str) or not value:
            raise ConfigError(f"tls.{key}: a text is needed, not {value!r}")
    pem = {key: _pem(f"tls.{key}", folder / data[key]) for key in ("ca", "cert", "key") if key in data}
    return GRPCCredentialsTLS(
        cacert=pem["ca"],
        cert=pem.get("cert"),
        private_key=pem.get("key"),
        target_name_override=data.get("server_name", ""),
    )


def _pem(where: str, path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{where}: {path}: {error.strerror}") from None
    if b"-----BEGIN " not in content:
        raise ConfigError(f"{where}: {path} holds no PEM")
    return content


def _targets(data: object, topology: Topology, tls: GRPCCredentialsTLS | None) -> Mapping[str, Target]:
    if not isinstance(data, dict) or set(data) != set(topology.switch):
        names = ", ".join(topology.switch)
        raise ConfigError(f"switches: an object with a key for each switch is needed: {names}")
    targets = {}
    for name, item in data.items():
        if not isinstance(item, dict) or set(item) != {"address", "device_id"}:
            raise ConfigError(f"switches.{name}: an object with address and device_id is needed")
        if not _is_address(str(item["address"])):
            raise ConfigError(f"switches.{name}.address: {item['address']!r} is no host:port or unix:/PATH")
        device = _whole(item, "device_id", 1)
        if device != topology.switch[name].device_id:
            raise ConfigError(
                f"switches.{name}.device_id: {device} is not the topology's {topology.switch[name].device_id}"
            )
        targets[name] = Target(str(item["address"]), device, tls)
    return targets


def _is_address(address: str) -> bool:
    if address.startswith("unix:"):
        return address.startswith("unix:/")
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdigit() and 0 < int(port) < 65536


def _ecn(data: object) -> EcnProfile:
    if not isinstance(data, dict) or set(data) - {"frame_bytes"} != {"kmin", "kmax", "pmax"}:
        raise ConfigError("ecn: an object with kmin, kmax and pmax is needed, and frame_bytes at will")
    data = {"frame_bytes": FRAME_BYTES, **data}
    pmax = data["pmax"]
    if not isinstance(pmax, int | float) or isinstance(pmax, bool):
        raise ConfigError("ecn.pmax: a number from 0 to 1 is needed")
    try:
        return EcnProfile(
            _whole(data, "kmin", 0), _whole(data, "kmax", 1), float(pmax), _whole(data, "frame_bytes", 1)
        )
    except ValueError as error:
        raise ConfigError(f"ecn: {error}") from None


def _percent(item: Mapping[str, Any], key: str) -> float:
    value = item[key]
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 50:
        raise ConfigError(f"{key}: a number above 0 and up to 50 is needed, not {value!r}")
    return float(value)


def _deadline(value: object) -> int:
    """In ns; the bounds are those of an agent's own deadline."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.1 <= value <= 1000:
        raise ConfigError(f"answer_deadline_ms: a number from 0.1 to 1000 is needed, not {value!r}")
    return round(value * 1e6)


def _whole(item: Mapping[str, Any], key: str, least: int) -> int:
    value = item[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{key}: a whole number from {least} is needed, not {value!r}")
    return value
