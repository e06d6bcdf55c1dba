# SPDX-License-Identifier: Apache-2.0
"""Emulated transfers between a GPU and its NIC, over a PCIe link that jobs of one host share by their levels.

They stand for the GPU's copy engine. Data moves in pieces of about PIECE_NS, and the link is acquired for
each piece. So a job of a lower level waits between two pieces while a job of a higher level has data to move
(CRUX, section 5). Jobs of one level share the link's rate. Only transfers from the GPU to the NIC are
modelled, because PCIe has the same rate in each direction.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Protocol

from hostagent.clock import EventClock
from hostagent.loop import AgentLoop
from polyrhythm_job.pcie import PcieLink
from polyrhythm_job.protocol import NO_LEVEL

log = logging.getLogger(__name__)

PIECE_NS = 2_000_000
MAX_WAIT_S = 1.0
"""The longest wait of a piece for the link. Chosen: a process that hangs with the link delays others by no
more."""

Callback = Callable[[], None]


class PcieTransfer(Protocol):
    """The transfers of one worker over a link. `piece_bytes` is the size that one piece should have."""

    piece_bytes: int

    def copy(self, size: int, then: Callback) -> None:
        """Move a piece after all earlier ones, then call `then`."""

    def set_level(self, level: int) -> None:
        """Use this priority level from the next piece on; 0 is the highest."""

    def close(self) -> None:
        """The worker has ended: pieces that are not moved yet are dropped, and `then` is not called."""


def piece_bytes(rate_bps: int) -> int:
    """The bytes that a link of that rate moves in PIECE_NS."""
    return max(1, rate_bps * PIECE_NS // (8 * 10**9))


class SharedPcieTransfer:
    """Transfers over a link that several processes share through `polyrhythm_job.PcieLink`.

    A thread of its own waits for the link, and calls back on the loop's thread. Raises ValueError for an
    illegal name of the link, OSError if the link cannot be opened.
    """

    def __init__(self, link: str, rate_bps: int, loop: AgentLoop, folder: Path | None = None) -> None:
        self.piece_bytes = piece_bytes(rate_bps)
        self._link = PcieLink(link, folder)
        self._rate_bps = rate_bps
        self._loop = loop
        self._level = NO_LEVEL
        self._pieces: queue.SimpleQueue[tuple[int, Callback] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = Thread(target=self._run, name=f"pcie-{link}", daemon=True)
        self._thread.start()

    def copy(self, size: int, then: Callback) -> None:
        """See PcieTransfer."""
        self._pieces.put((size, then))

    def set_level(self, level: int) -> None:
        """See PcieTransfer."""
        self._level = level

    def close(self) -> None:
        """See PcieTransfer."""
        self._closed = True
        self._pieces.put(None)
        self._thread.join(2 * MAX_WAIT_S)

    def _run(self) -> None:
        late_s = 0.0
        with self._link as link:
            while (piece := self._pieces.get()) is not None and not self._closed:
                size, then = piece
                with link.acquired(self._level, MAX_WAIT_S) as got:
                    if not got:
                        log.warning(
                            "%s: not free within %g s; the piece is moved all the same",
                            link.path.name,
                            MAX_WAIT_S,
                        )
                    lasts_s = size * 8 / self._rate_bps * max(1, link.users())
                    began_s = time.monotonic()
                    # Sleeps end late; the next one is shorter by that.
                    time.sleep(max(0.0, lasts_s - late_s))
                    late_s = min(lasts_s, max(0.0, late_s + time.monotonic() - began_s - lasts_s))
                self._loop.call(then)


class EmulatedPcieLink:
    """A PCIe link of an emulated host, on its clock, with the same rule as between processes."""

    def __init__(self, clock: EventClock, rate_bps: int) -> None:
        self.rate_bps = rate_bps
        self._clock = clock
        self._tickets = 0
        self._using: list[EmulatedPcieTransfer] = []
        self._waiting: list[EmulatedPcieTransfer] = []

    def copier(self) -> EmulatedPcieTransfer:
        """A new worker's transfers over this link."""
        return EmulatedPcieTransfer(self)

    def ask(self, copier: EmulatedPcieTransfer) -> int:
        """Ask for the link for one piece. Returns a ticket; lower tickets go first within a level."""
        self._tickets += 1
        self._waiting.append(copier)
        self._clock.call_at(self._clock.now, self._serve)
        return self._tickets

    def leave(self, copier: EmulatedPcieTransfer) -> None:
        """Release the link after a piece, or because the worker has ended."""
        for group in (self._using, self._waiting):
            if copier in group:
                group.remove(copier)
        self._clock.call_at(self._clock.now, self._serve)

    def _serve(self) -> None:
        """Give the link to those who may use it now: the highest level that waits, unless another level uses
        the link.
        """
        for copier in sorted(self._waiting, key=lambda c: (c.level, c.ticket)):
            if any(other.held != copier.level for other in self._using):
                return
            self._waiting.remove(copier)
            self._using.append(copier)
            copier.held = copier.level
            lasts_ns = copier.size * 8 * 10**9 * len(self._using) // self.rate_bps
            self._clock.call_at(self._clock.now + lasts_ns, copier.moved)


class EmulatedPcieTransfer:
    """The transfers of one worker over an EmulatedPcieLink."""

    def __init__(self, link: EmulatedPcieLink) -> None:
        self.piece_bytes = piece_bytes(link.rate_bps)
        self.level = self.held = NO_LEVEL
        self.ticket = 0
        self._link = link
        self._pieces: list[tuple[int, Callback]] = []
        self._closed = False

    @property
    def size(self) -> int:
        """The size of the next piece in bytes."""
        return self._pieces[0][0]

    def copy(self, size: int, then: Callback) -> None:
        """See PcieTransfer."""
        if self._closed:
            return
        self._pieces.append((size, then))
        if len(self._pieces) == 1:
            self.ticket = self._link.ask(self)

    def set_level(self, level: int) -> None:
        """See PcieTransfer."""
        self.level = level

    def close(self) -> None:
        """See PcieTransfer."""
        self._closed = True
        self._pieces.clear()
        self._link.leave(self)

    def moved(self) -> None:
        """A piece is at the NIC: release the link, then ask for it again for the next piece."""
        if self._closed:
            return
        _, then = self._pieces.pop(0)
        # Other workers that wait get the link before the next piece of this one.
        self._link.leave(self)
        if self._pieces:
            self.ticket = self._link.ask(self)
        then()
