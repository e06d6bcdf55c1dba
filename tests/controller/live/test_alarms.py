# SPDX-License-Identifier: Apache-2.0
"""Alarms: which conditions raise them, and since when."""

from __future__ import annotations

from dataclasses import replace

from fake_source import view

from controller.live.alarms import Alarms, OperatingState, SilentAgents
from controller.model.view import ALARM_KINDS, FallbackFlow


def test_an_alarm_stands_as_long_as_its_condition_and_begins_anew_after_it() -> None:
    alarms, well = Alarms(), OperatingState()
    assert alarms.at(1, well) == ()
    silent = OperatingState(silent_switches={"leaf1": "no session: it has not answered yet"})
    (one,) = alarms.at(5, silent)
    assert (one.kind, one.subject, one.since_ns) == ("silent_switch", "leaf1", 5)
    assert alarms.at(9, silent)[0].since_ns == 5
    assert alarms.at(10, well) == ()
    assert alarms.at(12, silent)[0].since_ns == 12


def test_every_kind_has_a_condition_and_words() -> None:
    state = OperatingState(
        silent_switches={"leaf1": "no session: another controller is its primary"},
        wrong_entries={"leaf2": "it refused some"},
        failed_cables=[("leaf1", "spine2")],
        silent_agents=SilentAgents([f"h{n}" for n in range(8)], 6),
        jobs=[
            replace(job, **reason)
            for job, reason in zip(
                view(0).jobs,
                ({"breaches": 2}, {"left_out": "too large"}, {"silence": "no report for 3 s"}),
                strict=True,
            )
        ],
        failed_probes={f"a/h{n}>h9" for n in range(7)},
        fallback_flows=[FallbackFlow("a/h1>h9", "h1", 49_152, 5, "its path lost packets")],
        history_off="no --state",
        plan_failure="it took too long",
    )
    found = Alarms().at(1, state)
    assert {alarm.kind for alarm in found} == set(ALARM_KINDS)
    texts = " ".join(alarm.text for alarm in found)
    for word in (
        "2 times",
        "too large",
        "no report for 3 s",
        "7 flows",
        "and 2 more",
        "no --state",
        "another controller is its primary",
        "it refused some",
        "leaf1-spine2",
        "8 hosts",
        "and 3 more",
        "6 hosts need one",
        "a/h1>h9 (its path lost packets)",
        "it took too long",
    ):
        assert word in texts
