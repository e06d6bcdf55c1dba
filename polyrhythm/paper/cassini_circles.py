# SPDX-License-Identifier: Apache-2.0
"""The unified circles of the CASSINI thesis: its test vectors, and our score of each case."""

from __future__ import annotations

from typing import Any

import numpy as np

from controller.interleave.circle import SharedLink, sweep
from controller.interleave.solve import interleave
from controller.model import Phase
from polyrhythm.paper.cassini_cases import RATE_GBPS, CassiniCase

_MS = 1_000_000
_LINK = ("l1", "")
_FULL = 1 - 1e-9


def _phase(start_ms: float, end_ms: float, gbps: float = RATE_GBPS) -> tuple[Phase, ...]:
    return (Phase(round(start_ms * _MS), round(end_ms * _MS), round(gbps * 1e9)),)


def circle(case: CassiniCase) -> dict[str, Any]:
    """The best score of a case's link, and the time-shifts in ms that reach it, by job."""
    names = case.names()
    demands = {n: _phase(0, j.up_ms, j.gbps) for n, j in zip(names, case.jobs, strict=True)}
    periods = {n: round(j.period_ms * _MS) for n, j in zip(names, case.jobs, strict=True)}
    found = interleave([SharedLink(_LINK, round(RATE_GBPS * 1e9), demands)], periods)
    return {
        "score": round(found.circles[0].score, 4),
        "proven": found.circles[0].exact,
        "shift_ms": {n: round(s / _MS, 3) for n, s in found.shifts.items()},
    }


def vgg16_pair() -> dict[str, Any]:
    """The range of time-shifts with score 1 for two VGG16 of 255 ms, 141 ms of them Down."""
    phases = _phase(141, 255)
    link = SharedLink(_LINK, round(RATE_GBPS * 1e9), {"a": phases, "b": phases})
    periods = dict.fromkeys(("a", "b"), 255 * _MS)
    corners, excess = sweep(link, "b", periods, {"a": 0})
    free = corners[1 - excess >= _FULL]
    middle = float(np.interp(float(np.mean(free)), corners, excess))
    return {
        "shifts_ms": [round(float(free.min()) / _MS, 3), round(float(free.max()) / _MS, 3)],
        "score_between": 1 - middle,
        "thesis_ms": [114, 141],
    }


def vectors() -> list[dict[str, Any]]:
    """Jobs of 40 and 60 ms on one link: the best score, and the time-shift and angle of the second job."""
    rows = []
    for first, second, wanted in ((10, 10, 1.0), (10, 20, 11 / 12), (20, 20, 5 / 6)):
        demands = {"a": _phase(0, first), "b": _phase(0, second)}
        periods = {"a": 40 * _MS, "b": 60 * _MS}
        link = SharedLink(_LINK, round(RATE_GBPS * 1e9), demands)
        found = interleave([link], periods)
        at_ten = sweep(link, "b", periods, {"a": 0})
        rows.append(
            {
                "up_ms": [first, second],
                "score": found.circles[0].score,
                "expected": wanted,
                "perimeter_ms": found.circles[0].perimeter_ns / _MS,
                "shift_ms": found.shifts["b"] / _MS,
                "rotation_deg": found.circles[0].rotation_deg["b"],
                "score_at_10_ms": 1 - float(np.interp(10 * _MS, *at_ten, period=60 * _MS)),
                "exact": abs(found.circles[0].score - wanted) < 1e-9,
            }
        )
    return rows
