# SPDX-License-Identifier: Apache-2.0
"""Who becomes the primary of a switch: against a served switch, and against scripted answers of others."""

from __future__ import annotations

import asyncio

import pytest
from control_rig import on_loop
from finsy.grpcutil import GRPCStatusCode
from finsy.proto import U128, p4r

from controller.southbound.arbitration import Arbitration
from controller.southbound.election_ids import ALONE, DeposedError, ElectionIds, Outbids

OK, PRIMARY, NOBODY = GRPCStatusCode.OK, GRPCStatusCode.ALREADY_EXISTS, GRPCStatusCode.NOT_FOUND


class Switch:
    """A switch that answers each bid by a function of (its id, the number of the bid)."""

    def __init__(self, answer):
        self.answer, self.bids, self.said = answer, [], []
        self.queue = asyncio.Queue()

    async def send(self, message):
        self.bids.append(U128.decode(message.arbitration.election_id))
        reply = self.answer(self.bids[-1], len(self.bids))
        if reply is not None:
            self.notify(*reply)

    def notify(self, code, highest):
        update = p4r.MasterArbitrationUpdate(election_id=U128.encode(highest))
        update.status.code = code.value
        self.queue.put_nowait(p4r.StreamMessageResponse(arbitration=update))

    async def win(self, arbitration, patience_s=5.0):
        async with asyncio.timeout(20):
            await arbitration.win(self.send, self.queue.get, patience_s, self.said.append)


def free(bid, _):
    return (OK, bid) if bid else (NOBODY, 0)


def test_without_a_primary_it_asks_as_a_backup_and_bids():
    switch = Switch(free)
    on_loop(switch.win(Arbitration("s", 1)))
    assert switch.bids == [0, ALONE]
    assert switch.said == []


def test_a_tool_with_a_low_id_is_outbid():
    switch = Switch(lambda bid, _: (OK, bid) if bid > 5 else (PRIMARY, 5))
    on_loop(switch.win(Arbitration("s", 1)))
    assert switch.bids == [0, ALONE]


def test_another_controller_is_waited_for_until_it_leaves():
    switch = Switch(lambda bid, _: (OK, bid) if bid else (PRIMARY, 1234))

    async def body():
        waiting = asyncio.create_task(switch.win(Arbitration("s", 1), patience_s=0.01))
        while len(switch.bids) < 4:
            await asyncio.sleep(0.01)
        # It has asked again and again whether the switch still lives, and has bid nothing.
        assert set(switch.bids) == {0}
        switch.notify(NOBODY, 1234)
        await waiting

    on_loop(body())
    assert switch.bids[-1] == 1234
    [why] = switch.said
    assert "primary with election id 1234; this one waits" in why
    assert "--take-over" in why


def test_a_silent_switch_is_not_waited_for():
    with pytest.raises(TimeoutError):
        on_loop(Switch(lambda *_: None).win(Arbitration("s", 1), patience_s=0.01))
    answers_once = Switch(lambda _, n: (PRIMARY, 1234) if n == 1 else None)
    with pytest.raises(TimeoutError):
        on_loop(answers_once.win(Arbitration("s", 1), patience_s=0.01))


def test_it_takes_over_at_its_first_session_only():
    arbitration = Arbitration("s", 1)
    arbitration.bid_with(ElectionIds(outbids=Outbids.ONCE))
    switch = Switch(lambda bid, _: (OK, bid) if bid > 1234 else (PRIMARY, 1234))
    on_loop(switch.win(arbitration))
    assert switch.bids == [ALONE, 1235]
    # It is deposed by a third one, and connects again.
    later = Switch(lambda bid, _: (PRIMARY, 2000))

    async def body():
        waiting = asyncio.create_task(later.win(arbitration))
        while not later.said:
            await asyncio.sleep(0.01)
        waiting.cancel()

    on_loop(body())
    assert later.bids == [0]


def test_its_own_broken_session_is_outbid():
    arbitration = Arbitration("s", 1)
    on_loop(Switch(free).win(arbitration))
    # The switch has not noticed that the session with id 1000 broke.
    again = Switch(lambda bid, _: (OK, bid) if bid > ALONE else (PRIMARY, ALONE))
    on_loop(again.win(arbitration))
    assert again.bids == [0, ALONE + 1]


def test_a_leader_always_bids_within_its_range():
    arbitration = Arbitration("s", 1)
    ids = ElectionIds.of_leader(1, 7)
    arbitration.bid_with(ids)
    switch = Switch(lambda bid, _: (OK, bid) if bid > ids.first else (PRIMARY, ids.first))
    on_loop(switch.win(arbitration))
    assert switch.bids == [ids.first, ids.first + 1]
    with pytest.raises(DeposedError):
        on_loop(Switch(lambda *_: (PRIMARY, ids.last + 5)).win(arbitration))


def test_a_server_that_makes_id_0_primary_gets_a_real_bid():
    switch = Switch(lambda bid, _: (OK, bid))
    on_loop(switch.win(Arbitration("s", 1)))
    assert switch.bids == [0, ALONE]
