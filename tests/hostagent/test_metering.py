# SPDX-License-Identifier: Apache-2.0
"""What agents measure, and by which clock: byte counts in bins, fabric time, drift, jobs that change."""

from __future__ import annotations

import random
import socket
import time
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest
from host_bench import FRAME, MS, RATE, Bench, EventHeap
from hypothesis import given
from hypothesis import strategies as st
from training_rig import Cluster, job, up

from controller.wire import agent_pb2 as pb
from hostagent.agent import Agent
from hostagent.clock import SkewedClock
from hostagent.counts import ByteSampler, Counts, port_counter
from hostagent.fabric_time import FabricTime
from hostagent.host import EmulatedHost, Skew
from hostagent.job import JobSpec, PhaseChange, PhaseSpec
from hostagent.loop import AgentLoop
from hostagent.nic.external import ExternalNic
from polyrhythm_job.schedule import Schedule, next_slot

WAY_NS = MS


def sampler(heap: EventHeap, totals: dict[str, int], out: list[Counts], report_ms: int = 50) -> ByteSampler:
    return ByteSampler(
        heap, lambda: dict(totals), lambda: 0.0, bin_ns=5 * MS, report_ns=report_ms * MS,
        to_fabric=lambda t: t, to_local=lambda t: t, on_counts=out.append,
    )  # fmt: skip


def test_bins_add_up_to_what_was_sent_and_begin_on_the_grid() -> None:
    heap, totals, out = EventHeap(), {"a": 1000}, []
    heap.run(3 * MS)
    sampler(heap, totals, out)

    def send(count: int) -> None:
        totals["a"] += count
        totals["b"] = totals.get("b", 0) + 1
        heap.call_at(heap.now + MS, send, count + 1)

    heap.call_at(12 * MS, send, 100)
    heap.run(203 * MS)
    assert out[0].start_ns == 5 * MS
    assert all(c.start_ns + len(c.flows["a"]) * c.bin_ns == n.start_ns for c, n in pairwise(out))
    assert all((c.start_ns + len(c.flows["a"]) * c.bin_ns) % (50 * MS) == 0 for c in out)
    sent = [n for c in out for n in c.flows["a"]]
    assert sent[:2] == [0, sum(range(100, 103))]
    assert sum(sent) == sum(range(100, 100 + 188))
    assert sum(n for c in out for n in c.flows["b"]) == 188


def test_a_late_reading_is_spread_and_a_counter_that_falls_back_counts_from_zero() -> None:
    class Sluggish(EventHeap):
        delay = 0

        def call_at(self, time_ns, callback, *args):
            super().call_at(time_ns + self.delay, callback, *args)

    heap, totals, out = Sluggish(), {"a": 0}, []
    sampler(heap, totals, out)
    heap.run(10 * MS)
    heap.delay = 12 * MS
    heap.run(15 * MS)
    totals["a"] = 90
    heap.delay = 0
    heap.run(49 * MS)
    totals["a"] = 7
    heap.run(100 * MS)
    sent = [n for c in out for n in c.flows["a"]]
    assert sum(sent) == 97
    assert sorted(sent)[-4:] == [7, 30, 30, 30]


def test_a_port_counter_counts_words_of_four_octets(tmp_path: Path) -> None:
    (tmp_path / "counters").mkdir()
    (tmp_path / "counters" / "port_xmit_data").write_text("250\n")
    assert port_counter(tmp_path)() == {"": 1000}


