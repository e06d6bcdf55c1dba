# SPDX-License-Identifier: Apache-2.0
"""What a scenario file says of congestion marks, and of the kernel's TCP."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from polyrhythm_files import InvalidValueError, Section, finite


class EcnConfig(Section, frozen=True, kw_only=True):
    """How each job queue of a switch marks packets: none below kmin, a part pmax at kmax, all above kmax."""

    kmin: Annotated[int, Meta(ge=0, le=10_000, description="queue length in packets; below kmax")] = 20
    kmax: Annotated[int, Meta(ge=1, le=10_000, description="queue length in packets")] = 60
    pmax: Annotated[float, finite(above=0, most=1, what="part of the packets that is marked at kmax")] = 0.2

    def __post_init__(self) -> None:
        if self.kmin >= self.kmax:
            raise InvalidValueError(("kmin",), f"{self.kmin} is not below kmax; legal: 0 to {self.kmax - 1}")


class TcpEcnConfig(EcnConfig, frozen=True, kw_only=True):
    """The same for ECN-capable TCP."""

    kmin: Annotated[int, Meta(ge=0, le=10_000, description="queue length in packets; below kmax")] = 8
    kmax: Annotated[int, Meta(ge=1, le=10_000, description="queue length in packets")] = 30
    pmax: Annotated[float, finite(above=0, most=1, what="part of the packets that is marked at kmax")] = 1.0


class TcpConfig(Section, frozen=True, kw_only=True):
    """The kernel's TCP of the hosts, with sender: kernel-tcp."""

    ecn: Annotated[
        bool, Meta(description="ask for ECN (tcp_ecn=1 in the network namespace of each host), or refuse it")
    ] = True
    ramp: Annotated[
        TcpEcnConfig, Meta(description="how switches mark it, instead of by the ramp of all other packets")
    ] = TcpEcnConfig()
