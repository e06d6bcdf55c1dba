# SPDX-License-Identifier: Apache-2.0
"""States of the past: the one that held at a time, and none before the first."""

from controller.live.past_states import MOST_STATES, PastState, PastStates


def state(time_ns: int, version: int) -> PastState:
    return PastState(time_ns, version, "polyrhythm", ("x",), (), ())


def test_the_state_of_a_time_is_the_last_one_before_it() -> None:
    states = PastStates()
    for time_ns, version in ((10, 1), (20, 1), (30, 2)):
        states.add(state(time_ns, version))
    found = {t: states.at(t) for t in (9, 10, 29, 30, 99)}
    assert found == {9: None, 10: state(10, 1), 29: state(10, 1), 30: state(30, 2), 99: state(30, 2)}


def test_old_states_are_dropped() -> None:
    states = PastStates()
    for number in range(MOST_STATES + 5):
        states.add(state(number, number))
    assert states.at(4) is None
    assert states.at(5) == state(5, 5)
