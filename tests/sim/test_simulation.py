# SPDX-License-Identifier: Apache-2.0
"""The cluster in time: placement, failures, re-planning, preemption, checkpoints, determinism."""

import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controller.model import Job, Plan
from controller.routing.forwarding import forwarding
from controller.routing.paths import path_of
from sim.checkpoint import CheckpointError, fingerprint, load, save
from sim.cluster import Cluster, FreeGpus, JobRequest, WorkloadError, machines
from sim.decide import Decider, FabricState
from sim.engine import KernelEngine
from sim.jobrun import JobRun
from sim.network import Network
from sim.output import MarkEstimate, summary, write_tables
from sim.reference import ReferenceEngine
from sim.scheduler import Fifo, LeastAttained, Scheduler
from sim.shape import PhaseShape, Shape
from sim.simulation import FabricFailure, Simulation, SimulationSettings
from sim.units import PS_PER_MS, PS_PER_S
from topo.generate import leaf_spine, rail

pytest.importorskip("numba")
FABRIC = leaf_spine(4, 2, 2, host_bps=10**10, fabric_bps=10**10)
CLUSTER = machines(Network(FABRIC), 4)
MS = 10**6


def shape(size: float = 1.25e8, before_ms: int = 50) -> Shape:
    return Shape((PhaseShape("fused_ring", size, before_ns=before_ms * MS),))


def workload(jobs: int, seed: int) -> list[JobRequest]:
    random = Random(seed)
    return [
        JobRequest(
            f"j{i}",
            "m",
            random.randrange(20 * 10**9),
            random.choice([1, 4, 8, 12, 16]),
            random.randint(5, 120),
            shape(random.uniform(1e7, 3e8), random.randint(20, 200)),
        )
        for i in range(jobs)
    ]


def simulated(
    requests: list[JobRequest],
    settings: SimulationSettings,
    cluster: Cluster = CLUSTER,
    scheduler: Scheduler | None = None,
    **more: object,
) -> Simulation:
    simulation = Simulation(cluster, requests, settings, scheduler=scheduler or Fifo(), **more)  # type: ignore[arg-type]
    simulation.run()
    return simulation


def ends(simulation: Simulation) -> dict[str, int]:
    return {name: o.ended for name, o in simulation.memory.outcomes.items()}


@pytest.mark.parametrize("policy", ["ecmp", "polyrhythm"])
def test_components_with_clocks_of_their_own_change_nothing(policy: str) -> None:
    # The plain engine over the same events, and all jobs in one engine: the same ends.
    requests = workload(14, 5)
    failures = [FabricFailure(4 * 10**9, "spine2"), FabricFailure(9 * 10**9, "spine2", up=True)]
    settings = SimulationSettings(policy=policy, replan_delay_ns=10**7)
    local = simulated(requests, settings, failures=failures)
    plain = simulated(requests, settings, failures=failures, engine=ReferenceEngine)
    assert len(local.memory.outcomes) == 14
    assert all(o.iterations == o.request.iterations for o in local.memory.outcomes.values())
    for name, end in ends(plain).items():
        assert end > 0
        assert ends(local)[name] == pytest.approx(end, rel=1e-6)


def test_a_plan_that_changes_nothing_for_a_job_leaves_its_engine_alone() -> None:
    # Every arrival and every end is planned for all jobs. Those of one server have no links at all.
    made: list[str] = []

    def counting(capacity: Any, marks: Any, runs: Sequence[JobRun], now: int, **more: Any) -> KernelEngine:
        made.extend(run.name for run in runs)
        return KernelEngine(capacity, marks, runs, now, **more)

    requests = [replace(r, gpus=min(r.gpus, 4)) for r in workload(12, 3)]
    simulation = simulated(requests, SimulationSettings(policy="crux"), engine=counting)
    assert all(end > 0 for end in ends(simulation).values())
    assert sorted(made) == sorted(r.name for r in requests)


