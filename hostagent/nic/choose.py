# SPDX-License-Identifier: Apache-2.0
"""The choice of the NIC driver: the configured one, or the first that this host can use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hostagent.config import BUILT_SHIM, Config
from hostagent.counts import ByteSource, interface_counter, port_counter
from hostagent.loop import AgentLoop
from hostagent.nic.dcqcn import DcqcnProfile
from hostagent.nic.external import ExternalNic
from hostagent.nic.port_map import PortMapFile
from hostagent.nic.roce import overhead_bytes
from hostagent.nic.udp import NicError, UdpNic
from polyrhythm_files import InvalidValueError
from polyrhythm_job.verbs import Verbs, VerbsError

log = logging.getLogger(__name__)

_INTERFACES = Path("/sys/class/net")
_LEAST_RETRANSMIT_NS = 50_000_000
"""The least time-out of the udp driver. Chosen: a busy host may answer tens of ms late, and each time-out
would send everything again."""


def verbs_devices() -> list[str]:
    """The RDMA devices that rdma-core finds on this host. Raises VerbsError if it is missing or too old."""
    return Verbs().devices()


def open_nics(
    config: Config, loop: AgentLoop, verbs_devices: Callable[[], list[str]] = verbs_devices
) -> list[UdpNic | ExternalNic]:
    """A driver for each NIC of the host, of the kind that the configuration names; `auto` takes the first of
    shim, verbs, sockets and none that works here.

    `verbs_devices` gives the names of the RDMA devices, and raises VerbsError where the verbs driver cannot
    work. Raises InvalidValueError for a missing device, interface or library, and NicError for an address
    that the udp driver cannot bind.
    """
    configs = config.of_each_nic()
    driver: str = config.nic.driver
    if driver == "udp":
        return _udp_nics(configs, loop)
    for index, each in enumerate(configs):
        try:
            _check_present(each)
        except InvalidValueError as error:
            if config.rails:
                raise InvalidValueError(("rails", index, *error.loc[1:]), error.message) from None
            raise
    why_not = {
        "shim": _why_no_shim(config),
        "verbs": "" if driver in ("none", "sockets") else _why_no_verbs(configs, verbs_devices),
    }
    if driver == "auto":
        driver = next((name for name, why in why_not.items() if not why), "none")
        if driver == "none" and config.sockets.map:
            driver = "sockets"
        if driver == "none":
            log.warning("flows cannot be pinned, all go by ECMP: %s; %s", *why_not.values())
    elif why_not.get(driver):
        raise InvalidValueError(("nic", "driver"), f"{driver}: {why_not[driver]}")
    if driver != "shim":
        return [ExternalNic(driver, each.agent.ip) for each in configs]
    path = Path(config.nic.port_map)
    if not path.parent.is_dir():
        raise InvalidValueError(
            ("nic", "port_map"), f"no directory {path.parent}; systemd creates it (RuntimeDirectory)"
        )
    port_map = PortMapFile(path, loop)
    return [ExternalNic("shim", each.agent.ip, port_map) for each in configs]


def shim_path(config: Config) -> Path:
    """The path of the verbs shim, built or not."""
    return Path(config.nccl.shim) if config.nccl.shim else BUILT_SHIM


def port_folder(config: Config) -> Path:
    """The folder of the RDMA device's port in sysfs."""
    return Path(config.sources.sysfs) / config.nic.device / "ports" / str(config.nic.port)


def byte_counter(config: Config) -> Callable[[], ByteSource] | None:
    """The counter of all bytes that leave this host: of the RDMA device's port, else of the network
    interface.

    None where the configuration names neither. The udp driver counts the bytes of each flow itself.
    """
    if config.nic.device:
        return lambda: port_counter(port_folder(config))
    if config.nic.interface and config.nic.driver != "udp":
        return lambda: interface_counter(_INTERFACES / config.nic.interface)
    return None


def _check_present(config: Config) -> None:
    """Check that the host has a NIC's device or interface. Raises InvalidValueError."""
    if config.nic.device:
        _check_device(config)
    elif config.nic.interface and not (_INTERFACES / config.nic.interface).is_dir():
        legal = ", ".join(sorted(p.name for p in _INTERFACES.iterdir())) if _INTERFACES.is_dir() else "none"
        raise InvalidValueError(
            ("nic", "interface"), f"no interface {config.nic.interface!r}; legal: {legal}"
        )


def _check_device(config: Config) -> None:
    folder = Path(config.sources.sysfs)
    there = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    if config.nic.device not in there:
        names = ", ".join(there) or f"there is none under {folder}"
        raise InvalidValueError(("nic", "device"), f"no RDMA device {config.nic.device!r}; legal: {names}")
    if not port_folder(config).is_dir():
        raise InvalidValueError(("nic", "port"), f"{config.nic.device} has no port {config.nic.port}")


def _why_no_shim(config: Config) -> str:
    if not shim_path(config).is_file():
        return f"no shim at {shim_path(config)}: make shim builds it"
    folder = Path(config.sources.sysfs)
    if not (folder.is_dir() and any(folder.iterdir())):
        return f"no RDMA device under {folder}"
    return ""


def _why_no_verbs(configs: Sequence[Config], verbs_devices: Callable[[], list[str]]) -> str:
    try:
        devices = verbs_devices()
    except VerbsError as error:
        return str(error)
    if not devices:
        return "rdma-core finds no RDMA device"
    missing = [c.nic.device for c in configs if c.nic.device and c.nic.device not in devices]
    return f"rdma-core finds {', '.join(devices)}, not {missing[0]}" if missing else ""


def _udp_nics(configs: Sequence[Config], loop: AgentLoop) -> list[UdpNic | ExternalNic]:
    """Open all or none."""
    opened: list[UdpNic | ExternalNic] = []
    try:
        for each in configs:
            opened.append(_udp(each, loop))
    except NicError:
        for nic in opened:
            nic.close()
        raise
    return opened


def _udp(config: Config, loop: AgentLoop) -> UdpNic:
    settings = config.nic
    rate_bps = int(settings.rate_mbps * 1e6)
    profile = DcqcnProfile.scaled(rate_bps, settings.mtu + overhead_bytes(config.agent.ip))
    configured_ns = int(settings.retransmit_ms * 1e6)
    retransmit_ns = configured_ns or max(_LEAST_RETRANSMIT_NS, profile.retransmit_ns)
    return UdpNic(
        config.agent.host,
        config.agent.ip,
        rate_bps,
        loop=loop,
        dcqcn=replace(
            profile,
            retransmit_ns=retransmit_ns,
            ack_timeout_ns=max(retransmit_ns, profile.ack_timeout_ns),
            repin_ns=min(retransmit_ns, max(_LEAST_RETRANSMIT_NS, profile.repin_ns)),
            idle_ns=configured_ns or max(_LEAST_RETRANSMIT_NS, profile.idle_ns),
        ),
        mtu=settings.mtu,
        seed=config.training.seed,
        interface=settings.interface,
    )
