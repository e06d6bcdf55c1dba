# SPDX-License-Identifier: Apache-2.0
"""How a controller becomes the primary of a switch, and when it waits for another one (P4Runtime, 5.3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from finsy.grpcutil import GRPCStatusCode
from finsy.p4client import P4ClientError
from finsy.proto import U128, p4r

from controller.southbound.election_ids import ALONE, ElectionIds, Outbids

log = logging.getLogger(__name__)

# The lowest id with which a controller can be primary.
LOWEST = 1

Send = Callable[[p4r.StreamMessageRequest], Awaitable[None]]
Receive = Callable[[], Awaitable[p4r.StreamMessageResponse]]


class Arbitration:
    """The election of one switch, as one controller takes part in it, session after session.

    A controller that may not outbid others first asks as a backup, with election id 0, who is primary. Tools
    like p4runtime-shell bid with ids below ALONE, and are outbid in any case.
    """

    def __init__(self, name: str, device_id: int) -> None:
        self.election_id = ElectionIds().first
        self._name = name
        self._device_id = device_id
        self._ids = ElectionIds()
        self._won = 0
        self._asks_with = 0

    def bid_with(self, ids: ElectionIds) -> None:
        """Set the election ids of this controller's bids."""
        self._ids = ids
        self.election_id = ids.first

    def outdate_writes(self) -> None:
        """Bid with a higher id next time: a write of the last session may still be on its way to the switch,
        which refuses it once the primary has another id.

        Raises:
            DeposedError: the range of ids is used up.
        """
        if self._won == self.election_id:
            self.election_id = self._ids.at_least(self._won + 1)

    async def win(
        self, send: Send, receive: Receive, patience_s: float | None, waits: Callable[[str], None]
    ) -> None:
        """Wait until this controller is the primary. The switch has `patience_s` for each answer (None: any).

        While another controller is the primary, this one does not bid, and `waits(why)` is called once.

        Raises:
            DeposedError: the range of ids is used up.
            TimeoutError: the switch does not answer.
        """
        outbids = self._ids.outbids is Outbids.ALWAYS or (self._ids.outbids is Outbids.ONCE and not self._won)
        bid = self.election_id if outbids else self._asks_with
        told = quiet = False
        await self._send(send, bid)
        while True:
            try:
                async with asyncio.timeout(patience_s):
                    message = await self._arbitrated(receive)
            except TimeoutError:
                if not quiet:
                    raise
                # An answer to this shows that the switch still lives.
                quiet = False
                await self._send(send, bid)
                continue
            code, highest = message.status.code, U128.decode(message.election_id)
            if code == GRPCStatusCode.OK and bid > LOWEST:
                self._won = bid
                return
            # A switch without the rule for id 0 may make this controller primary with it.
            live = code not in (GRPCStatusCode.OK, GRPCStatusCode.NOT_FOUND)
            if live and not outbids and highest >= ALONE and highest != self._won:
                bid = self._asks_with
                if not told:
                    waits(
                        f"another controller is its primary with election id {highest}; this one waits until "
                        "that one leaves, unless it is started with --take-over"
                    )
                told = quiet = True
                continue
            if live and bid > highest:
                # The answer to an earlier bid.
                continue
            # Without a primary, a switch takes no id below the highest one that it has seen. A primary with
            # the id of this controller is its own session, which broke without the switch noticing.
            bid = self.election_id = self._ids.at_least(
                max(self.election_id, highest + 1 if live else highest)
            )
            await self._send(send, bid)

    async def _arbitrated(self, receive: Receive) -> p4r.MasterArbitrationUpdate:
        while True:
            try:
                message = await receive()
            except P4ClientError as error:
                if error.code == GRPCStatusCode.INVALID_ARGUMENT and not self._won and self._asks_with == 0:
                    # A server from before P4Runtime 1.3 may refuse id 0.
                    self._asks_with = LOWEST
                if error.is_election_id_used:
                    # Another session uses this id, perhaps an old one of this controller.
                    self.election_id = self._ids.at_least(self.election_id + 1)
                raise
            if message.WhichOneof("update") == "arbitration":
                return message.arbitration

    async def _send(self, send: Send, election_id: int) -> None:
        update = p4r.MasterArbitrationUpdate(device_id=self._device_id)
        if election_id:
            update.election_id.CopyFrom(U128.encode(election_id))
        await send(p4r.StreamMessageRequest(arbitration=update))
