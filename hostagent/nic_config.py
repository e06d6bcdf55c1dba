# SPDX-License-Identifier: Apache-2.0
"""The keys of the agent's configuration for its NIC, or for its NICs on several rails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from controller.wire.protocol import CONNECTS
from hostagent.nic.roce import ip_bytes
from polyrhythm_files import InvalidValueError, Loc, Section, finite

MOST_PORT_RANGES = 16
"""As MOST_RANGES of the socket shim, which refuses a map with more in a line."""
DEFAULT_PORT_MAP = "/run/polyrhythm/ports"


class NicSettings(Section, frozen=True, kw_only=True):
    """The NIC of this host, and how flows are pinned to source ports."""

    driver: Annotated[
        Literal["auto", "verbs", "shim", "udp", "sockets", "none"],
        Meta(
            description="how flows are pinned; auto: the first of shim, verbs, sockets (with sockets.map) "
            "and none that works here"
        ),
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
        finite(0.0, 60000.0, what="first time-out of the udp driver; 0: 320 frame times, at least 50 ms"),
    ] = 0.0

    def __post_init__(self) -> None:
        if self.mtu % 4:
            raise InvalidValueError(("mtu",), f"{self.mtu} is wrong; legal: a multiple of 4")


class SocketSettings(Section, frozen=True, kw_only=True):
    """TCP and UDP connections of training processes, which the socket shim gives ports and DSCPs."""

    map: Annotated[
        str,
        Meta(
            description="the socket map that the shim reads; the agent takes the shim's reports beside it, "
            "at the same path and .sock; empty: connections are not steered"
        ),
    ] = ""
    ports: Annotated[
        str,
        Meta(
            description="local ports that steered connections may take, LOW-HIGH,PORT,...; empty: all of the "
            "kernel's ip_local_port_range, beyond which none works"
        ),
    ] = ""
    udp: Annotated[bool, Meta(description="steer connected UDP sockets too, not only TCP")] = False
    pace_mbps: Annotated[
        float,
        Meta(
            ge=0,
            le=1e6,
            description="the most payload (Mbit/s) that each steered TCP connection sends; for hosts whose "
            "interface is faster than their cable, as in virtual machines and namespaces: their bursts fill "
            "the leaf's queue, which marks them; 0: any",
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        ranges = [part.partition("-") for part in self.ports.split(",")] if self.ports else []
        for low, dash, high in ranges:
            ends = (low, high if dash else low)
            legal = all(end.isdecimal() and len(end) <= 5 and 0 < int(end) < 1 << 16 for end in ends)
            if not legal or int(ends[0]) > int(ends[1]):
                text = f"{low}{dash}{high}"
                raise InvalidValueError(
                    ("ports",), f"{text!r} is wrong; legal: ports from 1 to 65535, PORT or LOW-HIGH"
                )
        if len(ranges) > MOST_PORT_RANGES:
            raise InvalidValueError(("ports",), f"{len(ranges)} ranges; legal: at most {MOST_PORT_RANGES}")
        if self.map and any(c.isspace() for c in self.map):
            raise InvalidValueError(("map",), f"{self.map!r} is wrong; legal: a path without white space")

    @property
    def protocols(self) -> tuple[int, ...]:
        """The IP protocols of which connections are steered."""
        return CONNECTS[: 2 if self.udp else 1] if self.map else ()


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
