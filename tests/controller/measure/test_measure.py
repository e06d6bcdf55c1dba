# SPDX-License-Identifier: Apache-2.0
"""Turns, overlays and changes: whose turn it is, what the plan looks like meanwhile, what counts as change."""

from __future__ import annotations

from dataclasses import replace

from controller.measure.change import ChangeDetector
from controller.measure.profiling_queue import ProfilingQueue, with_job_on_top
from controller.model.plan import FlowPlan, JobPlan, LinkPlan, Plan, PolicyReference

MS = 1_000_000
DSCPS = (30, 26, 22)


def planned(levels: dict[str, int], links: list[tuple[str, ...]]) -> Plan:
    return Plan(
        1,
        PolicyReference("p"),
        0,
        {
            f"{j}/a>b": FlowPlan(f"{j}/a>b", ("a", "b"), 50_000, DSCPS[level], "why")
            for j, level in levels.items()
        },
        {j: JobPlan(j, level, DSCPS[level], 5, 100, 1.0, "why") for j, level in levels.items()},
        tuple(LinkPlan("x", str(n), jobs, 1.0) for n, jobs in enumerate(links)),
    )


def test_one_job_at_a_time_in_the_order_of_their_coming() -> None:
    queue = ProfilingQueue(30)
    for job in "abca":
        queue.add(job)
    assert queue.next_job() == "a"
    queue.add("d", first=True)
    assert queue.next_job() == "a"
    assert queue.begin(100)
    assert not queue.begin(110)
    assert queue.window is not None
    assert queue.window.until_ns == 130
    queue.add("a")
    queue.end()
    queue.forget("b")
    assert [queue.next_job(), queue.end(), queue.next_job(), queue.end(), queue.next_job()] == [
        "d",
        None,
        "c",
        None,
        None,
    ]


def test_the_measured_job_is_alone_on_top_and_runs_free() -> None:
    plan = planned({"new": 2, "top": 0, "other": 0, "low": 2}, [("new", "top"), ("other", "low")])
    shown = with_job_on_top(plan, "new", DSCPS)
    assert {j: p.level for j, p in shown.jobs.items()} == {"new": 0, "top": 1, "other": 0, "low": 2}
    assert shown.jobs["new"].period_ns is None
    assert "measured" in shown.jobs["new"].why
    assert {f: p.dscp for f, p in shown.flows.items()} == {
        "new/a>b": 30, "top/a>b": 26, "other/a>b": 30, "low/a>b": 22,
    }  # fmt: skip
    assert shown.flows["new/a>b"].path == plan.flows["new/a>b"].path
    assert with_job_on_top(plan, "unknown", DSCPS) == plan


def test_who_kept_slots_only_beside_the_measured_job_runs_free_too() -> None:
    """Else it would wait whole periods for slots that the measured job, which keeps none, sends in."""
    plan = planned(
        {"new": 0, "beside": 0, "one": 0, "two": 0}, [("new", "beside"), ("new", "one"), ("one", "two")]
    )
    jobs = {n: replace(p, period_ns=260 * MS, shift_ns=130 * MS) for n, p in plan.jobs.items()}
    shown = with_job_on_top(replace(plan, jobs=jobs), "new", DSCPS)
    assert {n for n, p in shown.jobs.items() if p.period_ns} == {"one", "two"}


def test_three_alike_in_a_row_are_a_change() -> None:
    detector = ChangeDetector(1_000, 140 * MS)
    assert not any(detector.add(1_000, 140 * MS + d) for d in (0, MS, -MS, 5 * MS))
    assert [detector.add(1_400, 140 * MS) for _ in range(3)] == [False, False, True]
    assert [detector.add(1_400, 140 * MS) for _ in range(3)] == [False, False, True]


def test_a_straggler_or_a_mess_is_none() -> None:
    detector = ChangeDetector(1_000, 140 * MS)
    assert not any(detector.add(1_000, q * MS) for q in (300, 140, 300, 140, 300))
    assert not any(detector.add(1_000, q * MS) for q in (200, 300, 400, 200, 300, 400))
    # Compute alone is a pattern too: a smaller batch.
    assert [detector.add(1_000, 100 * MS) for _ in range(3)] == [False, False, True]


def test_what_a_job_varies_by_is_no_change() -> None:
    detector = ChangeDetector(1_000, 140 * MS, varies_ns=7 * MS)
    assert not any(detector.add(1_000, q * MS) for q in (149, 150, 149, 131, 130, 131))
    assert [detector.add(1_000, 152 * MS) for _ in range(3)] == [False, False, True]
