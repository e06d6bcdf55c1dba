# SPDX-License-Identifier: Apache-2.0
"""The core and its parts, without a socket."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from control_rig import RATE_BPS, job, on_loop
from hypothesis import given
from hypothesis import strategies as st

from controller.agents.channels import ChannelCounts
from controller.agents.translate import WelcomeTerms, to_agent
from controller.live.core import Core
from controller.live.counters import FabricCounters
from controller.live.iterations import IterationStats, PeriodCheck
from controller.live.job_registry import JobRegistry, JoinError
from controller.live.link_loads import LinkLoads
from controller.live.link_state import (
    GRACE_NS,
    MAX_LOST_PROBES,
    PROBE_INTERVAL_NS,
    LinkState,
    build_link_probe,
    parse_link_probe,
)
from controller.live.measuring import MeasureSettings
from controller.live.messages import (
    AgentUp,
    FlowAsked,
    IterationReport,
    PacketSeen,
    PortsSeen,
    SendAssignment,
    SendRefusal,
    SendSchedule,
    SwitchLost,
    SwitchReady,
    WorkerJoined,
    WorkerLeft,
)
from controller.live.notices import (
    JobArrived,
    JobLeft,
    PlanApplied,
)
from controller.live.plan_inputs import PLAN_LEAD_NS
from controller.live.settings import CoreSettings
from controller.model.job import Confidence, Measurement, Phase, Profile
from controller.model.traffic import TRAFFIC_CLASSES
from controller.planner import POLICIES, plan
from controller.process.clock import PeriodicTimer
from controller.southbound.codec import CounterValue
from topo.generate import leaf_spine

MS = 1_000_000
TOPOLOGY = leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


def new_core(policy="polyrhythm", verify=False):
    core = Core(CoreSettings(TOPOLOGY, POLICIES[policy], 1, verify, 10_000))
    for host in TOPOLOGY.host:
        core.handle(AgentUp(host, "udp"))
    core.take_effects()
    return core


def join(core, member):
    for rank, host in enumerate(member.hosts):
        core.handle(WorkerJoined(host, rank, member))


def replan(core):
    core.adopt(plan(core.plan_input()))
    return core.take_effects()


def test_jobs_of_one_moment_share_one_plan():
    core = new_core()
    a, b = job("a", "h1", "h3"), job("b", "h2", "h4")
    core.now_ns = 5
    join(core, a)
    core.handle(WorkerJoined("h2", 0, b))
    assert [n.job.name for n in core.take_notices() if isinstance(n, JobArrived)] == ["a"]
    core.handle(WorkerJoined("h4", 1, b))
    assert core.wants_plan
    asked = core.plan_input()
    assert [j.name for j in asked.jobs] == ["a", "b"]
    assert asked.epoch_ns == 5 + PLAN_LEAD_NS
    assert not core.wants_plan


def test_a_worker_that_has_measured_another_profile_is_planned_for_anew():
    """Agents observe jobs that say nothing: the worker that was wrong leaves, and joins with what it sees now."""
    core = new_core()
    wrong = job("a", "h1", "h3")
    join(core, wrong)
    replan(core)
    period = wrong.profile.period_ns
    core.handle(WorkerLeft("h3", 1, "a"))
    a_little = replace(wrong.profile, period_ns=round(1.1 * period))
    core.handle(WorkerJoined("h3", 1, replace(wrong, profile=a_little)))
    assert not core.wants_plan
    core.handle(WorkerLeft("h3", 1, "a"))
    longer = replace(wrong.profile, period_ns=11 * period)
    flows = tuple(replace(f, bytes_per_iteration=7 * f.bytes_per_iteration) for f in wrong.flows)
    core.handle(WorkerJoined("h3", 1, replace(wrong, profile=longer, flows=flows)))
    assert core.wants_plan
    (planned,) = core.plan_input().jobs
    assert (planned.profile, planned.flows) == (longer, flows)
    # One that has not left says what it measured when it began.
    core.handle(WorkerJoined("h1", 0, wrong))
    assert not core.wants_plan


def test_a_flow_is_answered_by_the_plan_at_once_or_as_soon_as_there_is_one():
    core = new_core()
    member = job("a", "h1", "h3")
    core.handle(WorkerJoined("h1", 0, member))
    core.handle(FlowAsked("h1", "a/h1>h3"))
    assert core.take_effects() == ()
    core.handle(WorkerJoined("h3", 1, member))
    effects = replan(core)
    (answer,) = [e for e in effects if isinstance(e, SendAssignment)]
    assert (answer.host, answer.flow) == ("h1", "a/h1>h3")
    assert {e.host for e in effects if isinstance(e, SendSchedule)} == {"h1", "h3"}
    core.handle(FlowAsked("h1", "a/h1>h3"))
    assert core.take_effects() == (answer,)
    core.handle(FlowAsked("h1", "a/no>such"))
    assert core.take_effects() == (SendAssignment("h1", "a/no>such", 0, 0),)


def test_a_new_plan_tells_agents_only_what_has_changed():
    core = new_core()
    a = job("a", "h1", "h3")
    join(core, a)
    core.handle(FlowAsked("h1", "a/h1>h3"))
    assert replan(core)
    core.now_ns = 10_000_000
    core.handle(WorkerJoined("h2", 0, job("b", "h2", "h4")))
    core.wants_plan = True
    assert replan(core) == ()


def test_arrivals_and_departures_push_only_what_moves():
    """Six jobs fill three spines evenly; when two of one spine leave, one flow each way moves, no more."""
    fabric = leaf_spine(2, 3, 8, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
    core = Core(CoreSettings(fabric, POLICIES["routing"], 1, False, 1))
    jobs = [job(f"j{i}", f"h{i}", f"h{i + 8}") for i in range(1, 7)]
    for member in jobs:
        join(core, member)
        for flow in member.flows:
            core.handle(FlowAsked(flow.src, flow.name))
        core.take_effects()
        told = [e for e in replan(core) if isinstance(e, SendAssignment)]
        # Each arrival is told of its own flows, and nobody else of anything.
        assert [e.flow for e in told] == [f.name for f in member.flows]
    spine = {m.name: core.plan.flows[m.flows[0].name].path[2] for m in jobs}
    assert sorted(spine.values()) == ["spine1", "spine1", "spine2", "spine2", "spine3", "spine3"]
    gone = [m for m in jobs if spine[m.name] == "spine2"]
    for member in (*gone, next(m for m in jobs if spine[m.name] == "spine1")):
        for rank, host in enumerate(member.hosts):
            core.handle(WorkerLeft(host, rank, member.name))
    before = dict(core.plan.flows)
    told = [e for e in replan(core) if isinstance(e, SendAssignment)]
    moved = {n for n, f in core.plan.flows.items() if f.path != before[n].path}
    assert {e.flow for e in told} == moved
    assert len({f.rpartition("/")[2].partition(">")[0] for f in moved}) == len(moved) <= 2
    ways = [f.path[1:4] for f in core.plan.flows.values()]
    assert len(set(ways)) == len(ways) == 6
    assert replan(core) == ()


def test_rate_caps_reach_the_agents():
    core = Core(CoreSettings(TOPOLOGY, POLICIES["routing"].with_options({"cap_epsilon": 0.25}), 1, False, 1))
    member = job("a", "h1", "h3")
    join(core, member)
    core.handle(FlowAsked("h1", "a/h1>h3"))
    (told,) = [e for e in replan(core) if isinstance(e, SendAssignment)]
    assert told.rate_cap_bps == RATE_BPS * 1.25
    assert to_agent(told, WelcomeTerms("routing", TRAFFIC_CLASSES, 1)).flow.rate_cap_bps == told.rate_cap_bps


def test_a_job_leaves_with_its_last_worker():
    core = new_core()
    join(core, job("a", "h1", "h3"))
    replan(core)
    core.handle(WorkerLeft("h1", 0, "a"))
    assert not core.wants_plan
    core.handle(WorkerLeft("h3", 1, "a"))
    assert core.wants_plan
    assert any(isinstance(n, JobLeft) for n in core.take_notices())
    replan(core)
    assert core.plan.flows == {}
    core.handle(WorkerLeft("h3", 1, "a"))
    assert not core.wants_plan


def test_a_broken_link_asks_for_tables_and_a_plan():
    core = new_core()
    for name in TOPOLOGY.switch:
        core.handle(SwitchReady(name, dict.fromkeys(TOPOLOGY.ports[name], True)))
    assert not core.wants_tables
    join(core, job("a", "h1", "h3"))
    replan(core)
    before = core.plan.flows["a/h1>h3"].path[2]
    port = next(p for p, peer in TOPOLOGY.ports["leaf1"].items() if peer.node == before)
    core.handle(PortsSeen("leaf1", {port: False}))
    assert core.wants_tables
    assert core.take_condition().down_links == {("leaf1", before)}
    assert core.wants_plan
    replan(core)
    assert core.plan.flows["a/h1>h3"].path[2] != before
    core.handle(PortsSeen("leaf1", {port: True}))
    core.handle(SwitchLost("spine1", "gone"))
    core.now_ns += GRACE_NS
    core.run_timers()
    assert core.take_condition().down_switches == {"spine1"}


def test_a_session_that_comes_back_in_time_was_no_lost_switch():
    core = new_core()
    for name in TOPOLOGY.switch:
        core.handle(SwitchReady(name, dict.fromkeys(TOPOLOGY.ports[name], True)))
    join(core, job("a", "h1", "h3"))
    replan(core)
    core.now_ns = 7
    core.handle(SwitchLost("spine1", "gone"))
    # It forwards by what it holds: neither tables nor paths change.
    assert not core.wants_tables
    assert core.next_timer_ns == 7 + GRACE_NS
    core.now_ns = 6 + GRACE_NS
    core.run_timers()
    core.handle(SwitchReady("spine1", dict.fromkeys(TOPOLOGY.ports["spine1"], True)))
    assert core.next_timer_ns is None
    core.now_ns = 9 * GRACE_NS
    core.run_timers()
    assert not core.wants_tables
    assert not core.wants_plan


def test_a_switch_without_a_session_whose_neighbours_ports_go_down_is_left_at_once():
    core = new_core()
    for name in TOPOLOGY.switch:
        core.handle(SwitchReady(name, dict.fromkeys(TOPOLOGY.ports[name], True)))
    core.handle(SwitchLost("spine1", "gone"))
    for leaf in ("leaf1", "leaf2"):
        port = next(p for p, peer in TOPOLOGY.ports[leaf].items() if peer.node == "spine1")
        core.handle(PortsSeen(leaf, {port: False}))
    assert core.wants_tables
    assert core.take_condition().down_links == {("leaf1", "spine1"), ("leaf2", "spine1")}


def test_without_grace_a_lost_session_is_a_lost_switch():
    links = LinkState(TOPOLOGY, 0)
    links.switch_lost(5, "spine1")
    assert links.condition.down_switches == {"spine1"}


def test_a_switch_that_never_had_a_session_is_lost_some_time_after_the_start():
    links = LinkState(TOPOLOGY, 1, 100)
    links.due(7)
    others = sorted(TOPOLOGY.switch.keys() - {"spine1"})
    for name in others:
        links.switch_ready(50, name, {})
    assert links.next_timer_ns == 107
    links.due(106)
    assert links.condition.down_switches == frozenset()
    links.due(107)
    assert links.condition.down_switches == {"spine1"}
    links.switch_ready(200, "spine1", {})
    assert links.condition.down_switches == frozenset()


@given(st.integers(1, 50), st.booleans(), st.lists(st.integers(0, 30), max_size=30))
def test_what_is_done_every_so_often_is_done_once_an_interval(interval, at_once, steps):
    every, now, done = PeriodicTimer(interval, at_once), 0, []
    for i, step in enumerate(steps):
        now += step
        if every.due(now):
            done.append(now)
            assert i > 0 or at_once
        assert every.next_ns is not None
        assert now < every.next_ns <= now + interval
    assert len({t // interval for t in done}) == len(done)


def test_paths_not_probed_count_as_unverified():
    core = new_core(verify=False)
    join(core, job("a", "h1", "h3"))
    replan(core)
    (applied,) = [n for n in core.take_notices() if isinstance(n, PlanApplied)]
    assert applied.verified == ()
    assert applied.unverified == ("a/h1>h3", "a/h3>h1")


def test_a_plan_is_announced_when_its_probes_are_over():
    core = new_core(verify=True)
    join(core, job("a", "h1", "h3"))
    replan(core)
    assert not any(isinstance(n, PlanApplied) for n in core.take_notices())
    for _ in range(3):
        core.now_ns = core.next_timer_ns
        core.run_timers()
    (applied,) = [n for n in core.take_notices() if isinstance(n, PlanApplied)]
    assert len(applied.unverified) == 2
    assert core.next_timer_ns is None


def test_flows_of_no_job_go_by_ecmp_and_fill_no_log(caplog):
    core = new_core()
    core.handle(AgentUp("h1", "udp"))
    for number in range(100):
        core.handle(FlowAsked("h1", f"nobody/{number}"))
    answers = [e for e in core.take_effects() if isinstance(e, SendAssignment)]
    assert [a.source_port for a in answers] == [0] * 100
    assert sum("belongs to no job" in r.message for r in caplog.records if r.levelname == "WARNING") == 1
    core.handle(AgentUp("h1", "udp"))
    core.handle(FlowAsked("h1", "nobody/0"))
    assert sum("belongs to no job" in r.message for r in caplog.records if r.levelname == "WARNING") == 2


def test_a_garbled_probe_is_a_packet_like_any_other():
    core = new_core()
    core.handle(PacketSeen("leaf1", 3, 1, 0, b"\0" * 80))
    (notice,) = core.take_notices()
    assert (notice.switch, notice.ingress_port) == ("leaf1", 3)


@pytest.mark.parametrize(
    "change",
    [
        {"hosts": ("h1", "mars")},
        {"profile": Profile(0, (Phase(0, 1, 1),))},
        {"profile": Profile(100, (Phase(0, 200, 1),))},
        {"profile": Profile(100, (Phase(50, 60, 1), Phase(0, 10, 1)))},
        {"profile": Profile(100, (Phase(0, 10, 0),))},
        {"profile": Profile(100, (Phase(0, 10, 10**15 + 1),))},
        {"flows": job("a", "h1", "h3").flows * 2},
    ],
)
def test_a_job_that_makes_no_sense_is_refused(change):
    core = new_core()
    core.handle(WorkerJoined("h1", 0, replace(job("a", "h1", "h3"), **change)))
    (refusal,) = core.take_effects()
    assert isinstance(refusal, SendRefusal)
    assert "job a" in refusal.what
    assert core.registry.jobs == ()


def test_hosts_may_call_their_pcie_links_differently():
    members = JobRegistry(TOPOLOGY)
    a = replace(job("a", "h1", "h3"), pcie_link="17:00.0", pcie_bps=10**9)
    members.join("h1", 0, a)
    members.join("h3", 1, replace(a, pcie_link="18:00.0"))
    assert members.jobs == (a,)


def test_workers_must_agree_on_their_job_and_flows_belong_to_one():
    members = JobRegistry(TOPOLOGY)
    a = job("a", "h1", "h3")
    members.join("h1", 0, a)
    with pytest.raises(JoinError, match="differently"):
        members.join("h3", 1, replace(a, gpus=99))
    with pytest.raises(JoinError, match="does not have rank"):
        members.join("h2", 7, a)
    thief = replace(job("b", "h1", "h3"), flows=tuple(replace(f, job="b") for f in a.flows))
    with pytest.raises(JoinError, match="legal: it begins with b/"):
        members.join("h1", 0, thief)
    assert members.join("h3", 1, a)
    assert not members.join("h3", 1, a)


# Link probes.


@given(st.integers(1, 2**32 - 1), st.integers(1, 511), st.integers(0, 2**32 - 1))
def test_a_link_probe_survives_the_wire(device, port, sequence):
    frame = build_link_probe(device, port, sequence, "02:01:00:00:00:01")
    assert len(frame) == 60
    assert parse_link_probe(frame) == (device, port, sequence)


@given(st.binary(max_size=80))
def test_other_frames_are_no_link_probes(frame):
    assert parse_link_probe(frame) is None


def test_three_missed_probes_take_a_link_down_and_one_brings_it_back():
    links = LinkState(TOPOLOGY)
    for name in TOPOLOGY.switch:
        links.switch_ready(0, name, None)
    broken = ("leaf1", 3)
    now, downs = 0, []
    for _ in range(MAX_LOST_PROBES + 2):
        now = links.next_timer_ns
        frames, moves = links.due(now)
        downs += [(now, move) for move in moves]
        assert len(frames) == 2 * len(TOPOLOGY.links)
        for frame in frames:
            if (frame.switch, frame.egress_port) != broken:
                assert links.probe_seen("anyone", frame.payload) == ()
    ((when, down),) = downs
    assert (down.switch, down.port, down.up) == (*broken, False)
    assert when == MAX_LOST_PROBES * PROBE_INTERVAL_NS
    assert links.condition.down_links == {("leaf1", "spine1")}
    frames, _ = links.due(links.next_timer_ns)
    (back,) = links.probe_seen(
        "spine1", next(f for f in frames if (f.switch, f.egress_port) == broken).payload
    )
    assert back.up
    assert links.condition.down_links == frozenset()


def test_link_probes_go_only_where_a_target_is_silent():
    links = LinkState(TOPOLOGY)
    for name in TOPOLOGY.switch:
        links.switch_ready(0, name, None if name == "spine2" else {})
    frames, _ = links.due(0)
    assert {(f.switch, f.egress_port) for f in frames} == {
        ("leaf1", 4), ("leaf2", 4), ("spine2", 1), ("spine2", 2)
    }  # fmt: skip
    links.switch_ready(0, "spine2", {})
    assert links.next_timer_ns is None


# Figures.


def report(index, rank, ms):
    return IterationReport("h1", "a", rank, index, 0, round(ms * 1e6), 0, 0, 0, 0, 0)


def test_an_iteration_takes_as_long_as_its_slowest_worker():
    stats = IterationStats(2)
    assert stats.mean_ms is None
    for index, (first, second) in enumerate([(10, 12), (14, 11)]):
        stats.add(report(index, 0, first))
        stats.add(report(index, 0, 99))
        assert stats.count == index
        stats.add(report(index, 1, second))
    assert stats.recent_ms == (12, 14)
    assert stats.mean_ms == 13


def iteration(name, index, own_ms, *, held_ms=0.0, marks=0):
    start = index * 1_000_000_000
    end = start + round((own_ms + held_ms) * 1e6)
    return IterationReport("h1", name, 0, index, start, end, 0, 0, marks, 0, round(held_ms * 1e6))


def two_that_take_turns():
    """A core with two jobs on one link whose plan holds both to a period."""
    fabric = leaf_spine(2, 1, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
    core = Core(CoreSettings(fabric, POLICIES["polyrhythm"], 1, False, 1))
    join(core, job("a", "h1", "h3"))
    join(core, job("b", "h2", "h4"))
    replan(core)
    return core


@pytest.mark.parametrize(
    ("own_ms", "marks", "corrected"),
    [(261.3, 0, True), (240.0, 0, True), (259.0, 0, False), (280.0, 12, False)],
)
def test_a_profile_that_is_off_is_corrected_by_what_the_job_takes(own_ms, marks, corrected):
    core = two_that_take_turns()
    planned = core.plan.jobs["a"].period_ns
    assert planned is not None
    for index in range(8):
        held = max(0.0, planned / 1e6 - own_ms)
        core.handle(iteration("a", index, own_ms, held_ms=held, marks=marks))
    assert core.wants_plan is corrected
    period = core.registry.get("a").profile.period_ns
    assert period == (round(own_ms * 1e6) if corrected else 260_000_000)
    if own_ms > 260 and corrected:
        replan(core)
        # Together they are held to what the slower one takes.
        assert core.plan.jobs["a"].period_ns == core.plan.jobs["b"].period_ns >= own_ms * 1e6


def test_one_straggler_is_no_change_of_pace():
    core = two_that_take_turns()
    for index, own_ms in enumerate([260, 260, 300, 300, 300, 260, 300, 300, 300, 260]):
        core.handle(iteration("a", index, own_ms))
    assert not core.wants_plan


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=300))
def test_the_p99_is_by_nearest_rank(times):
    stats = IterationStats(1)
    for index, ms in enumerate(times):
        stats.add(report(index, 0, ms))
    assert sum(t <= stats.p99_ms for t in times) >= 0.99 * len(times)
    assert sum(t < stats.p99_ms for t in times) < 0.99 * len(times)
    assert stats.recent_ms == tuple(times[-120:])


def test_loads_come_from_differences_of_totals():
    counters = FabricCounters(TOPOLOGY)

    def poll(now_ns, total_bytes, marks):
        values = [
            CounterValue("egress_packets", 3, 6, 10, total_bytes),
            CounterValue("ecn_marks", 3, 6, marks, 0),
        ]
        counters.read(now_ns, {"leaf1": values})
        links = LinkLoads(TOPOLOGY, counters.loads)
        assert all(k.load is None for k in links if k.src != "leaf1" or k.src_port != 3), "nothing was read"
        read = [None if np.isnan(load) else (load, marks) for load, marks in counters.figures.T]
        assert read == [(k.load, k.marks) if k.load is not None else None for k in links[: len(read)]]
        return next(k for k in links if (k.src, k.dst) == ("leaf1", "spine1"))

    assert poll(0, 1000, 5).load is None, "one poll is no difference"
    half = RATE_BPS // 8 // 20
    busy = poll(100_000_000, 1000 + half, 9)
    assert busy.load == pytest.approx(0.5)
    assert busy.marks == 4
    assert busy.rate_bps == RATE_BPS // 2
    # A pushed pipeline starts from zero: no load can be told from that.
    assert poll(200_000_000, 10, 0).load is None
    assert counters.queues[0].bytes == 10


# Channels.


def test_what_is_announced_is_waited_for_and_a_lost_session_is_not():
    async def scenario():
        channels = ChannelCounts()
        waiting = asyncio.create_task(channels.wait({"agent:h1": 2, "packet_in:s": 1}, 10))
        channels.arrived("agent:h1", 2)
        await asyncio.sleep(0)
        assert not waiting.done()
        channels.lost("packet_in:s")
        assert await waiting == ()
        # After the session is back the count goes on from what was announced.
        channels.opened("packet_in:s")
        assert await channels.wait({"packet_in:s": 2}, 0.01) == ("packet_in:s",)
        channels.arrived("packet_in:s")
        assert await channels.wait({"packet_in:s": 3}, 10) == ()

    on_loop(scenario())


@pytest.mark.parametrize(("width_ms", "own_ms", "agreed"), [
    (0, (265, 266, 264, 265), 265), (6, (265, 266, 264, 265), None), (6, (275, 268, 271, 270), 270),
    (0, (250, 251, 249, 250), 250), (12, (250, 251, 249, 250), None),
])  # fmt: skip
def test_a_period_is_corrected_only_beyond_what_it_is_known_to(width_ms, own_ms, agreed):
    check = PeriodCheck()
    found = [
        check.add(
            IterationReport("h1", "a", 0, i, 0, own * MS, 120 * MS, 1, 0, 0, 0),
            260 * MS,
            263 * MS,
            width_ms * MS,
        )
        # An iteration is looked at when the next one is reported.
        for i, own in enumerate([*own_ms, 260])
    ]
    assert found[:-1] == [None] * 4
    last = found[-1].period_ns if found[-1] is not None else None
    assert last == (None if agreed is None else pytest.approx(agreed * MS, abs=MS))


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize(("first", "communication_ms", "corrected"), [
    (0, 190, False), (0, 122, True), (20, 190, True),
], ids=["collides at first", "computes for longer", "collides when all have settled"])  # fmt: skip
def test_jobs_that_collide_until_all_have_found_their_slots_keep_their_periods(
    first, communication_ms, corrected, declared
):
    one_spine = leaf_spine(2, 1, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
    unmeasured = MeasureSettings(enabled=False)
    core = Core(CoreSettings(one_spine, POLICIES["polyrhythm"], 1, False, 10_000, measure=unmeasured))
    for name, hosts in (("a", ("h1", "h3")), ("b", ("h2", "h4"))):
        join(core, job(name, *hosts))
        measured = Measurement(6, 120 * MS, 140 * MS, None, "iterations")
        if not declared:
            core.registry.take_measured(replace(core.registry.get(name), measured=measured))
    replan(core)
    period = core.plan.jobs["b"].period_ns
    assert period is not None
    start = core.plan.epoch_ns + core.plan.jobs["b"].shift_ns + first * period
    for index in range(5):
        end = start + 330 * MS
        core.now_ns = end
        core.handle(IterationReport("h2", "b", 0, index, start, end, communication_ms * MS, 1, 0, 0, 0))
        start = end
    assert (core.registry.get("b").profile.period_ns != 260 * MS) == corrected


def test_twins_lose_their_slots_to_a_wrong_correction_only_for_some_iterations():
    core = two_that_take_turns()
    for index, own_ms in enumerate([266.5, 266.9, 266.7, 266.8, 266.7, 266.7]):
        core.handle(iteration("a", index, own_ms))
    replan(core)
    assert core.registry.get("a").profile.period_ns == pytest.approx(266.7 * MS, abs=MS)
    assert core.plan.jobs["a"].period_ns is None, "2.6 % is more than a period may be stretched by"
    start = core.now_ns
    for index in range(10, 16):
        # Contention: 330 ms with ECN marks, of which it computes for 140 as before.
        core.handle(IterationReport("h1", "a", 0, index, start, start + 330 * MS, 190 * MS, 1, 50, 0, 0))
        start += 330 * MS
    assert core.registry.get("a").profile.period_ns == 260 * MS
    replan(core)
    assert core.plan.jobs["a"].period_ns == core.plan.jobs["b"].period_ns is not None


def test_a_job_without_slots_keeps_a_period_that_nothing_has_corrected():
    core = Core(
        CoreSettings(
            leaf_spine(2, 1, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS), POLICIES["crux"], 1, False, 1
        )
    )
    join(core, job("a", "h1", "h3"))
    join(core, job("b", "h2", "h4"))
    replan(core)
    for index in range(8):
        core.handle(iteration("a", index, 240))
    assert core.registry.get("a").profile.period_ns == 260 * MS


def two_measured(slots):
    """A core that measures, and two jobs on one link that it has measured: 260 ms, 120 of them communicating.
    Its policy has `slots` or levels only."""
    fabric = leaf_spine(2, 1, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
    measure = MeasureSettings(window_ns=60_000 * MS)
    policy = POLICIES["polyrhythm" if slots else "crux"]
    core = Core(CoreSettings(fabric, policy, 1, False, 10_000, measure=measure))
    for name, hosts in (("a", ("h1", "h3")), ("b", ("h2", "h4"))):
        own = job(name, *hosts)
        known = Confidence(3 * MS, ((MS, MS),))
        measured = replace(own, measured=Measurement(6, 120 * MS, 140 * MS, None, "iterations", known))
        join(core, own)
        core.measuring.restored(measured)
        core.registry.take_measured(measured)
    core.wants_plan = True
    replan(core)
    assert core.measuring.profiled is None
    assert (core.plan.jobs["b"].period_ns is not None) == slots
    return core


def reports(core, name, count, own_ms, communication_ms):
    """So many iterations of a job, one after another, each as long."""
    start = core.now_ns
    hosts = core.registry.get(name).hosts
    for index in range(count):
        end = start + own_ms * MS
        core.now_ns = end
        for rank, host in enumerate(hosts):
            core.handle(
                IterationReport(host, name, rank, index, start, end, communication_ms * MS, 1, 0, 0, 0)
            )
        start = end


@pytest.mark.parametrize(("count", "own_ms", "communication_ms", "doubted"), [
    (50, 290, 150, True), (30, 290, 150, False), (50, 271, 131, False), (50, 290, 122, False),
], ids=["long", "not for long", "by little", "computes for longer"])  # fmt: skip
def test_a_job_that_long_communicates_for_longer_is_measured_and_not_believed(
    count, own_ms, communication_ms, doubted, caplog
):
    """After new slots 8 periods do not count, after a measurement 18 iterations, then 12 in a row do."""
    core = two_measured(slots=True)
    with caplog.at_level("INFO"):
        reports(core, "b", count, own_ms, communication_ms)
    assert core.measuring.waits("b") == doubted
    assert ("it communicates for longer than when it was measured" in caplog.text) == doubted
    assert (core.registry.get("b").profile.period_ns == 260 * MS) == (communication_ms == 150)


def test_a_period_that_grows_little_by_little_is_measured_in_the_end():
    """Each correction is small; all of them together are not."""
    core = two_measured(slots=True)
    reports(core, "b", 50, 271, 131)
    assert core.registry.get("b").profile.period_ns == 271 * MS
    assert core.wants_plan
    assert not core.measuring.waits("b")
    replan(core)
    reports(core, "b", 50, 280, 140)
    assert core.registry.get("b").profile.period_ns == 271 * MS
    assert core.measuring.waits("b")


@pytest.mark.parametrize(("own_ms", "doubted"), [(240, True), (258, False), (300, False)])
def test_a_job_without_slots_that_is_faster_than_measured_is_measured_again(own_ms, doubted):
    core = two_measured(slots=False)
    # A measured job rests for 18 iterations.
    reports(core, "b", 30, own_ms, own_ms - 60)
    assert core.measuring.waits("b") == doubted
    assert core.wants_plan == doubted
    assert core.registry.get("b").profile.period_ns == 260 * MS
