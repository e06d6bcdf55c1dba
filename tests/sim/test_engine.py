# SPDX-License-Identifier: Apache-2.0
"""The compiled engine against the plain one: random fabrics, jobs, classes, schedules and failures."""

import copy

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyrhythm.bench.sim import overloaded_runs
from sim.engine import KernelEngine, best_engine
from sim.jobrun import FlowletRule, IterationSchedule, JobRun, Ways
from sim.network import Network
from sim.reference import FlowDemand, ReferenceEngine, max_min
from sim.shape import PhaseShape, Shape, program
from sim.task_graph import TaskGraph, TaskGraphBuilder
from sim.units import NEVER, PS_PER_MS
from topo.generate import leaf_spine

pytest.importorskip("numba")
FABRIC = Network(leaf_spine(3, 2, 3, host_bps=10**9, fabric_bps=15 * 10**8))
HOSTS = [h.name for h in FABRIC.topology.hosts]


def path(src: str, dst: str, spine: int) -> tuple[int, ...]:
    a, b = FABRIC.topology.host[src].leaf, FABRIC.topology.host[dst].leaf
    middle = (a,) if a == b else (a, f"spine{spine}", b)
    return FABRIC.links((src, *middle, dst))


def sprayed(src: str, dst: str, first: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The links over both spines, and the portion of each if the part `first` goes over the first spine."""
    a, b = FABRIC.topology.host[src].leaf, FABRIC.topology.host[dst].leaf
    up, down = (src, a), (b, dst)
    names = {up: 1.0, down: 1.0}
    if a != b:
        ways = {1: first, 2: 1 - first}
        names |= {hop: part for s, part in ways.items() for hop in ((a, f"spine{s}"), (f"spine{s}", b))}
    return FABRIC.spread(names)


def ways(src: str, dst: str) -> Ways:
    """Both ways between two leaves; no choice within a leaf."""
    both = tuple(path(src, dst, spine) for spine in (1, 2))
    return both if both[0] != both[1] else ()


RULE = FlowletRule(gap=5 * PS_PER_MS, half_life=3 * PS_PER_MS)


phases = st.builds(
    PhaseShape,
    st.sampled_from(["ring", "fused_ring", "tree", "all_to_all"]),
    st.integers(1, 4_000_000).map(float),
    before_ns=st.integers(0, 5_000_000),
    beside_ns=st.integers(0, 20_000_000),
    after_ns=st.integers(1, 20_000_000),
    limit_bps=st.sampled_from([0.0, 0.0, 4e8]),
)
shapes = st.builds(Shape, st.lists(phases, min_size=1, max_size=2).map(tuple), qps=st.integers(1, 2))
schedules = st.one_of(
    st.just(IterationSchedule()),
    st.builds(
        IterationSchedule,
        st.just(0),
        st.integers(0, 50 * PS_PER_MS),
        st.integers(PS_PER_MS, 90 * PS_PER_MS),
        st.booleans(),
        st.sampled_from([0.05, 0.2, 1.0]),
    ),
)


@st.composite
def ring_of_messages(draw: st.DrawFn, members: int) -> Shape:
    """Each rank sends to the next, and some also to others, and waits for its own messages only."""
    found = []
    for _ in range(draw(st.integers(1, 2))):
        pairs = {(r, (r + 1) % members) for r in range(members)} if members > 1 else set()
        pairs |= draw(st.sets(st.tuples(*[st.integers(0, members - 1)] * 2), max_size=2))
        sizes = st.sampled_from([0.0, 5e4, 1e6, 3e6])
        messages = tuple((a, b, draw(sizes)) for a, b in sorted(pairs) if a != b)
        after = draw(st.integers(1, 20_000_000))
        found.append(PhaseShape("messages", 0.0, after_ns=after, messages=messages))
    return Shape(tuple(found), qps=draw(st.integers(1, 2)))


@st.composite
def jobs(draw: st.DrawFn) -> list[JobRun]:
    runs = []
    for i in range(draw(st.integers(1, 5))):
        members = draw(st.lists(st.sampled_from(HOSTS), min_size=1, max_size=5, unique=True))
        built = program(draw(st.one_of(shapes, ring_of_messages(len(members)))), f"j{i}", members)
        portions: tuple[tuple[float, ...], ...] = ()
        choices: tuple[Ways, ...] = ()
        kind = draw(st.sampled_from(["planned", "sprayed", "flowlets"]))
        if kind == "flowlets":
            choices = tuple(ways(c.src, c.dst) for c in built.channels)
            paths = tuple(path(c.src, c.dst, 1) for c in built.channels)
        elif kind == "planned":
            paths = tuple(path(c.src, c.dst, draw(st.integers(1, 2))) for c in built.channels)
        else:
            parts = st.sampled_from([0.5, 0.25, 0.9])
            found = [sprayed(c.src, c.dst, draw(parts)) for c in built.channels]
            paths, portions = tuple(p for p, _ in found), tuple(p for _, p in found)
        start, schedule = draw(st.integers(0, 60 * PS_PER_MS)), draw(schedules)
        klass, iterations = draw(st.integers(0, 300)), draw(st.integers(1, 8))
        jitter = draw(st.sampled_from([0, 0, 50_000]))
        runs.append(
            JobRun(
                f"j{i}",
                built,
                paths,
                klass,
                iterations,
                start,
                schedule,
                jitter,
                draw(st.integers(0, 999)),
                portions=portions,
                ways=choices,
                rule=RULE if choices else None,
            )
        )
    return runs


def finish(engine_type: type, runs: list[JobRun], cut: int, dead: tuple[int, ...]) -> list[JobRun]:
    """Run to the end; at `cut` the links `dead` go down, and come back 40 ms later."""
    now = 0
    alive = FABRIC.capacity
    broken = alive.copy()
    broken[list(dead)] = 0.0
    for until, capacity in ((cut, alive), (cut + 40 * PS_PER_MS, broken), (NEVER, alive)):
        engine = engine_type(capacity, FABRIC.marks, runs, now, log=True)
        while engine.now < until and engine.advance(until):
            pass
        runs, now = engine.export(), engine.now
    return runs


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(jobs(), st.integers(0, 200 * PS_PER_MS), st.sets(st.integers(0, 11), max_size=4))
def test_completion_times_equal_the_full_resolves(runs: list[JobRun], cut: int, dead: set[int]) -> None:
    plain = finish(ReferenceEngine, copy.deepcopy(runs), cut, tuple(dead))
    local = finish(KernelEngine, copy.deepcopy(runs), cut, tuple(dead))
    for a, b in zip(plain, local, strict=True):
        assert a.ended >= 0
        assert (a.count, b.count) == (a.iterations, a.iterations)
        assert b.ended == pytest.approx(a.ended, rel=1e-6)
        for x, y in zip(a.loops, b.loops, strict=True):
            assert (x.count, y.count) == (a.iterations, a.iterations)
            assert y.ended == pytest.approx(x.ended, rel=1e-6)
            assert y.total == pytest.approx(x.total, rel=1e-6)
            assert y.longest == pytest.approx(x.longest, rel=1e-6)
        assert b.sent == pytest.approx(a.sent, rel=1e-6)
        if a.flowlets and b.flowlets:
            assert b.flowlets.way.tolist() == a.flowlets.way.tolist()
            assert b.flowlets.carried == pytest.approx(a.flowlets.carried, rel=1e-6, abs=1)
        assert sum(b.lengths.values()) == sum(loop.count for loop in b.loops)
        assert sum(k * n for k, n in b.lengths.items()) == sum(loop.total for loop in b.loops)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_rates_equal_the_full_resolves_while_flows_come_and_go(data: st.DataObject) -> None:
    runs = []
    for i in range(data.draw(st.integers(2, 25))):
        src, dst = data.draw(st.permutations(HOSTS))[:2]
        builder = TaskGraphBuilder()
        builder.flow([], builder.channel(src, dst, "f"), data.draw(st.floats(1e5, 1e7)))
        limit = data.draw(st.sampled_from([np.inf, 3e8]))
        builder.flow([], builder.channel(src, dst, "g"), data.draw(st.floats(1e5, 1e7)), limit)
        one = sprayed(src, dst, 0.25)
        paths = (path(src, dst, data.draw(st.integers(1, 2))), one[0])
        portions = ((1.0,) * len(paths[0]), one[1])
        start = data.draw(st.integers(0, 20 * PS_PER_MS))
        klass = data.draw(st.integers(0, 7))
        runs.append(JobRun(f"j{i}", builder.build(), paths, klass, 1, start, portions=portions))
    engine = KernelEngine(FABRIC.capacity, FABRIC.marks, runs, 0)
    looked = 0
    while engine.next_event() < NEVER:
        engine.advance(engine.next_event())
        rates = engine.rates()
        demands = {}
        for n, (name, task) in enumerate(rates):
            run = runs[int(name[1:])]
            channel = run.program.channel[task]
            demands[n] = FlowDemand(dict(run.crossed(channel)), run.klass, float(run.program.limit[task]))
        wanted = max_min(list(FABRIC.capacity), demands)
        assert list(rates.values()) == pytest.approx([wanted[n] for n in demands], rel=1e-8, abs=1)
        looked += 1
    assert looked


def lone(size: float, limit: float = np.inf) -> TaskGraph:
    builder = TaskGraphBuilder()
    builder.flow([], builder.channel("h1", "h4", "f"), size, limit)
    return builder.build()


@pytest.mark.parametrize("engine_type", [KernelEngine, ReferenceEngine])
def test_a_sprayed_flow_is_as_fast_as_its_slowest_link_lets_it_be(engine_type: type) -> None:
    # A quarter over a link of 1.5 Gbit/s, three quarters over one of 300 Mbit/s: 400 Mbit/s in all, of which the
    # first link sees 100.
    capacity = FABRIC.capacity.copy()
    capacity[FABRIC.number["leaf1", "spine2"]] = 3e8
    links, portions = sprayed("h1", "h4", 0.25)
    run = JobRun("a", lone(4e6), (links,), 1, 1, 0, portions=(portions,))
    beside = JobRun("b", lone(9e6), (path("h2", "h5", 2),), 2, 1, 0)
    engine = engine_type(capacity, FABRIC.marks, [run, beside], 0)
    # The lower class gets nothing of the slow link while the sprayed flow fills it: 10 ms, then 9 Mbit take 30.
    assert engine.advance(NEVER) == ["a"]
    assert engine.now == pytest.approx(10 * PS_PER_MS, rel=1e-9)
    assert engine.advance(NEVER) == ["b"]
    assert engine.now == pytest.approx(40 * PS_PER_MS, rel=1e-9)


def choosing(name: str, src: str, dst: str, bits: float, pause_ms: int, start_ms: int, times: int) -> JobRun:
    """A job that sends `bits`, waits and sends again; switches choose between both spines."""
    builder = TaskGraphBuilder()
    sent = builder.flow([], builder.channel(src, dst, "f"), bits)
    builder.compute([sent], pause_ms * PS_PER_MS)
    both = ways(src, dst)
    return JobRun(name, builder.build(), (both[0],), 0, times, start_ms * PS_PER_MS, ways=(both,), rule=RULE)


@pytest.mark.parametrize("engine_type", [KernelEngine, ReferenceEngine])
def test_flowlets_take_the_port_that_has_sent_the_least(engine_type: type) -> None:
    # Three NICs of 1 Gbit/s, two uplinks of 1.5. The first two flows start together and take both uplinks. The
    # third comes when the second has just ended: it takes that one's link, for the first has sent more.
    runs = [
        choosing("a", "h1", "h4", 2e7, 1, 0, 1),
        choosing("b", "h2", "h5", 1e7, 1, 0, 1),
        choosing("c", "h3", "h6", 1e7, 1, 11, 1),
    ]
    engine = engine_type(FABRIC.capacity, FABRIC.marks, runs, 0)
    ended = []
    while engine.next_event() < NEVER:
        ended += engine.advance(NEVER)
    assert ended == ["b", "a", "c"]
    found = [run.flowlets for run in engine.export() if run.flowlets]
    assert [int(f.way[0]) for f in found] == [0, 1, 1]
    assert [f.carried[0].tolist() for f in found] == [[2e7, 0.0], [0.0, 1e7], [0.0, 1e7]]
    assert [run.ended for run in runs] == pytest.approx([21 * PS_PER_MS, 11 * PS_PER_MS, 22 * PS_PER_MS])


@pytest.mark.parametrize("engine_type", [KernelEngine, ReferenceEngine])
@pytest.mark.parametrize(("pause_ms", "moves"), [(4, False), (6, True)])
def test_a_flow_moves_only_after_a_pause_of_the_gap(engine_type: type, pause_ms: int, moves: bool) -> None:
    # It sends for 8 ms over the first spine. While it pauses, a planned flow fills its link.
    other = JobRun("b", lone(5e7), (path("h2", "h5", 1),), 0, 1, 8 * PS_PER_MS)
    run = choosing("a", "h1", "h4", 8e6, pause_ms, 0, 2)
    engine = engine_type(FABRIC.capacity, FABRIC.marks, [run, other], 0)
    while engine.next_event() < NEVER:
        engine.advance(NEVER)
    engine.export()
    assert run.flowlets is not None
    assert run.flowlets.carried[0].tolist() == pytest.approx([8e6, 8e6] if moves else [1.6e7, 0.0])


@pytest.mark.parametrize("engine_type", [KernelEngine, ReferenceEngine])
def test_an_engine_that_takes_over_knows_who_sends(engine_type: type) -> None:
    runs = [choosing("a", "h1", "h4", 2e7, 1, 0, 1)]
    engine = engine_type(FABRIC.capacity, FABRIC.marks, runs, 0)
    engine.advance(5 * PS_PER_MS)
    again = [*engine.export(), choosing("b", "h2", "h5", 1e7, 1, 5, 1)]
    engine = engine_type(FABRIC.capacity, FABRIC.marks, again, 5 * PS_PER_MS)
    while engine.next_event() < NEVER:
        engine.advance(NEVER)
    found = [run.flowlets for run in engine.export() if run.flowlets]
    assert [int(f.way[0]) for f in found] == [0, 1]
    assert [f.carried.sum() for f in found] == [2e7, 1e7]


def test_switches_have_one_rule() -> None:
    runs = [choosing(name, "h1", "h4", 1e6, 1, 0, 1) for name in "ab"]
    runs[1].rule = FlowletRule(1, 1)
    for engine_type in (KernelEngine, ReferenceEngine):
        with pytest.raises(ValueError, match="one rule"):
            engine_type(FABRIC.capacity, FABRIC.marks, runs, 0)
    with pytest.raises(ValueError, match="1 ps or more"):
        FlowletRule(0, 1)
    with pytest.raises(ValueError, match="needs a rule"):
        JobRun("a", lone(1.0), (path("h1", "h4", 1),), 1, 1, 0, ways=(ways("h1", "h4"),))


def test_a_portion_is_needed_for_each_link() -> None:
    with pytest.raises(ValueError, match="needs a portion"):
        JobRun("a", lone(1.0), ((0, 1),), 1, 1, 0, portions=((1.0,),))


def test_two_fair_and_one_served_first_by_hand() -> None:
    # One 1 Gbit/s NIC, 10 Mbit each: the first class takes 10 ms, the other two then share.
    way = path("h1", "h4", 1)
    runs = [JobRun(n, lone(1e7), (way,), k, 1, 0) for n, k in (("a", 0), ("b", 3), ("c", 3))]
    for engine_type in (ReferenceEngine, KernelEngine):
        fresh = copy.deepcopy(runs)
        engine = engine_type(FABRIC.capacity, FABRIC.marks, fresh, 0)
        while engine.advance(NEVER):
            pass
        assert [r.ended // PS_PER_MS for r in engine.export()] == [10, 30, 30]


def test_three_flows_two_links_by_hand() -> None:
    # The parking lot: A crosses both links, B the first, C the second, whose rates are 10 and 4.
    rates = max_min(
        [10.0, 4.0],
        {
            0: FlowDemand({0: 1.0, 1: 1.0}, 1, 99),
            1: FlowDemand({0: 1.0}, 1, 99),
            2: FlowDemand({1: 1.0}, 1, 99),
        },
    )
    assert rates == {0: 2.0, 1: 8.0, 2: 2.0}
    # Served first, A takes the whole second link.
    rates = max_min(
        [10.0, 4.0],
        {
            0: FlowDemand({0: 1.0, 1: 1.0}, 0, 99),
            1: FlowDemand({0: 1.0}, 1, 99),
            2: FlowDemand({1: 1.0}, 1, 99),
        },
    )
    assert rates == {0: 4.0, 1: 6.0, 2: 0.0}
    # Its cap leaves room for the others.
    rates = max_min(
        [10.0, 4.0],
        {
            0: FlowDemand({0: 1.0, 1: 1.0}, 0, 1),
            1: FlowDemand({0: 1.0}, 1, 99),
            2: FlowDemand({1: 1.0}, 1, 99),
        },
    )
    assert rates == {0: 1.0, 1: 9.0, 2: 3.0}


@pytest.mark.parametrize("engine_type", [ReferenceEngine, KernelEngine])
def test_a_rank_waits_for_its_own_messages_only(engine_type: type) -> None:
    # a sends to b, b to c, c to a; each message takes 1 ms, compute 4 ms. a begins 10 ms late: b waits for
    # it, c learns of it an iteration later. Once all know, the ring goes round in 5 ms.
    ring = ((0, 1, 1.25e5), (1, 2, 1.25e5), (2, 0, 1.25e5))
    phase = PhaseShape("messages", 0.0, after_ns=4_000_000, messages=ring)
    built = program(Shape((phase,)), "j", ["h1", "h2", "h3"])
    paths = tuple(path(c.src, c.dst, 1) for c in built.channels)
    run = JobRun("j", built, paths, 4, 4, 0)
    run.loops[0].ready = 10 * PS_PER_MS
    engine = engine_type(FABRIC.capacity, FABRIC.marks, [run], 0, log=True)
    begun: list[list[int]] = [[], [], []]
    for ms in range(0, 40):
        engine.advance(ms * PS_PER_MS)
        for loop, at in zip(engine.export()[0].loops, begun, strict=True):
            if loop.begin >= 0 and loop.begin not in at:
                at.append(loop.begin)
    assert [[t // PS_PER_MS for t in at] for at in begun] == [
        [10, 15, 20, 25],
        [0, 15, 20, 25],
        [0, 5, 20, 25],
    ]
    assert run.ended == 30 * PS_PER_MS
    assert run.count == 4
    assert sum(run.lengths.values()) == 12


def test_repeats_are_skipped_exactly_where_ranks_wait_for_neighbours() -> None:
    ring = ((0, 1, 1e6), (1, 2, 1e6), (2, 0, 1e6))
    shape = Shape((PhaseShape("messages", 0.0, after_ns=11_000_000, messages=ring),))
    runs = []
    for name, hosts, start in (("a", ["h1", "h4", "h7"], 0), ("b", ["h2", "h5", "h8"], 3)):
        built = program(shape, name, hosts)
        paths = tuple(path(c.src, c.dst, 1) for c in built.channels)
        run = JobRun(name, built, paths, 4, 5_000, start * PS_PER_MS)
        run.loops[1].ready += PS_PER_MS
        runs.append(run)
    found = []
    for skip in (False, True):
        engine = KernelEngine(FABRIC.capacity, FABRIC.marks, copy.deepcopy(runs), 0, log=True, skip=skip)
        while engine.advance(NEVER):
            pass
        ended = [(r.ended, r.total, r.lengths, [loop.ended for loop in r.loops]) for r in engine.export()]
        found.append((ended, engine.events))
    assert found[0][0] == found[1][0]
    assert found[1][1] < found[0][1] / 20


def test_repeats_are_skipped_exactly() -> None:
    shape = Shape((PhaseShape("ring", 1e6, after_ns=11_000_000),))
    built = program(shape, "j", ["h1", "h4"])
    ways = (path("h1", "h4", 1), path("h4", "h1", 1))
    runs = [JobRun(n, built, ways, 4, 5_000, s * PS_PER_MS) for n, s in (("a", 0), ("b", 3))]
    ended, events = [], []
    for skip in (False, True):
        engine = KernelEngine(FABRIC.capacity, FABRIC.marks, copy.deepcopy(runs), 0, log=True, skip=skip)
        while engine.advance(NEVER):
            pass
        ended.append([(r.ended, r.total, r.lengths, r.sent.tolist()) for r in engine.export()])
        events.append(engine.events)
    assert ended[1][0][:3] == ended[0][0][:3]
    assert ended[1][1][:3] == ended[0][1][:3]
    assert ended[1][0][3] == pytest.approx(ended[0][0][3])
    assert events[1] < events[0] / 100


def test_an_overloaded_fabric_is_right_to_the_last_class() -> None:
    network = Network(leaf_spine(6, 3, 6, host_bps=10**11, fabric_bps=10**11))
    runs = overloaded_runs(network, 4, 400)
    engine = KernelEngine(network.capacity, network.marks, runs, 0, skip=False)
    index = {run.name: run for run in runs}
    for _ in range(40):
        engine.advance(engine.next_event())
        rates = engine.rates()
        demands = {}
        for n, (name, task) in enumerate(rates):
            run = index[name]
            demands[n] = FlowDemand(dict(run.crossed(run.program.channel[task])), run.klass, np.inf)
        wanted = max_min(list(network.capacity), demands)
        assert len(rates) > 300
        assert list(rates.values()) == pytest.approx([wanted[n] for n in demands], rel=1e-7, abs=200)


def test_full_re_solves_give_the_same_ends() -> None:
    network = Network(leaf_spine(3, 2, 3, host_bps=10**11, fabric_bps=10**11))
    ended = []
    for full in (False, True):
        engine = KernelEngine(
            network.capacity, network.marks, overloaded_runs(network, 4, 64), 0, skip=False, full=full
        )
        while engine.advance(NEVER):
            pass
        ended.append([run.ended for run in engine.export()])
    assert ended[0] == pytest.approx(ended[1], rel=1e-9)
    assert min(ended[0]) > 0


def test_without_numba_the_plain_engine_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    best_engine.cache_clear()
    assert best_engine() is KernelEngine
    best_engine.cache_clear()
    monkeypatch.setattr("sim.engine.available", lambda: False)
    assert best_engine() is ReferenceEngine
    best_engine.cache_clear()
