# SPDX-License-Identifier: Apache-2.0
"""A job alone: what is computed of it is what the simulator does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster import JobRequest, machines
from sim.network import HostInternals, Network
from sim.placed_job import placed_request
from sim.scheduler import scheduler_named
from sim.shape import PhaseShape, Shape
from sim.simulation import Simulation, SimulationSettings
from sim.state import JobOutcome
from sim.units import PS_PER_MS
from topo.generate import leaf_spine

ITERATIONS = 3
# A step's end is rounded to the clock, and a shared rate to a double.
SLACK_PS = 200


def network(hosts: int, pcie_bps: int = 0, nvlink_bps: int = 0) -> Network:
    """Hosts of 1 Gbit/s on one leaf."""
    return Network(leaf_spine(1, 0, hosts, host_bps=10**9, fabric_bps=1), HostInternals(pcie_bps, nvlink_bps))


def job(name: str, ranks: tuple[str, ...], shape: Shape) -> JobRequest:
    return JobRequest(name, "m", 0, len(ranks), ITERATIONS, shape, ranks=ranks)


def simulated(on: Network, *requests: JobRequest) -> dict[str, JobOutcome]:
    simulation = Simulation(
        machines(on, 64), requests, SimulationSettings(policy="ecmp"), scheduler=scheduler_named("fifo")
    )
    simulation.run()
    return simulation.memory.outcomes


phases = st.builds(
    PhaseShape,
    st.sampled_from(["ring", "fused_ring", "tree", "fused_tree", "all_to_all", "fused_all_to_all"]),
    st.integers(0, 2_000_000).map(float),
    before_ns=st.integers(0, 5_000_000),
    beside_ns=st.integers(0, 20_000_000),
    after_ns=st.integers(1, 20_000_000),
    limit_bps=st.sampled_from([0.0, 0.0, 4e8]),
    groups=st.sampled_from([(), (), ((0, 1, 2), (2, 1, 0)), ((0, 1), (0, 2), (1, 2))]),
)
shapes = st.builds(Shape, st.lists(phases, min_size=1, max_size=3).map(tuple), qps=st.integers(1, 3))
networks = st.builds(network, st.just(5), st.sampled_from([0, 0, 6 * 10**8]), st.sampled_from([0, 3 * 10**9]))
some_ranks = st.lists(st.sampled_from([f"h{i}" for i in range(1, 6)]), min_size=3, max_size=6).map(tuple)


@given(networks, some_ranks, shapes)
def test_a_job_alone_is_as_computed(on: Network, ranks: tuple[str, ...], shape: Shape) -> None:
    request = job("a", ranks, shape)
    placed = placed_request(machines(on, 64), request, ())
    outcome = simulated(on, request)["a"]
    assert outcome.iterations == ITERATIONS
    assert abs(outcome.total - ITERATIONS * placed.iteration_ps) <= SLACK_PS * ITERATIONS
    assert placed.fastest_ps <= placed.iteration_ps + SLACK_PS


@given(networks, st.lists(st.tuples(some_ranks, shapes), min_size=2, max_size=3))
def test_no_iteration_is_shorter_than_the_bound(
    on: Network, drawn: list[tuple[tuple[str, ...], Shape]]
) -> None:
    requests = [job(f"j{i}", ranks, shape) for i, (ranks, shape) in enumerate(drawn)]
    for name, outcome in simulated(on, *requests).items():
        request = next(r for r in requests if r.name == name)
        fastest = placed_request(machines(on, 64), request, ()).fastest_ps
        assert min(outcome.lengths) >= fastest - SLACK_PS


@pytest.mark.parametrize(("qps", "limit_bps"), [(1, 0.0), (4, 0.0), (2, 1e9 / 3)])
def test_an_all_to_all_shares_its_nics(qps: int, limit_bps: float) -> None:
    phase = PhaseShape("fused_all_to_all", 5e5, before_ns=3_000_000, limit_bps=limit_bps)
    found = placed_request(
        machines(network(4), 1), job("a", ("h1", "h2", "h3", "h4"), Shape((phase,), qps=qps)), ()
    )
    # Each host sends 3 times 1 Mbit at 1 Gbit/s.
    assert found.iteration_ps == pytest.approx(6 * PS_PER_MS, abs=10)
    assert found.lead_ps == 3 * PS_PER_MS
    ((start, end, rate),) = [(p.start_ns, p.end_ns, p.rate_bps) for p in found.job.profile.phases]
    assert (start, end) == pytest.approx((0, 3_000_000), abs=1)
    assert rate == pytest.approx(1e9 / 3 / qps, rel=1e-6)


def test_overlap_takes_the_longer_of_both() -> None:
    phase = PhaseShape("fused_ring", 1.25e6, before_ns=3_000_000, beside_ns=4_000_000)
    found = placed_request(machines(network(2), 1), job("a", ("h1", "h2"), Shape((phase,))), ())
    # 1.25 MB at 1 Gbit/s are 10 ms: 3 + max(4, 10).
    assert found.iteration_ps == 13 * PS_PER_MS
    assert found.lead_ps == 3 * PS_PER_MS
    assert [(p.start_ns, p.end_ns, p.rate_bps) for p in found.job.profile.phases] == [(0, 10_000_000, 10**9)]