def test_an_agent_counts_a_jobs_bytes_while_it_is_asked_to() -> None:
    cluster = Cluster()
    cluster.connect()
    cluster.run_job(job(), 15, 0)
    cluster.heap.run(100 * MS)
    ask = pb.MeasureRequest(job="a", bin_ns=5 * MS, report_ns=250 * MS)
    for host in cluster.hosts.values():
        host.agent.on_message(pb.ControllerMessage(measure=ask))
    cluster.heap.run(1_600 * MS)
    said = [m.byte_counts for _, m in cluster.bodies("h0", "byte_counts")]
    assert [c.start_ns % (250 * MS) for c in said[1:]] == [0] * (len(said) - 1)
    assert len(said) == 6
    bins = [n for c in said for n in c.flows[0].bytes]
    assert {f.flow for c in said for f in c.flows} == {"a/h0>h1"}
    assert max(bins) == pytest.approx(RATE / 8 * 0.005, rel=0.1)
    assert min(bins) == 0
    assert sum(bins) == pytest.approx(120 / 262 * 1.4 * RATE / 8, rel=0.1)
    # Half of the job's work is this worker's.
    assert sum(c.flops for c in said) == pytest.approx(5 * 0.5e12, rel=0.21)
    assert cluster.bodies("h2", "byte_counts") == []
    for host in cluster.hosts.values():
        host.agent.on_message(pb.ControllerMessage(measure=pb.MeasureRequest(job="a")))
    cluster.heap.run(3_000 * MS)
    assert len(cluster.bodies("h0", "byte_counts")) == 6


def test_an_iteration_report_tells_compute_work_and_communication_apart() -> None:
    cluster = Cluster()
    cluster.connect()
    cluster.run_job(job(), 15, 4)
    cluster.heap.run(2_000 * MS)
    for _, message in cluster.bodies("h0", "iteration"):
        said = message.iteration
        assert said.compute_ns == 140 * MS
        assert said.flops == 0.5e12
        assert said.communication_ns + said.compute_ns == said.end_ns - said.start_ns
        assert said.clock_error_ns == 0


def test_a_silent_job_reports_no_iteration() -> None:
    cluster = Cluster()
    cluster.connect()
    spec = JobSpec("a", "VGG19", 2, ("h0", "h1"), (("h0", "h1"),), job().phases, 1e12, silent=True)
    cluster.run_job(spec, 15, 4)
    cluster.heap.run(2_000 * MS)
    assert cluster.bodies("h0", "iteration") == []
    assert all(m.job_join.silent for _, m in cluster.bodies("h0", "job_join"))
    assert len(cluster.records("h0", "a")) == 4


