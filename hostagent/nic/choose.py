# SPDX-License-Identifier: Apache-2.0
"""Which NIC driver an agent uses: the one it is told, or the best that this host is capable of."""

from __future__ import annotations

from dataclasses import replace

from hostagent.config import Config
from hostagent.loop import HostLoop
from hostagent.nic.dcqcn import DcqcnProfile
from hostagent.nic.roce import OVERHEAD_BYTES
from hostagent.nic.udp import NicError, UdpNic

__all__ = ["NicError", "open_nic"]

_LEAST_RETRANSMIT_NS = 50_000_000
"""A host that others keep busy answers late; a time-out that fires for that sends everything again."""


def open_nic(config: Config, loop: HostLoop) -> UdpNic:
    """The driver that the configuration names.

    Raises NicError for a device, interface or address that is not there.
    """
    return _udp(config, loop)


def _udp(config: Config, loop: HostLoop) -> UdpNic:
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