def test_one_plan_is_made_for_all_jobs_that_send_and_come_or_leave_at_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned: list[tuple[str, ...]] = []

    def counting(self: Decider, fabric: FabricState, jobs: Sequence[Job], now_ps: int) -> Plan:
        planned.append(tuple(job.name for job in jobs))
        return plan(self, fabric, jobs, now_ps)

    plan = Decider.plan
    monkeypatch.setattr(Decider, "plan", counting)
    far, near = (replace(r, arrival_ns=0) for r in workload(2, 1))
    requests = [
        replace(far, name="far", gpus=8, iterations=100),
        # Each has a server for itself.
        *(replace(near, name=f"near{i}", gpus=4, arrival_ns=i * MS, iterations=3) for i in range(3)),
        replace(far, name="late", gpus=8, arrival_ns=5 * MS, iterations=5),
    ]
    simulation = simulated(requests, SimulationSettings(policy="crux"))
    assert all(end > 0 for end in ends(simulation).values())
    assert [set(names) & {"far", "late"} for names in planned] == [{"far"}, {"far", "late"}, {"far"}]
    planned.clear()
    # Those that wait begin when the first ends.
    full = [replace(far, name=f"full{i}", gpus=CLUSTER.gpus, iterations=4) for i in range(3)]
    assert all(end > 0 for end in ends(simulated(full, SimulationSettings(policy="crux"))).values())
    assert planned == [("full0",), ("full1",), ("full2",)]


@pytest.mark.parametrize("policy", ["crux", "ecmp"])
def test_jobs_that_are_stopped_for_others_end_with_all_their_iterations(policy: str) -> None:
    requests = [
        replace(r, gpus=gpus, iterations=100)
        for r, gpus in zip(workload(8, 2), [16, 12, 8, 16, 4, 8, 12, 16], strict=True)
    ]
    simulation = simulated(
        requests, SimulationSettings(policy=policy), scheduler=LeastAttained(threshold_s=100, every_s=5)
    )
    assert all(o.iterations == 100 for o in simulation.memory.outcomes.values())
    assert any(o.preempted for o in simulation.memory.outcomes.values())


def test_a_job_alone_takes_its_ideal_time() -> None:
    done = simulated([JobRequest("a", "m", 3 * 10**9, 8, 10, shape())], SimulationSettings()).memory.outcomes[
        "a"
    ]
    # Two servers: each sends 125 MB in all, 100 ms at 10 Gbit/s.
    assert done.started == 3 * PS_PER_S
    assert done.ended == done.started + 10 * 150 * PS_PER_MS
    assert done.lengths == {150 * PS_PER_MS: 10}
    assert [f[3] / 8 for f in done.flows] == pytest.approx([1.25e9] * 2)


def test_two_on_one_uplink_share_it_and_priority_orders_them() -> None:
    topology = leaf_spine(2, 1, 2, host_bps=10**10, fabric_bps=10**10)
    cluster = machines(Network(topology), 4)
    pairs = (("h1", "h3"), ("h2", "h4"))
    requests = [JobRequest(f"j{i}", "m", 0, 2, 40, shape(), ranks) for i, ranks in enumerate(pairs)]
    fair = simulated(requests, SimulationSettings(), cluster)
    # In step for ever: 50 ms of compute, then 200 ms for both.
    assert [o.total for o in fair.memory.outcomes.values()] == [40 * 250 * PS_PER_MS] * 2
    assert fair.memory.outcomes["j0"].flows[0][4] > 0
    shared = simulated(requests, SimulationSettings(policy="polyrhythm"), cluster)
    assert sum(o.total for o in shared.memory.outcomes.values()) < 0.85 * 2 * 40 * 250 * PS_PER_MS


