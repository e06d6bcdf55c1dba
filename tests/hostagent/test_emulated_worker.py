# SPDX-License-Identifier: Apache-2.0
"""Training loops on emulated hosts, their time-shifts, and the agent's rules."""

from __future__ import annotations

import dataclasses
import itertools
from statistics import mean

import pytest
from host_bench import MS, RATE
from hypothesis import given
from hypothesis import strategies as st
from training_rig import WELCOME, Cluster, job, up

from controller.wire import agent_pb2 as pb
from hostagent.host import measured_profile
from hostagent.job import IterationRecord, JobSpec, PcieUse, PhaseSpec
from polyrhythm_job.schedule import Schedule, next_slot


def test_alone_an_iteration_is_up_plus_down_and_the_profile_says_so() -> None:
    cluster = Cluster()
    spec = job()
    cluster.run_job(spec, 15, 8, jitter_ns=MS)
    cluster.heap.run(3_000 * MS)
    records = cluster.records("h0", "a")
    assert [r.index for r in records] == list(range(8))
    assert 15 * MS <= records[0].start_ns <= 16 * MS
    lengths = [r.end_ns - r.start_ns for r in records]
    assert mean(lengths) == pytest.approx(260 * MS, rel=0.02)
    assert all(a.end_ns == b.start_ns for a, b in itertools.pairwise(records))
    assert all(r.bytes_sent == up(120) and r.ecn_marks == r.retransmits == r.held_ns == 0 for r in records)
    profile = measured_profile(records, spec)
    assert profile.period_ns == pytest.approx(260 * MS, rel=0.02)
    assert profile.phases[0].start_ns == 0
    assert profile.phases[0].end_ns == pytest.approx(120 * MS, rel=0.03)
    assert profile.phases[0].rate_bps == pytest.approx(RATE, rel=0.03)


