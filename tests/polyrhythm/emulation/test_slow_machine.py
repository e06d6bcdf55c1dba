# SPDX-License-Identifier: Apache-2.0
import pytest

from polyrhythm.emulation.slow_machine import Pace, larger_scale_helps, pace, slow_machine
from polyrhythm.scenario import load_scenario, scenario_path


def test_a_machine_that_is_too_slow_is_told() -> None:
    scenario = load_scenario(scenario_path("two_vgg19"))
    (note,) = slow_machine(
        scenario, {"vgg19-a": {"period_ns": 385_600_000}, "vgg19-b": {"period_ns": 275_000_000}}
    )
    assert "alone vgg19-a takes 386 ms instead of 260" in note
    assert slow_machine(scenario, {}) == []


def test_the_pace_is_that_of_the_slowest_job() -> None:
    scenario = load_scenario(scenario_path("two_vgg19"))
    # The headers of 120 ms of frames with 1,024 of 1,082 bytes are 6.8 ms.
    profiles = {"vgg19-a": {"period_ns": 275_000_000}, "vgg19-b": {"period_ns": 400_200_000}}
    found = pace(scenario, profiles, 0.75)
    assert (found.job, found.times, found.load) == ("vgg19-b", pytest.approx(1.5, 0.001), 0.75)
    assert pace(scenario, {}, 0.0) == Pace("", 0.0, 0.0)


@pytest.mark.parametrize(("times", "load", "reason"), [
    (1.0, 0.55, ""),
    (1.05, 0.55, "alone vgg19-a takes 1.05 times what it should"),
    (1.0, 0.9, "all jobs together would take 90% of its CPU time"),
    (1.05, 0.9, "alone vgg19-a takes 1.05 times what it should"),
], ids=["carries it", "slow", "busy", "both"])  # fmt: skip
def test_a_job_that_is_slow_alone_or_a_busy_machine_asks_for_a_larger_scale(
    times: float, load: float, reason: str
) -> None:
    found = Pace("vgg19-a", times, load)
    assert found.too_slow == bool(reason)
    assert not reason or str(found) == reason


@pytest.mark.parametrize(("times", "load", "helps"), [
    (1.05, 0.9, False),
    (1.0, 0.9, True),
    (1.05, 0.6, True),
    (1.2, 0.6, False),
], ids=["neither", "faster", "less busy", "less busy but slower"])  # fmt: skip
def test_a_larger_scale_helps_if_jobs_are_faster_or_as_fast_on_a_less_busy_machine(
    times: float, load: float, helps: bool
) -> None:
    assert larger_scale_helps(Pace("a", 1.05, 0.9), Pace("b", times, load)) == helps
