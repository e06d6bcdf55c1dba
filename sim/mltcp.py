# SPDX-License-Identifier: Apache-2.0
"""MLTCP (CASSINI thesis, 1.2) as weights: the share of a flow at a bottleneck is proportional to F(r).

r is the part of the bytes of its iteration that a flow has sent. Senders that increase their rate F(r) times
as fast get shares in proportion to F(r). Here the shares follow at once, as in the model of the thesis. F is
constant over each of STEPS equal parts of the bytes; its value is that at the middle of the part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

from controller.wire.senders import DCQCN, as_mltcp

STEPS = 64
LINEAR = "1.75r+0.25"
"""The thesis' F."""
SENDER = as_mltcp(DCQCN)
"""The sender that is MLTCP in the simulator. Shares of windows (Reno, CUBIC, DCTCP) have no equivalent here.
"""
EQUIVALENT = (DCQCN, SENDER)
"""The senders of which the simulator has an equivalent: equal shares, and shares by F."""

SHAPES: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {
        LINEAR: lambda r: 1.75 * r + 0.25,
        "1.75r^2+0.25": lambda r: 1.75 * r * r + 0.25,
        "1/(4-3.5r)": lambda r: 1.0 / (4.0 - 3.5 * r),
        "-1.75r^2+3.5r+0.25": lambda r: -1.75 * r * r + 3.5 * r + 0.25,
        "2-1.75r": lambda r: 2.0 - 1.75 * r,
        "2-1.75r^2": lambda r: 2.0 - 1.75 * r * r,
    }
)
"""With rising functions jobs come to share a link in time, with falling ones they do not. The emulated NIC
has the same six."""


def check_sender(sender: str, where: str) -> None:
    """Refuse a sender of which the simulator has no equivalent (ValueError, beginning with `where`)."""
    if sender not in EQUIVALENT:
        legal = ", ".join(EQUIVALENT)
        raise ValueError(f"{where}: the simulator has no equivalent of sender {sender}; legal: {legal}")


@cache
def weights(shape: str = LINEAR, steps: int = STEPS) -> tuple[float, ...]:
    """F at the middle of each of `steps` parts of an iteration's bytes, for `JobRun.weights`.

    Raises:
        ValueError: no such shape, with the names of those there are; or no step.
    """
    if shape not in SHAPES:
        raise ValueError(f"{shape!r} is no shape of MLTCP; legal: {', '.join(SHAPES)}")
    if steps < 1:
        raise ValueError(f"{steps} steps of MLTCP; legal: 1 or more")
    return tuple(SHAPES[shape]((i + 0.5) / steps) for i in range(steps))
