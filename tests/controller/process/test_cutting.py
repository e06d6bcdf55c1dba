# SPDX-License-Identifier: Apache-2.0
"""Cuts of cables: which cables a name means, what goes to the fabric, and what is refused."""

import asyncio

import pytest
from fake_source import TOPOLOGY

from controller.northbound.problems import OperationError
from controller.process.cable_orders import CableOrders
from controller.process.cutting import RunningCuts
from controller.wire.agent_pb2 import CableOrder

CABLE = "-".join(sorted(next(iter(c for c in TOPOLOGY.cables if set(c) <= TOPOLOGY.switch.keys()))))


def refused(work: object) -> tuple[int, str]:
    with pytest.raises(OperationError) as error:
        asyncio.run(work)
    return error.value.code, str(error.value)


def test_a_cable_is_cut_once_and_mended_once() -> None:
    async def work() -> list[tuple[str, int, bool]]:
        orders, left = CableOrders(), []
        cuts = RunningCuts(TOPOLOGY, orders)

        async def tick() -> None:
            while True:
                left.extend((o.switch, o.port, o.cut) for o in orders.take())
                await asyncio.sleep(0)

        ticks = asyncio.create_task(tick())
        assert (await cuts.cut(CABLE)).cables == (CABLE,)
        await cuts.cut("-".join(reversed(CABLE.split("-"))))
        assert cuts.cuts() == [CABLE]
        await cuts.mend(CABLE)
        assert cuts.cuts() == []
        ticks.cancel()
        return left

    cut, mended = asyncio.run(work())
    (end, _) = TOPOLOGY.cables[tuple(CABLE.split("-"))]
    assert cut == (*end, True)
    assert mended == (*end, False)


def test_what_cannot_be_cut_is_refused() -> None:
    host = TOPOLOGY.hosts[0]
    emulated = RunningCuts(TOPOLOGY, CableOrders(), patience_s=0.01)
    assert refused(RunningCuts(TOPOLOGY, None).cut(CABLE))[0] == 409
    for name in ("nowhere", f"{host.name}-{host.leaf}", host.leaf, ""):
        assert refused(emulated.cut(name))[0] == 404
    status, words = refused(emulated.mend(CABLE))
    assert (status, words) == (404, f"{CABLE} is not cut; legal: none")
    # No tick takes the orders.
    orders = CableOrders()
    stopped = RunningCuts(TOPOLOGY, orders, patience_s=0.01)
    assert refused(stopped.cut(CABLE))[0] == 503
    assert stopped.cuts() == []
    assert orders.take() == []


def test_an_order_that_is_given_up_while_a_tick_takes_it_is_not_sent() -> None:
    async def work() -> list[object]:
        orders = CableOrders()
        asked = asyncio.create_task(orders.ask((CableOrder(switch="leaf1"),), patience_s=60))
        await asyncio.sleep(0)
        asked.cancel()
        return orders.take()

    assert asyncio.run(work()) == []
