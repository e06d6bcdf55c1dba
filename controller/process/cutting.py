# SPDX-License-Identifier: Apache-2.0
"""The cuts of emulated cables that the REST API offers, on a running controller."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from controller.northbound.cut_routes import CutLinkOut
from controller.northbound.problems import OperationError
from controller.process.cable_orders import CableOrders
from controller.process.draining import Cable, cables_of
from controller.wire.agent_pb2 import CableOrder
from topo.graph import Topology

PATIENCE_S = 10.0
"""Host time that a request waits for the fabric's clock. Chosen: agents report every half a second of it."""


class RunningCuts:
    """The `CutOperations` of a running controller. Use it on the controller's event loop.

    `orders` go to the embedded fabric; None: the fabric is another one.
    """

    def __init__(
        self, topology: Topology, orders: CableOrders | None, patience_s: float = PATIENCE_S
    ) -> None:
        self._topology = topology
        self._orders = orders
        self._patience_s = patience_s
        self._cut: frozenset[Cable] = frozenset()
        self._lock = asyncio.Lock()

    def cuts(self) -> Sequence[str]:
        """The cables that are cut, sorted."""
        return sorted("-".join(cable) for cable in self._cut)

    async def cut(self, name: str) -> CutLinkOut:
        """Cut the cables that a name means. Raises OperationError."""
        orders = self._emulated()
        cables = cables_of(self._topology, name)
        async with self._lock:
            await self._ask(orders, cables - self._cut, cut=True)
            self._cut |= cables
        return CutLinkOut(name=name, cables=tuple(sorted("-".join(cable) for cable in cables)))

    async def mend(self, name: str) -> None:
        """Mend those of the cables that are cut. Raises OperationError."""
        orders = self._emulated()
        cables = cables_of(self._topology, name)
        async with self._lock:
            if not cables & self._cut:
                raise OperationError(404, f"{name} is not cut; legal: {', '.join(self.cuts()) or 'none'}")
            await self._ask(orders, cables & self._cut, cut=False)
            self._cut -= cables

    def _emulated(self) -> CableOrders:
        if self._orders is None:
            raise OperationError(
                409, "these cables are real, or emulated by the kernel; legal: in the embedded fabric"
            )
        return self._orders

    async def _ask(self, orders: CableOrders, cables: frozenset[Cable], *, cut: bool) -> None:
        ends = [self._topology.cables[cable][0] for cable in sorted(cables)]
        if not ends:
            return
        try:
            asked = [CableOrder(switch=switch, port=port, cut=cut) for switch, port in ends]
            await orders.ask(asked, self._patience_s)
        except TimeoutError:
            raise OperationError(
                503, "the fabric's time stands still, so nothing was changed: try again when it goes on"
            ) from None
