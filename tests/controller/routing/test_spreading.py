# SPDX-License-Identifier: Apache-2.0
"""What the spreading routings tell switches, and which options they take."""

import pytest

from controller.model.plan import Spreading
from controller.planner import POLICIES, PolicyError
from controller.routing.spreading import Flowlets, Spray


def test_spraying_in_turn_or_at_random():
    assert Spray().spreading(10**9) == Spreading("spray_in_turn")
    assert Spray("random").spreading(10**9) == Spreading("spray_random")


@pytest.mark.parametrize(
    ("rate_bps", "gap_us", "half_life"), [(25_000_000, 44319, 13), (100_000_000_000, 12, 1), (10**15, 1, 0)]
)
def test_the_gap_follows_the_slowest_cable(rate_bps, gap_us, half_life):
    """128 packets of 1,082 bytes; the half-life is the power of two next to 0.16 of it."""
    assert Flowlets().spreading(rate_bps) == Spreading("move_flowlets", gap_us, half_life)


def test_given_times_stay():
    assert Flowlets(500, 80).spreading(1) == Spreading("move_flowlets", 500, 6)
    assert Flowlets(half_life_us=1).spreading(8 * 1082 * 128).half_life == 0
    assert Flowlets().spreading(1).gap_us == 2**32 - 1


@pytest.mark.parametrize("option", ["gap_us", "half_life_us"])
@pytest.mark.parametrize("value", [0, -1, 2**32, 1.5, True, "1"])
def test_bad_times_are_named(option, value):
    with pytest.raises(PolicyError, match=f"{option} is .*; legal: None, or a whole number from 1 to"):
        POLICIES["dlb"].with_options({option: value})


def test_a_bad_order_is_named():
    with pytest.raises(PolicyError, match="order is 'backwards'; legal: turn, random"):
        POLICIES["spray"].with_options({"order": "backwards"})