def test_a_dead_fabric_stops_a_job_until_it_heals() -> None:
    topology = leaf_spine(2, 1, 1, host_bps=10**10, fabric_bps=10**10)
    cluster = machines(Network(topology), 4)
    request = [JobRequest("a", "m", 0, 8, 4, shape(), ("h1", "h2"))]
    failures = [FabricFailure(100 * MS, "spine1"), FabricFailure(1_100 * MS, "spine1", up=True)]
    healed = simulated(request, SimulationSettings(), cluster, failures=failures)
    assert ends(healed) == {"a": (600 + 1_000) * PS_PER_MS}
    dead = simulated(request, SimulationSettings(), cluster, failures=failures[:1])
    assert ends(dead) == {"a": -1}
    cable = simulated(
        request, SimulationSettings(), cluster, failures=[FabricFailure(100 * MS, "leaf1-spine1")]
    )
    assert ends(cable) == {"a": -1}


def test_a_reroute_takes_the_replanning_delay() -> None:
    topology = leaf_spine(2, 2, 1, host_bps=10**10, fabric_bps=10**10)
    cluster = machines(Network(topology), 4)
    request = [JobRequest("a", "m", 0, 8, 4, shape(), ("h1", "h2"))]
    fail = [[FabricFailure(100 * MS, f"spine{k}")] for k in (1, 2)]
    took = [
        [
            ends(simulated(request, SimulationSettings(replan_delay_ns=d), cluster, failures=f))["a"]
            for f in fail
        ]
        for d in (0, 30 * MS)
    ]
    # Whichever spine the flows use, a way over the other is found at once, or after the delay.
    assert took[0] == [600 * PS_PER_MS] * 2
    assert set(took[1]) <= {600 * PS_PER_MS, 630 * PS_PER_MS}
    assert 630 * PS_PER_MS in took[1]


def test_the_young_preempt_the_old_who_then_go_on() -> None:
    old = JobRequest("old", "m", 0, 32, 1000, shape(0.0, 100))
    young = JobRequest("young", "m", 20 * 10**9, 4, 10, shape(0.0, 100))
    run = simulated([old, young], SimulationSettings(), scheduler=LeastAttained(threshold_s=100, every_s=5))
    a, b = run.memory.outcomes["old"], run.memory.outcomes["young"]
    assert (a.preempted, a.iterations, b.preempted) == (1, 1000, 0)
    assert b.started == 20 * PS_PER_S
    assert b.ended == 21 * PS_PER_S
    # It loses the second and, beside that, at most the iteration that was cut.
    assert 101 * PS_PER_S <= a.ended <= 101 * PS_PER_S + 6 * PS_PER_S
    # What passed before it got its GPUs again is of no iteration.
    assert a.total == 1000 * 100 * PS_PER_MS
    assert a.longest == 100 * PS_PER_MS


def test_hosts_of_a_scenario_begin_late_and_jitter_only_beside_others() -> None:
    ring = PhaseShape("messages", 0.0, after_ns=10_000_000, messages=((0, 1, 1e6), (1, 0, 1e6)))

    def request(name: str, hosts: tuple[str, str]) -> JobRequest:
        return JobRequest(
            name, "m", 0, 2, 20, Shape((ring,)), hosts, delays_ns=(0, 3_000_000), contended_jitter=0.05
        )

    alone = simulated([request("a", ("h1", "h3"))], SimulationSettings()).memory.outcomes["a"]
    # The first host waits for the second in its first iteration. From then on nothing differs.
    assert sorted(alone.lengths.values()) == [1, 39]
    beside = [request("a", ("h1", "h3")), request("b", ("h1", "h3"))]
    ended = [simulated(beside, SimulationSettings(seed=n)).memory.outcomes for n in (1, 1, 2)]
    assert len(ended[0]["a"].lengths) > 10
    assert ended[0]["a"].lengths == ended[1]["a"].lengths != ended[2]["a"].lengths
    with pytest.raises(WorkloadError, match=r"job a: delays of \(1,\) ns; legal: one of 0 or more for each"):
        simulated([replace(beside[0], delays_ns=(1,))], SimulationSettings())
    with pytest.raises(WorkloadError, match="job a: a jitter is a part of the compute"):
        simulated([replace(beside[0], jitter=1.0)], SimulationSettings())


