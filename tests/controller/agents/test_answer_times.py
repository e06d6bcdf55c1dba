# SPDX-License-Identifier: Apache-2.0
"""How long agents wait for answers."""

from controller.agents.answer_times import MOST_OPEN, AnswerTimes


def test_a_question_counts_once_with_its_first_answer() -> None:
    now = [0.0]
    times = AnswerTimes(lambda: now[0])
    times.asked("h1", "a/h1>h2")
    now[0] += 0.004
    times.asked("h1", "a/h1>h2")
    times.answered("h2", "a/h1>h2")  # nobody has asked from there
    times.answered("h1", "a/h1>h2")
    times.answered("h1", "a/h1>h2")
    assert times.durations.count == 1
    assert times.durations.total_s == 0.004
    assert dict(times.durations.cumulative())["0.005"] == 1


def test_questions_that_get_no_answer_are_forgotten() -> None:
    times = AnswerTimes(lambda: 0.0)
    for n in range(3 * MOST_OPEN):
        times.asked("h1", f"none{n}")
    assert len(times._asked) == MOST_OPEN
