# SPDX-License-Identifier: Apache-2.0
"""The figures of the Dally paper's Tables II and III: job completion times on 8 racks, in s."""

from __future__ import annotations

from collections.abc import Mapping

from polyrhythm.paper.verdicts import same_order

RACKS = 8
FIGURES = ("jct_mean", "jct_median", "jct_p95", "jct_p99")

TABLES: Mapping[str, Mapping[str, tuple[float, float, float, float]]] = {
    "batch": {
        "gandiva": (5_828_719, 183_717, 17_485_823, 39_214_710),
        "tiresias": (4_461_998, 2_547_080, 17_841_606, 25_696_135),
        "dally-manual": (3_128_566, 2_552_189, 7_097_646, 8_868_401),
        "dally": (2_828_955, 2_401_390, 5_983_042, 8_395_214),
    },
    "poisson": {
        "gandiva": (17_371_514, 22_722_917, 71_362_014, 208_939_883),
        "tiresias": (4_329_941, 4_212_795, 15_059_080, 15_390_860),
        "dally-manual": (4_960_727, 2_787_855, 39_298_828, 39_817_762),
        "dally": (2_831_880, 2_595_529, 16_469_069, 16_681_241),
    },
}
"""By arrivals and scheduler: mean, median, P95 and P99."""
REFERENCE = "tiresias"
NEAR_POINTS = 10.0
"""A ratio to Tiresias counts as reproduced if it is this near to the paper's, in percentage points."""


def ratio(arrivals: str, scheduler: str, figure: str) -> float | None:
    """The paper's figure divided by Tiresias' one, None if the paper has none."""
    row = TABLES[arrivals].get(scheduler)
    if row is None:
        return None
    place = FIGURES.index(figure)
    return row[place] / TABLES[arrivals][REFERENCE][place]


VERDICTS = ("reproduced", "order only", "not reproduced")


def verdict(ours: float, published: float) -> str:
    """Whether our ratio is near the paper's, or at least on the same side of 1."""
    near = NEAR_POINTS / 100
    if abs(ours - published) <= near:
        return VERDICTS[0]
    return VERDICTS[1] if same_order(published, ours, near=near, neutral=1.0) else VERDICTS[2]
