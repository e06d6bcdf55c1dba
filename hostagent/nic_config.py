# SPDX-License-Identifier: Apache-2.0
"""The keys of the agent's configuration for its NIC, or for its NICs on several rails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from hostagent.nic.roce import ip_bytes
from polyrhythm_files import InvalidValueError, Loc, Section, finite

DEFAULT_PORT_MAP = "/run/polyrhythm/ports"


class NicSettings(Section, frozen=True, kw_only=True):
    """The NIC of this host, and how flows are pinned to source ports."""

    driver: Annotated[
        Literal["auto", "verbs", "shim", "udp", "none"],
        Meta(description="how flows are pinned; auto: the first of shim, verbs and none that works here"),
    ] = "auto"
    device: Annotated[
        str,
        Meta(description="RDMA device under /sys/class/infiniband; empty: any for verbs, and no counters"),
    ] = ""
    port: Annotated[int, Meta(ge=1, le=255, description="port of the RDMA device")] = 1
    interface: Annotated[
        str,
        Meta(description="network interface: udp sends on it; others without a device count its bytes"),
    ] = ""
    port_map: Annotated[str, Meta(description="the port map that the shim reads")] = DEFAULT_PORT_MAP
    rate_mbps: Annotated[
        float, finite(0.1, 1000000.0, what="line rate of the udp driver, headers included")
    ] = 100.0
    mtu: Annotated[
        int, Meta(ge=256, le=4096, description="payload bytes of a packet of the udp driver, in steps of 4")
    ] = 1024
    retransmit_ms: Annotated[
        float,
        finite(0.0, 60000.0, what="first time-out of the udp driver; 0: 160 frame times, at least 50 ms"),
    ] = 0.0

    def __post_init__(self) -> None:
        if self.mtu % 4:
            raise InvalidValueError(("mtu",), f"{self.mtu} is wrong; legal: a multiple of 4")


class RailSettings(Section, frozen=True, kw_only=True):
    """One NIC of a host that has several, one on each rail."""

    host: Annotated[str, Meta(description="the NIC's name in the fabric's description")]
    ip: Annotated[str, Meta(description="its RoCE address there")]
    device: Annotated[str, Meta(description="its RDMA device, as nic.device")] = ""
    port: Annotated[int, Meta(ge=1, le=255, description="port of the RDMA device")] = 1
    interface: Annotated[str, Meta(description="its network interface, as nic.interface")] = ""


def check_rails(rails: Sequence[RailSettings]) -> None:
    """Each rail has a name and an address of its own, all of one family. Raises InvalidValueError."""
    for index, rail in enumerate(rails):
        loc: Loc = ("rails", index)
        check_address(rail.ip, (*loc, "ip"))
        for key in ("host", "ip"):
            if getattr(rail, key) in [getattr(other, key) for other in rails[:index]]:
                raise InvalidValueError(
                    (*loc, key), f"{getattr(rail, key)!r} is another rail's too; legal: its own"
                )
        if (":" in rail.ip) != (":" in rails[0].ip):
            raise InvalidValueError(
                (*loc, "ip"), f"{rail.ip!r} and {rails[0].ip!r}; legal: addresses of one family"
            )


def check_address(text: str, loc: Loc) -> None:
    """Check an IPv4 or IPv6 address at `loc`. Raises InvalidValueError."""
    try:
        ip_bytes(text)
    except ValueError as error:
        raise InvalidValueError(loc, str(error)) from None
