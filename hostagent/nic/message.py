# SPDX-License-Identifier: Apache-2.0
"""A message that a queue pair sends."""

from __future__ import annotations

from collections.abc import Callable

from hostagent.nic.roce import SEND_LAST, SEND_ONLY


class Message:
    """A posted message: packets `first` to `end` - 1, counted from the queue pair's first PSN without
    wrapping.
    """

    __slots__ = ("end", "first", "on_complete", "rate_bps", "size", "tail_opcode", "tail_pad", "tail_payload")

    def __init__(
        self, first: int, size: int, payload: bytes, on_complete: Callable[[], None], rate_bps: int
    ) -> None:
        mtu = len(payload)
        count = -(-size // mtu)
        tail = size - (count - 1) * mtu
        self.first = first
        self.end = first + count
        self.size = size
        self.on_complete = on_complete
        self.rate_bps = rate_bps
        self.tail_opcode = SEND_ONLY if count == 1 else SEND_LAST
        self.tail_pad = -tail % 4
        self.tail_payload = payload[: tail + self.tail_pad]