def test_a_job_changes_its_pattern_at_the_iteration_it_is_told_to() -> None:
    cluster = Cluster()
    cluster.connect()
    later = (PhaseSpec(60 * MS, up(60), 0, 200 * MS), PhaseSpec(30 * MS, up(30), 0, 90 * MS))
    spec = JobSpec(
        "a", "VGG19", 2, ("h0", "h1"), (("h0", "h1"), ("h1", "h0")), job().phases, 1e12,
        changes=(PhaseChange(3, later, 2e12),),
    )  # fmt: skip
    cluster.run_job(spec, 15, 6)
    cluster.heap.run(4_000 * MS)
    records = cluster.records("h1", "a")
    assert [len(r.phases) for r in records] == [1, 1, 1, 2, 2, 2]
    assert [r.compute_ns // MS for r in records] == [140] * 3 + [290] * 3
    assert [r.flops for r in records] == pytest.approx([0.5e12] * 3 + [1e12] * 3)
    with pytest.raises(ValueError, match="in the order"):
        JobSpec("a", "m", 1, ("h0",), (), later, 1.0, changes=(PhaseChange(3, later, 1.0),) * 2)


@given(
    st.integers(-(10**12), 10**12),
    st.floats(-100, 100),
    st.lists(st.tuples(st.integers(1, 5 * 10**9), st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1),
)
def test_fabric_time_is_right_to_its_bound(
    offset: int, drift: float, exchanges: list[tuple[int, int, int]]
) -> None:
    base = EventHeap()
    local = SkewedClock(base, offset, drift)
    time = FabricTime(shared=False)
    assert not time.known
    now = 0
    for gap, there, back in exchanges:
        now += gap
        sent = local.reading(now)
        arrived = local.reading(now + there + back + 500)
        time.add(sent, now + there, now + there + 500, arrived)
        now += there + back + 500
        for later in (0, 1, 10**6, 10**9, 7 * 10**9):
            shown = local.reading(now + later)
            assert abs(time.to_fabric(shown) - (now + later)) <= time.error_ns(shown) + 3
            assert abs(time.to_local(time.to_fabric(shown)) - shown) <= 3
    assert time.known


def test_what_keeps_the_loop_busy_is_no_way_of_the_controllers_answer() -> None:
    """An answer comes while the agent's loop is in a callback, where its time stands still: the bound of the error
    must hold all the same. Asking late, as after a timer that was due earlier, makes it no worse either."""
    loop = AgentLoop()
    asked: list[int] = []

    def send(message: pb.AgentMessage) -> None:
        if message.HasField("clock_request"):
            asked.append(message.clock_request.sent_ns)

    nic = ExternalNic("none", "127.0.0.1")
    agent = Agent(
        "h1", "127.0.0.1", nic, loop, send, addresses={}, shared_clock=False, present=time.monotonic_ns
    )
    ours, theirs = socket.socketpair()

    def busy() -> None:
        ours.recv(1)
        time.sleep(0.03)
        # This host's clock is the fabric's here, so that the offset is 0.
        now = time.monotonic_ns()
        reply = pb.ClockReply(sent_ns=asked[0], received_ns=now, replied_ns=now)
        loop.call(agent.on_message, pb.ControllerMessage(clock=reply), time.monotonic_ns())
        loop.call(loop.stop)

    loop.watch(ours.fileno(), busy)
    loop.call_at(loop.now, agent.session_up)
    loop.call_at(loop.now, agent.on_message, pb.ControllerMessage(welcome=pb.Welcome()))
    loop.call_at(loop.now + 10 * MS, theirs.send, b"x")
    loop.run()
    loop.close()
    ours.close()
    theirs.close()
    shown = time.monotonic_ns()
    assert abs(agent.time.to_fabric(shown) - shown) <= agent.time.error_ns(shown)
    assert agent.time.error_ns(shown) >= 10 * MS


def test_exchanges_far_apart_tell_the_drift() -> None:
    time, local = FabricTime(shared=False), SkewedClock(EventHeap(), 5_000, 80.0)
    for second in range(0, 60, 4):
        now = second * 10**9
        time.add(local.reading(now), now + MS // 2, now + MS // 2, local.reading(now + MS))
    shown = local.reading(70 * 10**9)
    assert abs(time.to_fabric(shown) - 70 * 10**9) <= 100_000
    assert time.error_ns(shown) < 1.2 * MS


def test_a_clock_that_is_set_is_believed_again() -> None:
    time = FabricTime(shared=False)
    time.add(0, 1_000, 1_000, 2_000)
    time.add(10**9, 10**9 + 1_000, 10**9 + 1_000, 10**9 + 2_000)
    time.add(0, 2 * 10**9, 2 * 10**9, 1_000)
    assert abs(time.to_fabric(500) - 2 * 10**9) <= time.error_ns(500)
    time.add(5_000, 0, 10_000, 6_000)  # came back before it had been answered
    assert abs(time.to_fabric(500) - 2 * 10**9) <= time.error_ns(500)


def test_a_phase_waits_past_the_threshold_only_and_not_by_a_clock_it_cannot_trust() -> None:
    schedule = Schedule(0, 0, 100 * MS, realign=0.1)
    assert next_slot(1_009 * MS, schedule).drift_ns == 9 * MS
    assert next_slot(1_011 * MS, schedule).delay_ns == 89 * MS
    assert next_slot(1_011 * MS, schedule).realigned
    assert not next_slot(1_095 * MS, schedule).realigned
    assert next_slot(1_011 * MS, schedule, error_ns=11 * MS).delay_ns == 0


class Skewed(Cluster):
    """Hosts with clocks of their own, and a controller that tells the time, a millisecond away."""

    def __init__(self, skews: dict[str, Skew]) -> None:
        super().__init__()
        addresses = {name: Bench.ip(i) for i, name in enumerate(self.hosts)}
        for i, name in enumerate(list(self.hosts)):
            host = EmulatedHost(
                name, Bench.ip(i), Bench.mac(i), Bench.mac(9), RATE, clock=self.heap, transmit=self.hop,
                send=self.answer(name), addresses=addresses, seed=3, skew=skews[name],
            )  # fmt: skip
            self.hosts[name] = host
            self.down[host.nic.ip]._deliver = self.last_hop(host)
        self.draw = random.Random(5)

    def answer(self, name: str):
        def send(message: pb.AgentMessage) -> None:
            self.said.append((self.heap.now, name, message))
            if message.WhichOneof("body") == "clock_request":
                there, back = self.draw.randint(0, 2 * WAY_NS), self.draw.randint(0, 2 * WAY_NS)
                at = self.heap.now + there
                said = pb.ClockReply(sent_ns=message.clock_request.sent_ns, received_ns=at, replied_ns=at)
                reply = pb.ControllerMessage(clock=said)
                self.heap.call_at(at + back, self.hosts[name].agent.on_message, reply)

        return send


def test_hosts_whose_clocks_are_minutes_apart_keep_the_shift_within_the_bound() -> None:
    draw = random.Random(11)
    skews = {f"h{i}": Skew(draw.randint(-(10**11), 10**11), draw.uniform(-100, 100)) for i in range(4)}
    cluster = Skewed(skews)
    cluster.connect()
    cluster.heap.run(20 * MS)
    for name, hosts, shift in (("a", ("h0", "h2"), 0), ("b", ("h1", "h3"), 130)):
        cluster.run_job(job(name, hosts), 50, 40)
        said = pb.JobSchedule(job=name, epoch_ns=30 * MS, shift_ns=shift * MS, period_ns=263 * MS)
        for host in hosts:
            cluster.hosts[host].agent.on_message(pb.ControllerMessage(schedule=said))
    cluster.heap.run(12_000 * MS)
    for name, host, shift in (("a", "h0", 0), ("b", "h1", 130)):
        records = [r for r in cluster.records(host, name) if r.index >= 2]
        assert len(records) == 38
        assert mean(r.end_ns - r.start_ns for r in records) == pytest.approx(263 * MS, rel=1e-3)
        bound = max(m.iteration.clock_error_ns for _, m in cluster.bodies(host, "iteration"))
        assert 0 < bound < 4 * MS
        for record in records:
            off = (record.start_ns - (30 + shift) * MS + 131 * MS) % (263 * MS) - 131 * MS
            # What its ring neighbour is off adds to its own.
            assert abs(off) <= 2 * bound + FRAME * 8e9 / RATE
        told = [m.iteration for _, m in cluster.bodies(host, "iteration")]
        by_index = {r.index: r for r in records}
        for said in told[2:]:
            assert abs(said.start_ns - by_index[said.index].start_ns) <= bound
    assert cluster.trunk.marks == 0


def test_without_fabric_time_a_job_runs_free() -> None:
    skewed = Skewed({f"h{i}": Skew(10**10, 0.0) for i in range(4)})
    for host in skewed.hosts.values():
        host.agent.session_up()  # never welcomed: nobody tells the time
    said = pb.JobSchedule(job="a", epoch_ns=0, shift_ns=0, period_ns=900 * MS)
    for name in ("h0", "h1"):
        skewed.hosts[name].agent.on_message(pb.ControllerMessage(schedule=said))
    skewed.run_job(job(), 50, 5)
    skewed.heap.run(3_000 * MS)
    assert [r.held_ns for r in skewed.records("h0", "a")] == [0] * 5