def test_a_capped_job_of_two_phases_keeps_its_profile() -> None:
    cluster = Cluster()
    phases = (
        PhaseSpec(50 * MS, up(50, 42), RATE * 42 // 50, 30 * MS),
        PhaseSpec(40 * MS, up(40, 8), RATE * 8 // 50, 60 * MS),
    )
    spec = JobSpec("two", "ResNet50", 2, ("h0", "h1"), (("h0", "h1"), ("h1", "h0")), phases, 1e12)
    cluster.run_job(spec, 0, 6)
    cluster.heap.run(2_000 * MS)
    profile = measured_profile(cluster.records("h1", "two"), spec)
    assert profile.period_ns == pytest.approx(180 * MS, rel=0.03)
    first, second = profile.phases
    assert first.rate_bps == pytest.approx(RATE * 42 / 50, rel=0.06)
    assert second.rate_bps == pytest.approx(RATE * 8 / 50, rel=0.08)
    assert second.start_ns == pytest.approx(80 * MS, rel=0.05)
    assert spec.announced().period_ns == 180 * MS
    measured = dataclasses.replace(spec, profile=profile)
    assert measured.announced() == profile


@pytest.mark.parametrize("apart", [False, True])
def test_the_workers_of_a_ring_end_a_phase_together_unless_they_only_see_their_bytes(apart: bool) -> None:
    """The other job shares the link of two of the four flows, which take longer."""
    cluster = Cluster()
    ring = dataclasses.replace(job("ring", ("h0", "h1", "h2", "h3"), 40, 60), compute_jitter=0.05)
    cluster.run_job(ring, 15, 12, apart=apart)
    cluster.run_job(job("other", ("h1", "h3"), 70, 40), 15, 12)
    cluster.heap.run(3_000 * MS)
    records = zip(*(cluster.records(host, "ring") for host in ring.hosts), strict=True)
    gaps = [
        max(ends) - min(ends) for each in records if (ends := [r.start_ns + r.phases[0][1] for r in each])
    ]
    assert len(gaps) == 12
    if apart:
        assert max(gaps) > 10 * MS
    else:
        assert max(gaps) == 0


def test_two_jobs_on_one_link_contend_and_shifted_they_do_not() -> None:
    lengths: dict[bool, float] = {}
    marks: dict[bool, int] = {}
    for shifted in (False, True):
        cluster = Cluster()
        cluster.connect()
        for name, hosts, shift in (("a", ("h0", "h2"), 0), ("b", ("h1", "h3"), 130)):
            cluster.run_job(job(name, hosts), 15, 10, jitter_ns=MS)
            if shifted:
                for host in hosts:
                    said = pb.JobSchedule(job=name, epoch_ns=0, shift_ns=shift * MS, period_ns=263 * MS)
                    cluster.hosts[host].agent.on_message(pb.ControllerMessage(schedule=said))
        cluster.heap.run(6_000 * MS)
        records = [r for r in cluster.records("h0", "a") + cluster.records("h1", "b") if 2 <= r.index < 9]
        assert len(records) == 14
        lengths[shifted] = mean(r.end_ns - r.start_ns for r in records) / MS
        marks[shifted] = cluster.trunk.marks
    assert lengths[False] > 330
    assert lengths[True] == pytest.approx(263, abs=2)
    assert marks[True] * 5 < marks[False]


@pytest.mark.parametrize(
    ("chosen", "planned"),
    [("mltcp-dcqcn", ""), ("mltcp-dcqcn", "job"), ("dcqcn", "mltcp"), ("cubic", "mltcp-reno")],
)
def test_mltcp_by_the_job_or_by_the_plan_shares_links_in_time_without_shifts(
    chosen: str, planned: str
) -> None:
    lengths = {}
    for sender, order in (("dcqcn", "dcqcn"), (chosen, planned)):
        cluster = Cluster()
        cluster.connect()
        for name, hosts in (("a", ("h0", "h2")), ("b", ("h1", "h3"))):
            cluster.run_job(dataclasses.replace(job(name, hosts), sender=sender), 15, 25, jitter_ns=MS)
            for host in hosts:
                said = pb.JobSchedule(job=name, sender=order)
                cluster.hosts[host].agent.on_message(pb.ControllerMessage(schedule=said))
        cluster.heap.run(12_000 * MS)
        records = [r for r in cluster.records("h0", "a") + cluster.records("h1", "b") if r.index >= 20]
        lengths[order] = mean(r.end_ns - r.start_ns for r in records) / MS
    assert lengths["dcqcn"] > 330
    assert lengths[planned] < 275


def test_a_plan_can_take_mltcp_back_and_a_greedy_timer_gets_more() -> None:
    cluster = Cluster()
    cluster.connect()
    greedy = dataclasses.replace(job("a", ("h0", "h2")), sender="mltcp-dcqcn", increase_timer=0.5)
    cluster.run_job(greedy, 15, 3)
    cluster.run_job(job("b", ("h1", "h3")), 15, 3)
    said = pb.ControllerMessage(schedule=pb.JobSchedule(job="a", sender="dcqcn"))
    for host in greedy.hosts:
        cluster.hosts[host].agent.on_message(said)
    cluster.heap.run(2_000 * MS)
    first, second = cluster.records("h0", "a")[0], cluster.records("h1", "b")[0]
    assert first.communication_ns < 0.97 * second.communication_ns


@pytest.mark.parametrize("levels", [(0, 5), (5, 0), (3, 3)])
def test_jobs_of_a_host_share_its_pcie_link_by_level(levels: tuple[int, int]) -> None:
    cluster = Cluster()
    for host in cluster.hosts.values():
        host.agent.session_up()
        welcome = pb.ControllerMessage()
        welcome.CopyFrom(WELCOME)
        welcome.welcome.level_dscp.extend((30, 26, 22, 18, 14, 10))
        host.agent.on_message(welcome)
    # Over half the NIC's rate an iteration alone takes 80 and 40 ms: two have 4/3 of the link's time to send.
    for name, level in zip("ab", levels, strict=True):
        spec = dataclasses.replace(job(name, ("h0", "h3"), 40, 40), pcie=PcieUse("gpu0", RATE // 2))
        cluster.run_job(spec, 15, 30)
        for host, flow in (("h0", f"{name}/h0>h3"), ("h3", f"{name}/h3>h0")):
            said = pb.FlowAssignment(flow=flow, source_port=0xC100 + level, dscp=30 - 4 * level)
            cluster.hosts[host].agent.on_message(pb.ControllerMessage(flow=said))
    cluster.heap.run(2_400 * MS)
    up_ms = [mean(r.communication_ns for r in cluster.records("h0", j)[2:]) / MS for j in "ab"]
    first, second = sorted(up_ms)
    if levels == (3, 3):
        assert second == pytest.approx(first, rel=0.1)
        assert first > 110
    else:
        assert first == up_ms[levels.index(0)] == pytest.approx(80, rel=0.1)
        assert second > 1.5 * first


@given(st.integers(0, 10**10), st.integers(0, 10**9), st.integers(1, 10**9), st.integers(0, 2 * 10**10))
def test_the_slot_rule(epoch: int, shift: int, period: int, now: int) -> None:
    schedule = Schedule(epoch, shift, period)
    delay = next_slot(now, schedule).delay_ns
    start = now + delay - epoch - shift
    assert start >= 0
    late = start % period
    assert late <= 0.05 * period
    assert delay == 0 or late == 0
    if now >= epoch + shift:
        assert delay < period
    assert next_slot(now, Schedule(epoch, shift, 0)).delay_ns == 0


@pytest.mark.parametrize(("offset_ms", "wait_ms"), [(0, 0), (13, 0), (14, 246), (200, 60), (259, 1)])
def test_late_within_five_percent_goes_at_once_later_waits(offset_ms: int, wait_ms: int) -> None:
    schedule = Schedule(5 * MS, 40 * MS, 260 * MS)
    assert next_slot((45 + 3 * 260 + offset_ms) * MS, schedule).delay_ns == wait_ms * MS


def test_a_hold_is_reported_and_a_new_schedule_frees_who_waits() -> None:
    cluster = Cluster()
    cluster.connect()
    cluster.run_job(job(up_ms=40, down_ms=60), 15, 4)
    for host in ("h0", "h1"):
        said = pb.JobSchedule(job="a", epoch_ns=20 * MS, shift_ns=10 * MS, period_ns=150 * MS)
        cluster.hosts[host].agent.on_message(pb.ControllerMessage(schedule=said))
    cluster.heap.run(300 * MS)
    first = cluster.records("h0", "a")[0]
    assert first.start_ns == 30 * MS
    assert first.end_ns == 180 * MS
    assert first.held_ns == pytest.approx(50 * MS, abs=4 * MS)
    free = pb.ControllerMessage(schedule=pb.JobSchedule(job="a"))
    for host in ("h0", "h1"):
        cluster.hosts[host].agent.on_message(free)
    cluster.heap.run(1_000 * MS)
    records = cluster.records("h0", "a")
    assert len(records) == 4
    assert records[1].end_ns == 300 * MS
    assert 15 * MS < records[1].held_ns < 20 * MS
    assert records[2].held_ns == 0
    reported = [m.iteration for _, m in cluster.bodies("h0", "iteration")]
    assert [(r.index, r.held_ns, r.start_ns, r.end_ns) for r in reported] == [
        (r.index, r.held_ns, r.start_ns, r.end_ns) for r in records
    ]
    assert [m.job_leave.job for _, m in cluster.bodies("h0", "job_leave")] == ["a"]


def test_a_worker_that_is_ahead_is_accounted_by_bytes() -> None:
    cluster = Cluster()
    spec = job(hosts=("h0", "h1", "h3"), up_ms=20, down_ms=10)
    for rank, name in enumerate(spec.hosts):
        cluster.hosts[name].add_worker(spec, rank, (15 + 9 * rank) * MS, 12)
    cluster.heap.run(2_000 * MS)
    for name in spec.hosts:
        records = cluster.records(name, "a")
        assert len(records) == 12
        assert all(r.bytes_sent == up(20) for r in records)
    ends = [cluster.records(name, "a")[-1].end_ns for name in spec.hosts]
    assert max(ends) - min(ends) < 30 * MS


def test_an_answer_in_time_pins_the_flow_and_a_later_one_moves_it() -> None:
    cluster = Cluster()
    cluster.connect()
    cluster.run_job(job(), 30, 3)
    cluster.heap.run(17 * MS)
    joins = cluster.bodies("h0", "job_join")
    requests = cluster.bodies("h0", "flow_request")
    assert [at for at, _ in joins + requests] == [15 * MS] * 2
    join = joins[0][1].job_join
    assert (join.period_ns, join.rank, list(join.hosts)) == (260 * MS, 0, ["h0", "h1"])
    assert [(f.name, f.bytes_per_iteration) for f in join.flows] == [
        ("a/h0>h1", up(120)),
        ("a/h1>h0", up(120)),
    ]
    assert requests[0][1].flow_request.flow == "a/h0>h1"
    agent = cluster.hosts["h0"].agent
    said = pb.FlowAssignment(flow="a/h0>h1", source_port=0xC042, dscp=30)
    agent.on_message(pb.ControllerMessage(flow=said))
    ports: list[tuple[int, int]] = []
    inner = cluster.hosts["h0"].nic._transmit

    def watch(frame: bytes) -> None:
        if frame[42] in (0, 1, 2):
            ports.append((int.from_bytes(frame[34:36], "big"), frame[15] >> 2))
        inner(frame)

    cluster.hosts["h0"].nic._transmit = watch
    cluster.heap.run(60 * MS)
    assert set(ports) == {(0xC042, 30)}
    agent.on_message(
        pb.ControllerMessage(flow=pb.FlowAssignment(flow="a/h0>h1", source_port=0xC043, dscp=28))
    )
    cluster.heap.run(1_000 * MS)
    count = up(120) // 1024
    assert ports == [(0xC042, 30)] * count + [(0xC043, 28)] * (2 * count)
    starts = [r.start_ns for r in cluster.records("h0", "a")]
    assert starts[0] == 30 * MS
    assert all(at == m.time_ns for at, _, m in cluster.said)


def test_an_agent_enforces_the_rate_cap_it_is_told() -> None:
    """Half the line's rate doubles the communication time, and lifting the cap brings it back."""
    took: list[float] = []
    for cap in (0, RATE // 2):
        cluster = Cluster()
        cluster.connect()
        cluster.run_job(job(), 30, 3)
        cluster.heap.run(17 * MS)
        for host, flow in (("h0", "a/h0>h1"), ("h1", "a/h1>h0")):
            said = pb.FlowAssignment(flow=flow, source_port=0xC042, dscp=30, rate_cap_bps=cap)
            cluster.hosts[host].agent.on_message(pb.ControllerMessage(flow=said))
        cluster.heap.run(2_000 * MS)
        took.append(cluster.records("h0", "a")[-1].communication_ns / MS)
    assert took[0] == pytest.approx(120, rel=0.03)
    assert took[1] == pytest.approx(240, rel=0.03)


def test_without_an_answer_the_flow_goes_by_ecmp_at_the_deadline() -> None:
    cluster = Cluster()
    cluster.connect()
    spec = job()
    for rank, name in enumerate(spec.hosts):
        cluster.hosts[name].add_worker(spec, rank, 20 * MS, 1, join_lead_ns=4 * MS)
    cluster.heap.run(25 * MS)
    assert cluster.hosts["h0"].nic.counters().packets == 0
    cluster.heap.run(28 * MS)
    counters = cluster.hosts["h0"].nic.counters("a")
    assert 0 < counters.packets <= 6
    cluster.heap.run(500 * MS)
    assert cluster.records("h0", "a")[0].start_ns == 26 * MS
    qp_port = cluster.hosts["h0"].agent.source_port("a/h0>h1")
    assert 0xC000 <= qp_port <= 0xFFFF
    assert qp_port == Cluster().hosts["h0"].agent.source_port("a/h0>h1")
    assert len({Cluster(seed).hosts["h0"].agent.source_port("a/h0>h1") for seed in range(8)}) > 4


def test_mice_never_ask() -> None:
    cluster = Cluster()
    cluster.connect()
    cluster.run_job(job(up_ms=20, down_ms=20), 15, 2)
    cluster.heap.run(200 * MS)
    assert cluster.bodies("h0", "flow_request") == []
    assert len(cluster.bodies("h0", "job_join")) == 1
    assert cluster.records("h0", "a")[0].start_ns == 15 * MS


def test_a_lost_session_stops_nothing_and_a_new_one_hears_all() -> None:
    cluster = Cluster()
    cluster.connect()
    cluster.run_job(job(up_ms=60, down_ms=40), 15, 6)
    cluster.run_job(job("late", ("h2", "h3"), up_ms=60, down_ms=40), 330, 2)
    cluster.heap.run(3 * MS)
    for host in cluster.hosts.values():
        host.agent.session_lost()
    silent = len(cluster.said)
    cluster.heap.run(310 * MS)
    assert len(cluster.said) == silent
    assert cluster.records("h0", "a")[0].start_ns == 15 * MS
    cluster.connect()
    again = [m.WhichOneof("body") for _, name, m in cluster.said[silent:] if name == "h0"]
    assert again == ["hello", "job_join", "flow_request"]
    cluster.heap.run(1_500 * MS)
    assert len(cluster.records("h0", "a")) == 6
    assert len(cluster.records("h3", "late")) == 2
    assert len(cluster.bodies("h2", "flow_request")) == 1


def test_a_host_that_waits_for_an_answer_when_the_session_goes_starts_on_time() -> None:
    cluster = Cluster()
    cluster.connect()
    cluster.run_job(job(), 15, 1)
    cluster.heap.run(1 * MS)
    for host in cluster.hosts.values():
        host.agent.session_lost()
    cluster.heap.run(500 * MS)
    assert cluster.records("h0", "a")[0].start_ns == 15 * MS


def test_stop_ends_a_job_that_runs_without_end() -> None:
    cluster = Cluster()
    cluster.connect()
    cluster.run_job(job(up_ms=30, down_ms=20), 15, 0)
    cluster.heap.run(500 * MS)
    for name, rank in (("h0", 0), ("h1", 1)):
        cluster.hosts[name].stop_worker("a", rank)
        cluster.hosts[name].stop_worker("a", rank)
        cluster.hosts[name].stop_worker("never", 0)
    count = len(cluster.records("h0", "a"))
    packets = cluster.hosts["h0"].nic.counters().packets
    cluster.heap.run(3_000 * MS)
    assert count == len(cluster.records("h0", "a")) > 5
    assert cluster.hosts["h0"].nic.counters().packets == packets
    assert len(cluster.bodies("h1", "job_leave")) == 1
    cluster.run_job(job(up_ms=30, down_ms=20), 3_020, 2)
    cluster.heap.run(4_000 * MS)
    assert len(cluster.records("h0", "a")) == count + 2


def test_probes_and_refusals_come_to_hand() -> None:
    cluster = Cluster()
    agent = cluster.hosts["h0"].agent
    agent.probe("a/h0>h1")
    assert cluster.said == []
    cluster.connect()
    agent.probe("a/h0>h1")
    assert cluster.bodies("h0", "probe_request")[0][1].probe_request.flow == "a/h0>h1"
    result = pb.ProbeResult(flow="a/h0>h1", path=["h0", "leaf1", "h1"], verified=True)
    agent.on_message(pb.ControllerMessage(probe_result=result))
    assert agent.probes["a/h0>h1"].path == ("h0", "leaf1", "h1")
    agent.on_message(pb.ControllerMessage(refusal=pb.Refusal(what="two agents named h0")))
    assert list(agent.refusals) == ["two agents named h0"]


def test_what_cannot_run_is_refused() -> None:
    cluster = Cluster()
    phase = PhaseSpec(MS, 1, 0, MS)
    base = job()
    for change, text in (
        ({"name": "a/b"}, "without '/'"),
        ({"phases": ()}, "at least one phase"),
        ({"phases": (dataclasses.replace(phase, down_ns=-1),)}, "negative figure"),
        ({"ring": (("h0", "h9"),)}, "must join two of h0, h1"),
        (
            {"phases": (dataclasses.replace(phase, bytes_per_flow=(1,)),)},
            "bytes of 1 flows; legal: one figure",
        ),
        ({"phases": (dataclasses.replace(phase, bytes_per_flow=(1, -1)),)}, "negative figure"),
        ({"compute_jitter": -0.1}, "jitter"),
        ({"compute_jitter": 1.1}, "jitter"),
    ):
        with pytest.raises(ValueError, match=text):
            dataclasses.replace(base, **change)
    with pytest.raises(ValueError, match="belongs to h1"):
        cluster.hosts["h0"].add_worker(base, 1, 0)
    with pytest.raises(ValueError, match="rank 2 is not in 0-1"):
        cluster.hosts["h0"].add_worker(base, 2, 0)
    cluster.hosts["h0"].add_worker(base, 0, 0)
    with pytest.raises(ValueError, match="runs already"):
        cluster.hosts["h0"].add_worker(base, 0, 0)
    with pytest.raises(ValueError, match="no iteration"):
        measured_profile([], base)


def test_each_compute_time_is_drawn_within_the_jitter() -> None:
    cluster = Cluster()
    spec = dataclasses.replace(job("a", ("h0", "h2"), 50, 40), compute_jitter=0.25)
    cluster.run_job(spec, 15, 60)
    cluster.heap.run(8_000 * MS)
    drawn = [r.compute_ns / (40 * MS) for host in cluster.hosts.values() for r in host.records]
    assert len(drawn) == 120
    assert len(set(drawn)) > 110
    assert 0.75 <= min(drawn) < 0.8
    assert 1.2 < max(drawn) <= 1.25
    assert sum(drawn) / len(drawn) == pytest.approx(1, abs=0.05)


def test_two_runs_with_one_seed_are_equal() -> None:
    def run(seed: int) -> list[IterationRecord]:
        cluster = Cluster(seed)
        for name, hosts in (("a", ("h0", "h2")), ("b", ("h1", "h3"))):
            spec = dataclasses.replace(job(name, hosts, 50, 40), compute_jitter=0.1)
            cluster.run_job(spec, 15, 4, jitter_ns=MS)
        cluster.heap.run(1_500 * MS)
        return [r for host in cluster.hosts.values() for r in host.records]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_flows_of_a_phase_may_carry_different_bytes_over_several_queue_pairs() -> None:
    cluster = Cluster()
    cluster.connect()
    # h0 sends two messages to h1 and one to h2 in the first phase; only h2 answers, in the second.
    ring = (("h0", "h1"), ("h0", "h1"), ("h0", "h2"), ("h2", "h0"))
    phases = (
        PhaseSpec(40 * MS, (up(20), up(10), up(10), 0), 0, 20 * MS),
        PhaseSpec(30 * MS, (0, 0, 0, up(30)), 0, 10 * MS),
    )
    spec = JobSpec("p", "m", 3, ("h0", "h1", "h2"), ring, phases, 1e12)
    cluster.run_job(spec, 15, 5)
    cluster.heap.run(2_000 * MS)
    records = {name: cluster.records(name, "p") for name in spec.hosts}
    assert {name: len(found) for name, found in records.items()} == {"h0": 5, "h1": 5, "h2": 5}
    assert all(r.bytes_sent == up(20) + 2 * up(10) for r in records["h0"])
    assert all(r.bytes_sent == 0 for r in records["h1"])
    # Three flows share the NIC of h0 evenly, so the two small ones end at 30 ms. Then h2 computes for 20 ms
    # and sends for 30 ms; h0 ends its second phase when those bytes have arrived.
    for r in records["h0"][1:]:
        (first, second) = r.phases
        assert first[1] - first[0] == pytest.approx(40 * MS, rel=0.05)
        assert second[1] == pytest.approx(80 * MS, rel=0.05)
    profile = measured_profile(records["h0"], spec)
    # The rate is that of the largest flow: half of what the worker sends.
    assert profile.phases[0].rate_bps == pytest.approx(RATE / 2, rel=0.06)
    join = cluster.bodies("h0", "job_join")[0][1].job_join
    assert [(f.name, f.bytes_per_iteration) for f in join.flows] == [
        ("p/h0>h1", up(20)), ("p/h0>h1#1", up(10)), ("p/h0>h2", up(10)), ("p/h2>h0", up(30)),
    ]  # fmt: skip
    # A phase's rate is what its largest flow needs on average.
    assert [p.rate_bps for p in join.phases] == [up(20) * 8000 // 40, up(30) * 8000 // 30]
