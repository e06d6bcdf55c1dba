# SPDX-License-Identifier: Apache-2.0
"""When a job was on the fabric during a session."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Presence:
    """When a job was on the fabric, in ns of fabric time.

    `start_ns`: it began to communicate. `left_ns`: it left, None: it was there at the end of the session.
    `profiled_ns`: the controller had profiled it, None: it did not. `first`: the index of the first iteration
    that counts, None: none does.
    """

    start_ns: int
    left_ns: int | None
    profiled_ns: int | None
    first: int | None