def test_placement_packs_servers_then_leaves() -> None:
    free = FreeGpus(CLUSTER)
    assert free.place(3) == (("h1", 3),)
    assert free.place(1) == (("h1", 1),)
    assert free.place(8) == (("h3", 4), ("h4", 4))
    assert [s for s, _ in free.place(16) or ()] == ["h5", "h6", "h7", "h8"]
    assert free.place(5) is None
    assert free.place(4) == (("h2", 4),)
    free.give_back((("h1", 3),))
    assert free.total == 3


def test_rails_split_the_bytes() -> None:
    topology = rail(2, 2, 2, 2, host_bps=10**10, fabric_bps=10**10)
    cluster = machines(Network(topology), 4)
    done = simulated([JobRequest("a", "m", 0, 8, 1, shape())], SimulationSettings(), cluster).memory.outcomes[
        "a"
    ]
    # Two NICs a machine: each carries half of the 125 MB.
    assert [f[3] / 8 for f in done.flows] == pytest.approx([6.25e7] * 4)


@pytest.mark.parametrize("policy", ["polyrhythm", "dlb"])
def test_same_seed_same_bytes_and_a_resumed_run_too(tmp_path: Path, policy: str) -> None:
    requests = workload(12, 9)
    settings = SimulationSettings(policy=policy, tidy=5, samples_ns=10**10)
    texts = []
    for name in ("a", "b"):
        whole = simulated(requests, settings)
        (tmp_path / name).mkdir()
        texts.append([f.read_bytes() for f in write_tables(whole, tmp_path / name, MarkEstimate())])
    assert texts[0] == texts[1]
    mark = fingerprint(requests, settings)
    saved: list[int] = []

    def stop_after_three(simulation: Simulation) -> None:
        save(simulation.memory, tmp_path / "x.checkpoint", mark)
        saved.append(simulation.memory.now)
        if len(saved) == 3:
            raise KeyboardInterrupt

    killed = Simulation(CLUSTER, requests, settings, scheduler=Fifo())
    with pytest.raises(KeyboardInterrupt):
        killed.run(stop_after_three)
    memory = load(tmp_path / "x.checkpoint", mark)
    assert memory is not None
    assert memory.now == saved[-1]
    resumed = Simulation(CLUSTER, requests, settings, scheduler=Fifo(), memory=memory)
    resumed.run()
    (tmp_path / "c").mkdir()
    again = [f.read_bytes() for f in write_tables(resumed, tmp_path / "c", MarkEstimate())]
    assert again == texts[0]
    assert summary(resumed) == summary(whole)


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.checkpoint"
    assert load(path, b"0" * 32) is None
    save(Simulation(CLUSTER, [], SimulationSettings(), scheduler=Fifo()).memory, path, b"0" * 32)
    with pytest.raises(CheckpointError, match="of other inputs"):
        load(path, b"1" * 32)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="damaged"):
        load(path, b"0" * 32)
    path.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="no checkpoint of this version"):
        load(path, b"0" * 32)
    body = pickle.dumps(print)
    path.write_bytes(b"polyrhythm simulation 6\n" + b"0" * 32 + hashlib.sha256(body).digest() + body)
    with pytest.raises(CheckpointError, match=r"names builtins\.print"):
        load(path, b"0" * 32)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (JobRequest("a", "m", -1, 1, 1, shape()), "arrives at -1 ns"),
        (JobRequest("a", "m", 0, 33, 1, shape()), "wants 33 GPUs; legal: 1 to the cluster's 32"),
        (JobRequest("a", "m", 0, 1, 0, shape()), "0 iterations"),
        (JobRequest("a", "m", 0, 1, 1, shape(), ("h99",)), "no host 'h99'"),
    ],
)
def test_impossible_jobs_are_refused(request_: JobRequest, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        Simulation(CLUSTER, [request_], SimulationSettings(), scheduler=Fifo())
    with pytest.raises(ValueError, match="no switch and no cable"):
        Simulation(CLUSTER, [], SimulationSettings(), scheduler=Fifo(), failures=[FabricFailure(0, "spine9")])
    with pytest.raises(ValueError, match=r"'x' is no policy; legal: .*ecmp"):
        Simulation(CLUSTER, [], SimulationSettings(policy="x"), scheduler=Fifo())


@pytest.mark.parametrize("policy", ["ecmp", "spray", "dlb"])
def test_samples_add_up(policy: str) -> None:
    # A link that dies and comes back takes bits off one way and onto another.
    failures = [FabricFailure(10 * 10**9, "leaf1-spine1"), FabricFailure(13 * 10**9, "leaf1-spine1", up=True)]
    settings = SimulationSettings(policy=policy, samples_ns=5 * 10**9)
    run = simulated(workload(6, 2), settings, failures=failures)
    carried = sum(s.bits.sum() for s in run.memory.samples) + run.memory.bits.sum()
    sent = 0.0
    for outcome in run.memory.outcomes.values():
        hops = {f: 0 for f, *_ in outcome.flows}
        for flow, src, dst, bits, _ in outcome.flows:
            same = FABRIC.host[src].leaf == FABRIC.host[dst].leaf
            hops[flow] = 2 if same else 4
            sent += bits * hops[flow]
    assert carried == pytest.approx(sent)
    assert all(0 <= s.gpus <= 32 for s in run.memory.samples)


def test_without_compression_every_job_goes_by_its_own_level_beyond_the_switches() -> None:
    # Twelve jobs on one uplink, each of so much traffic that those below wait for it to end.
    fabric = machines(Network(leaf_spine(2, 1, 12, host_bps=10**10, fabric_bps=10**10)), 4)
    jobs = [
        JobRequest(f"j{i:02}", "m", 0, 4, 1, shape(1e9, 10 * (12 - i)), ranks=(f"h{i + 1}", f"h{i + 13}"))
        for i in range(12)
    ]
    found = ends(simulated(jobs, SimulationSettings(policy="crux-pa"), fabric))
    assert sorted(found, key=found.__getitem__) == sorted(found)
    gaps = sorted(found.values())
    assert all(b - a > PS_PER_MS * 700 for a, b in pairwise(gaps))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_flow_without_a_path_goes_where_an_agent_with_the_same_seed_sends_it(seed: int) -> None:
    fabric = leaf_spine(2, 16, 1, host_bps=10**10, fabric_bps=10**10)
    cluster = machines(Network(fabric), 1)
    done = simulated(
        [JobRequest("j", "m", 0, 2, 3, replace(shape(), qps=4))], SimulationSettings(seed=seed), cluster
    )
    (outcome,) = done.memory.outcomes.values()
    expected = set()
    for flow, src, dst, *_ in outcome.flows:
        # The rule of hostagent.agent.Agent.source_port.
        port = Random(f"{seed}/{flow}").randrange(0xC000, 0x10000)
        path = path_of(fabric, forwarding(fabric), src, dst, port)
        expected |= set(pairwise(path))
    assert len(outcome.flows) == 8
    used = {name for name, bits in zip(cluster.network.names, done.memory.bits, strict=True) if bits}
    assert used == expected


def test_a_stopped_job_goes_on_after_its_state_is_restored() -> None:
    old = JobRequest("old", "m", 0, 32, 1000, shape(0.0, 100))
    young = JobRequest("young", "m", 20 * 10**9, 4, 10, shape(0.0, 100))
    ended = [
        simulated(
            [old, young],
            SimulationSettings(restore_ns=restore * 10**9),
            scheduler=LeastAttained(threshold_s=100, every_s=5),
        ).memory.outcomes
        for restore in (0, 30)
    ]
    assert ended[1]["old"].preempted == 1
    assert ended[1]["old"].ended - ended[0]["old"].ended == 30 * PS_PER_S
    # A first start restores nothing.
    assert ended[1]["young"].ended == ended[0]["young"].ended
