# SPDX-License-Identifier: Apache-2.0
"""Alarms: which conditions raise them, and since when."""

from __future__ import annotations

from dataclasses import replace

from fake_source import view

from controller.live.alarms import Alarms
from controller.model.view import ALARM_KINDS


def test_an_alarm_stands_as_long_as_its_condition_and_begins_anew_after_it() -> None:
    shown, alarms = view(0), Alarms()
    assert alarms.at(1, shown.switches, shown.jobs, frozenset(), "") == ()
    silent = (replace(shown.switches[0], state="down"), *shown.switches[1:])
    (one,) = alarms.at(5, silent, shown.jobs, frozenset(), "")
    assert (one.kind, one.subject, one.since_ns) == ("silent_switch", "leaf1", 5)
    assert alarms.at(9, silent, shown.jobs, frozenset(), "")[0].since_ns == 5
    assert alarms.at(10, shown.switches, shown.jobs, frozenset(), "") == ()
    assert alarms.at(12, silent, shown.jobs, frozenset(), "")[0].since_ns == 12


def test_every_kind_has_a_condition_and_words() -> None:
    shown = view(0)
    silent = (replace(shown.switches[0], state="down"), *shown.switches[1:])
    starved = tuple(
        replace(job, **reason)
        for job, reason in zip(
            shown.jobs,
            ({"breaches": 2}, {"left_out": "too large"}, {"silence": "no report for 3 s"}),
            strict=True,
        )
    )
    failed = frozenset(f"a/h{n}>h9" for n in range(7))
    found = Alarms().at(1, silent, starved, failed, "no --state")
    assert {alarm.kind for alarm in found} == set(ALARM_KINDS)
    texts = " ".join(alarm.text for alarm in found)
    for word in ("2 times", "too large", "no report for 3 s", "7 flows", "and 2 more", "no --state"):
        assert word in texts
