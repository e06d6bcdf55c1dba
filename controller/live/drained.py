# SPDX-License-Identifier: Apache-2.0
"""What an operator takes out of use while it works: plans avoid it, and what is on its way still arrives."""

from __future__ import annotations

from dataclasses import dataclass

from controller.southbound.table_writes import FabricCondition
from topo.graph import Topology


@dataclass(frozen=True, slots=True)
class Drained:
    """Cables (`Topology.cables`) and switches that are drained, by name."""

    links: frozenset[tuple[str, str]] = frozenset()
    switches: frozenset[str] = frozenset()

    def on(self, topology: Topology) -> Drained:
        """Those of them that a fabric has."""
        cables, switches = topology.cables, topology.switch
        return Drained(
            frozenset(cable for cable in self.links if cable in cables),
            frozenset(name for name in self.switches if name in switches),
        )

    def beside(self, links: frozenset[tuple[str, str]], switches: frozenset[str]) -> FabricCondition:
        """The condition of a fabric of which these cables and switches have failed."""
        return FabricCondition(
            links | self.links, switches | self.switches, self.links - links, self.switches - switches
        )

    def __str__(self) -> str:
        return (
            ", ".join((*sorted(self.switches), *sorted("-".join(cable) for cable in self.links))) or "nothing"
        )
