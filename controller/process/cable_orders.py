# SPDX-License-Identifier: Apache-2.0
"""What an operator asks of the cables of the embedded fabric, until the fabric has it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from controller.wire.agent_pb2 import CableOrder


class CableOrders:
    """The orders that go to the fabric with the next settlement of its clock. Use it on one event loop."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Sequence[CableOrder], asyncio.Future[None]]] = []

    async def ask(self, orders: Sequence[CableOrder], patience_s: float) -> None:
        """Send orders, and wait until they have left. They land one control delay later.

        Raises TimeoutError after `patience_s` of host time; the orders are withdrawn then.
        """
        asked = orders, asyncio.get_running_loop().create_future()
        self._waiting.append(asked)
        try:
            async with asyncio.timeout(patience_s):
                await asked[1]
        finally:
            if asked in self._waiting:
                self._waiting.remove(asked)

    def take(self) -> list[CableOrder]:
        """All orders that wait, in the order in which they came. They leave now."""
        # A future that is done was given up at this moment.
        waiting, self._waiting = [asked for asked in self._waiting if not asked[1].done()], []
        for _, left in waiting:
            left.set_result(None)
        return [order for orders, _ in waiting for order in orders]
