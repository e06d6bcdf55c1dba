# SPDX-License-Identifier: Apache-2.0
"""After a start: who has reported, and who is gone."""

from __future__ import annotations

from control_rig import job

from controller.live.job_registry import RegisteredJob
from controller.live.messages import WorkerLeft
from controller.live.reannouncement import REPORT_NS, Reannouncement

GRACE = 10 * REPORT_NS
A = job("a", "h1", "h2")


def started() -> Reannouncement:
    waiting = Reannouncement(("h1", "h2"), GRACE)
    waiting.expect((RegisteredJob(A, A, {0, 1}, arrived=True),))
    assert waiting.due(0) == ()
    return waiting


def test_it_is_over_when_all_agents_have_reported() -> None:
    waiting = started()
    for rank, host in enumerate(("h1", "h2")):
        waiting.agent_up(1, host)
        waiting.announced(host, "a", rank)
    assert waiting.next_timer_ns == 1 + REPORT_NS
    assert waiting.due(REPORT_NS) == ()
    assert not waiting.over
    assert waiting.due(1 + REPORT_NS) == ()
    assert waiting.over
    assert waiting.next_timer_ns is None


def test_a_worker_that_its_agent_does_not_announce_has_left() -> None:
    waiting = started()
    waiting.agent_up(1, "h1")
    assert waiting.due(1 + REPORT_NS) == (WorkerLeft("h1", 0, "a"),)
    assert not waiting.over
    # The other agent does not come back.
    assert waiting.due(GRACE - 1) == ()
    assert waiting.due(GRACE) == (WorkerLeft("h2", 1, "a"),)
    assert waiting.over


def test_without_a_grace_it_is_over_at_once() -> None:
    waiting = Reannouncement(("h1",), 0)
    assert waiting.over
    assert waiting.due(5) == ()
