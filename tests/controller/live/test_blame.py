# SPDX-License-Identifier: Apache-2.0
"""What slowed an iteration: the link that was full, the job that sent there, the moment; or the own worker."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from control_rig import job

from controller.live.blame import Blamed, Measured, blamed
from controller.live.link_loads import LinkLoads
from controller.live.messages import IterationReport
from controller.live.notices import IterationDone, JobArrived, JobLeft
from controller.live.recorder import LoadSample, Recorder
from topo.generate import leaf_spine

MS = 1_000_000
TOPOLOGY = leaf_spine(2, 2, 2, host_bps=1_000_000_000, fabric_bps=1_000_000_000)
SHARED = "leaf1>spine1"


def report(name: str, index: int, start_ms: int, length_ms: int, rank: int = 0, **more: int) -> IterationDone:
    host = ("h1", "h3")[rank] if name == "a" else ("h2", "h4")[rank]
    start, end = start_ms * MS, (start_ms + length_ms) * MS
    values = {
        "communication_ns": 40 * MS,
        "bytes_sent": 1,
        "ecn_marks": 0,
        "retransmits": 0,
        "held_ns": 0,
    } | more
    return IterationDone(end, IterationReport(host, name, rank, index, start, end, **values))


def recorded(slow_at: int, link: str | None, other_sends: bool) -> Measured:
    """Ten iterations of 100 ms of job a; number `slow_at` takes 180 ms, while `link` is full."""
    recorder = Recorder(TOPOLOGY)
    jobs = {name: job(name, *hosts) for name, hosts in (("a", ("h1", "h3")), ("b", ("h2", "h4")))}
    for member in jobs.values():
        recorder.noticed(JobArrived(0, member))
    at = 0
    moment = (0, 0)
    for index in range(10):
        length = 180 if index == slow_at else 100
        if index == slow_at:
            moment = (at + 20, at + 60)
        for rank in (0, 1):
            recorder.noticed(report("a", index, at, length - 10 * rank, rank))
        at += length
    for rank in (0, 1):
        begin = moment[0] - 5 if other_sends else moment[1] + 5_000
        recorder.noticed(report("b", 0, begin, 100, rank))
    n = len(recorder.directions)
    for start in range(0, at, 20):
        load, marks = np.full(n, 30, np.int8), np.zeros(n, np.int32)
        if link is not None and moment[0] <= start < moment[1]:
            load[recorder.directions[link]], marks[recorder.directions[link]] = 99, 17
        recorder.samples.append(LoadSample(start * MS, (start + 20) * MS, load, marks))
    path = {
        name: (src, "leaf1", "spine1", "leaf2", dst)
        for name, (src, dst) in {"a": ("h1", "h3"), "b": ("h2", "h4")}.items()
    }
    flows = {
        flow.name: SimpleNamespace(path=path[member.name] if flow.src in ("h1", "h2") else None)
        for member in jobs.values()
        for flow in member.flows
    }
    plan = SimpleNamespace(flows=flows)
    return Measured(TOPOLOGY, plan, jobs, recorder.iterations(), tuple(recorder.samples), recorder.directions)


def only(found: tuple[Blamed, ...]) -> Blamed:
    (one,) = found
    return one


def test_the_full_link_the_other_job_and_the_moment_are_named() -> None:
    one = only(blamed(recorded(6, SHARED, other_sends=True), "a"))
    assert (one.iteration.index, one.link, one.other) == (6, SHARED, "b")
    assert one.moment_ns is not None
    assert 620 * MS <= one.moment_ns[0] < one.moment_ns[1] <= 660 * MS
    assert (one.load, one.marks, one.usual_ns) == (99, 17, 100 * MS)
    assert "80.0 ms more than usual" in one.why


def test_a_job_that_did_not_send_then_is_not_named() -> None:
    one = only(blamed(recorded(6, SHARED, other_sends=False), "a"))
    assert (one.link, one.other) == (SHARED, None)


def test_a_full_link_elsewhere_slows_nobody_and_the_worker_is_named() -> None:
    one = only(blamed(recorded(3, "leaf2>spine2", other_sends=True), "a"))
    assert (one.link, one.other, one.moment_ns) == (None, None, None)
    assert "h1 was slow" in one.why


def test_without_counters_nothing_is_blamed_on_a_link() -> None:
    measured = replace(recorded(3, SHARED, other_sends=True), samples=())
    one = only(blamed(measured, "a"))
    assert one.link is None
    assert "no counters were read" in one.why
    assert blamed(measured, "unknown") == ()


def test_unmeasured_links_are_not_blamed() -> None:
    measured = recorded(3, SHARED, other_sends=True)
    blank = tuple(
        replace(s, load=np.full_like(s.load, -1), marks=np.full_like(s.marks, -1)) for s in measured.samples
    )
    assert only(blamed(replace(measured, samples=blank), "a")).link is None


def test_the_recorder_forgets_jobs_that_leave_and_takes_loads_between_two_reads() -> None:
    recorder = Recorder(TOPOLOGY)
    member = job("a", "h1", "h3")
    recorder.noticed(report("a", 0, 0, 100))
    assert recorder.iterations() == {}, "nobody knows it"
    recorder.noticed(JobArrived(0, member))
    recorder.noticed(report("a", 0, 0, 100))
    assert recorder.iterations() == {"a": ()}, "one of its workers has not ended it"
    recorder.noticed(report("a", 0, 0, 120, rank=1))
    assert recorder.iterations()["a"][0].host == "h3"
    figures = np.full((2, len(LinkLoads(TOPOLOGY))), np.nan)
    figures[:, 0] = 0.5, 4
    for now in (10, 20, 20, 30):
        recorder.loads_read(now * MS, *figures)
    assert [(s.start_ns // MS, s.end_ns // MS) for s in recorder.samples] == [(10, 20), (20, 30)]
    assert sorted(set(recorder.samples[0].load.tolist())) == [-1, 50]
    recorder.noticed(JobLeft(0, member))
    assert recorder.iterations() == {}
    assert [e.kind for e in recorder.log.newest_first()] == ["job_left", "job_arrived"]
