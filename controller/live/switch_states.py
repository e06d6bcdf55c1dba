# SPDX-License-Identifier: Apache-2.0
"""What the core does when a switch comes into service, is lost, or reports its ports."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from controller.live.link_state import LinkState, PortTransition
from controller.live.messages import PortsSeen, SwitchLost, SwitchReady
from controller.live.notices import Notice, PortChanged, SwitchDown, SwitchUp
from topo.graph import Topology

log = logging.getLogger(__name__)


def switch_changed(
    now_ns: int, links: LinkState, topology: Topology, item: PortsSeen | SwitchReady | SwitchLost
) -> Iterator[Notice]:
    """Take the input into the state of the links. Yields the notices for Ryu applications."""
    match item:
        case PortsSeen(switch, ports):
            yield from port_changes(now_ns, links.ports_seen(switch, ports))
        case SwitchReady(switch, ports):
            yield from port_changes(now_ns, links.switch_ready(now_ns, switch, ports))
            yield SwitchUp(now_ns, switch, topology.switch[switch].device_id)
            log.info("switch %s is in service: its pipeline and tables are written", switch)
        case SwitchLost(switch, why):
            links.switch_lost(now_ns, switch)
            yield SwitchDown(now_ns, switch, why)
            log.error("switch %s: the session is lost (%s); its entries stay in force", switch, why)


def port_changes(now_ns: int, moves: Iterable[PortTransition]) -> Iterator[Notice]:
    """The notices for ports that went up or down."""
    for move in moves:
        yield PortChanged(now_ns, move.switch, move.port, move.peer, move.up)
