# SPDX-License-Identifier: Apache-2.0
"""What switches report, as inputs of the control loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from controller.agents.channels import ChannelCounts
from controller.live.messages import Input, PacketSeen, PortsSeen, SwitchLost, SwitchReady
from controller.southbound.codec import PacketIn


class SwitchInputs:
    """Passes to `put` what switches report, and counts their messages in `channels`.

    `put` takes the node, the channel and the input. `all_ready` is set once every switch has been in service.
    """

    def __init__(self, put: Callable[[str, str, Input], None], channels: ChannelCounts) -> None:
        self.all_ready = asyncio.Event()
        self._put = put
        self._channels = channels
        self._missing: set[str] | None = None

    def expect(self, switches: Iterable[str]) -> None:
        """Set which switches there are."""
        self._missing = set(switches)

    @property
    def missing(self) -> list[str]:
        """The switches that have not been in service yet, sorted."""
        return sorted(self._missing or ())

    def switch_ready(self, name: str, ports: Mapping[int, bool] | None) -> None:
        """A switch is in service."""
        self._put(name, f"session:{name}", SwitchReady(name, ports))
        self._channels.arrived(f"session:{name}")
        self._channels.opened(f"packet_in:{name}")
        self._channels.opened(f"gnmi:{name}")
        if self._missing is not None:
            self._missing.discard(name)
            if not self._missing:
                self.all_ready.set()

    def switch_lost(self, name: str, why: str) -> None:
        """The session with a switch is lost."""
        self._put(name, f"session:{name}", SwitchLost(name, why))
        self._channels.arrived(f"session:{name}")
        self._channels.lost(f"packet_in:{name}")
        self._channels.lost(f"gnmi:{name}")

    def packet_in(self, name: str, packet: PacketIn) -> None:
        """A switch has sent a packet to the controller."""
        seen = PacketSeen(name, packet.ingress_port, packet.reason, packet.egress_port, packet.payload)
        self._put(name, f"packet_in:{name}", seen)
        self._channels.arrived(f"packet_in:{name}")

    def port_states(self, name: str, states: Mapping[int, bool]) -> None:
        """A switch has reported port states by gNMI; `states` maps a port to whether it is up."""
        self._put(name, f"gnmi:{name}", PortsSeen(name, states))
        self._channels.arrived(f"gnmi:{name}")
