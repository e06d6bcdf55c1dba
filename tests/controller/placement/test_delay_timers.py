# SPDX-License-Identifier: Apache-2.0
"""Delay timers and their auto-tuner (Dally, Algorithm 2)."""

from __future__ import annotations

import statistics

import pytest

from controller.placement.delay_timers import FLOORS, FixedTimers, TunedTimers
from controller.placement.machines import NetworkTier


def test_fixed_timers_learn_nothing() -> None:
    timers = FixedTimers(6, 12)
    timers.accepted(NetworkTier.MACHINE, 8, 0, 100)
    assert (timers.timer(NetworkTier.MACHINE, 8, 1), timers.timer(NetworkTier.RACK, 8, 1)) == (6, 12)


def test_without_history_a_tuned_timer_is_its_floor() -> None:
    timers = TunedTimers(48)
    assert [timers.timer(tier, 8, 0) for tier in (NetworkTier.MACHINE, NetworkTier.RACK)] == [
        FLOORS[NetworkTier.MACHINE],
        FLOORS[NetworkTier.RACK],
    ]


def test_a_tuned_timer_is_mean_plus_two_sample_deviations() -> None:
    timers, waits = TunedTimers(48), [10.0, 14.0, 18.0]
    for wait in waits:
        timers.accepted(NetworkTier.MACHINE, 8, 20, wait)
    expected = statistics.mean(waits) + 2 * statistics.stdev(waits)
    assert timers.timer(NetworkTier.MACHINE, 8, 30) == pytest.approx(expected)
    assert timers.timer(NetworkTier.MACHINE, 4, 30) == FLOORS[NetworkTier.MACHINE], "another demand"
    assert timers.timer(NetworkTier.RACK, 8, 30) == FLOORS[NetworkTier.RACK], "another tier"


def test_contention_raises_a_timer_and_its_end_lowers_it_again() -> None:
    timers = TunedTimers(24)
    timers.accepted(NetworkTier.RACK, 16, 0, 15)
    timers.accepted(NetworkTier.RACK, 16, 10, 16)
    high = timers.timer(NetworkTier.RACK, 16, 12)
    assert high > 15
    assert timers.timer(NetworkTier.RACK, 16, 30) == 16, "the first wait is beyond the history limit"
    assert timers.timer(NetworkTier.RACK, 16, 40) == FLOORS[NetworkTier.RACK], "both are"


def test_tuned_timers_are_bounded_by_the_history() -> None:
    timers = TunedTimers(24)
    for tier in (NetworkTier.MACHINE, NetworkTier.RACK):
        timers.accepted(tier, 8, 0, 1000)
    assert timers.timer(NetworkTier.MACHINE, 8, 1) == 20
    assert timers.timer(NetworkTier.RACK, 8, 1) == 24


def test_short_waits_and_network_placements_are_not_recorded() -> None:
    timers = TunedTimers(24)
    for _ in range(3):
        timers.accepted(NetworkTier.MACHINE, 8, 0, 18)
        timers.accepted(NetworkTier.MACHINE, 8, 0, 0.9)
        timers.accepted(NetworkTier.NETWORK, 8, 0, 18)
    assert timers.timer(NetworkTier.MACHINE, 8, 1) == 18
    assert timers.timer(NetworkTier.RACK, 8, 1) == FLOORS[NetworkTier.RACK]
