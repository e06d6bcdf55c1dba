# SPDX-License-Identifier: Apache-2.0
"""Which NIC driver an agent uses: the one it is told, or the best that this host is capable of."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hostagent.config import BUILT_SHIM, Config
from hostagent.counts import ByteSource, interface_counter, port_counter
from hostagent.loop import AgentLoop
from hostagent.nic.dcqcn import DcqcnProfile
from hostagent.nic.external import ExternalNic
from hostagent.nic.roce import OVERHEAD_BYTES
from hostagent.nic.udp import NicError, UdpNic
from hostagent.nic.verbs import Verbs, VerbsError

log = logging.getLogger(__name__)

_INTERFACES = Path("/sys/class/net")
_LEAST_RETRANSMIT_NS = 50_000_000
"""A host that others keep busy answers late; a time-out that fires for that sends everything again."""


def open_nic(config: Config, loop: AgentLoop) -> UdpNic | ExternalNic:
    """The driver that the configuration names; `auto` takes the first of shim, verbs and none that can.

    Raises NicError for a device, interface, address or library that is not there.
    """
    driver = config.nic.driver
    if driver == "udp":
        return _udp(config, loop)
    if config.nic.device:
        _check_device(config)
    elif config.nic.interface and not (_INTERFACES / config.nic.interface).is_dir():
        legal = ", ".join(sorted(p.name for p in _INTERFACES.iterdir())) if _INTERFACES.is_dir() else "none"
        raise NicError(f"nic.interface: no interface {config.nic.interface!r}; legal: {legal}")
    why_not = {"shim": _why_no_shim(config), "verbs": "" if driver == "none" else _why_no_verbs(config)}
    if driver == "auto":
        driver = next((name for name, why in why_not.items() if not why), "none")
        if driver == "none":
            log.warning("flows cannot be pinned, all go by ECMP: %s; %s", *why_not.values())
    elif why_not.get(driver):
        raise NicError(f"nic.driver {driver}: {why_not[driver]}")
    if driver != "shim":
        return ExternalNic(driver, config.agent.ip, loop)
    path = Path(config.nic.port_map)
    nic = ExternalNic("shim", config.agent.ip, loop, path)
    if not path.parent.is_dir():
        raise NicError(f"nic.port_map: no directory {path.parent}; systemd makes it (RuntimeDirectory)")
    return nic


def shim_path(config: Config) -> Path:
    """Where the verbs shim is, or would be."""
    return Path(config.nccl.shim) if config.nccl.shim else BUILT_SHIM


def port_folder(config: Config) -> Path:
    """The folder of the RDMA device's port in sysfs."""
    return Path(config.sources.sysfs) / config.nic.device / "ports" / str(config.nic.port)


def byte_counter(config: Config) -> Callable[[], ByteSource] | None:
    """What counts the bytes that leave this host for all its jobs together: the RDMA device's port, else the
    network interface; None where neither is named. The udp driver counts each flow by itself."""
    if config.nic.device:
        return lambda: port_counter(port_folder(config))
    if config.nic.interface and config.nic.driver != "udp":
        return lambda: interface_counter(_INTERFACES / config.nic.interface)
    return None


def _check_device(config: Config) -> None:
    folder = Path(config.sources.sysfs)
    there = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    if config.nic.device not in there:
        names = ", ".join(there) or f"there is none under {folder}"
        raise NicError(f"nic.device: no RDMA device {config.nic.device!r}; legal: {names}")
    if not port_folder(config).is_dir():
        raise NicError(f"nic.port: {config.nic.device} has no port {config.nic.port}")


def _why_no_shim(config: Config) -> str:
    if not shim_path(config).is_file():
        return f"no shim at {shim_path(config)}: make shim builds it"
    folder = Path(config.sources.sysfs)
    if not (folder.is_dir() and any(folder.iterdir())):
        return f"no RDMA device under {folder}"
    return ""


def _why_no_verbs(config: Config) -> str:
    try:
        devices = Verbs().devices()
    except VerbsError as error:
        return str(error)
    if not devices:
        return "rdma-core finds no RDMA device"
    wanted = config.nic.device
    return "" if not wanted or wanted in devices else f"rdma-core finds {', '.join(devices)}, not {wanted}"


def _udp(config: Config, loop: AgentLoop) -> UdpNic:
    settings = config.nic
    rate_bps = int(settings.rate_mbps * 1e6)
    profile = DcqcnProfile.scaled(rate_bps, settings.mtu + OVERHEAD_BYTES)
    told_ns = int(settings.retransmit_ms * 1e6)
    retransmit_ns = told_ns or max(_LEAST_RETRANSMIT_NS, profile.retransmit_ns)
    return UdpNic(
        config.agent.host,
        config.agent.ip,
        rate_bps,
        loop=loop,
        dcqcn=replace(profile, retransmit_ns=retransmit_ns),
        mtu=settings.mtu,
        seed=config.training.seed,
        interface=settings.interface,
    )
