# SPDX-License-Identifier: Apache-2.0
"""Results of a topology are kept by its identity and by the value of the other arguments."""

from controller.routing.forwarding import forwarding
from controller.routing.topology_cache import RESULTS, cached_by_topology
from topo.generate import leaf_spine
from topo.graph import Topology


def _fabric() -> Topology:
    return leaf_spine(2, 2, 1, host_bps=1_000, fabric_bps=1_000)


def test_one_computation_for_one_condition() -> None:
    calls = []

    @cached_by_topology
    def work(topology: Topology, down: frozenset[str] = frozenset()) -> int:
        calls.append((topology, down))
        return len(calls)

    a, b = _fabric(), _fabric()
    assert [work(a), work(a), work(b), work(a, frozenset({"x"})), work(a, frozenset({"x"}))] == [
        1,
        1,
        2,
        3,
        3,
    ]
    for n in range(RESULTS):
        work(a, frozenset({str(n)}))
    assert work(a) == RESULTS + 4


def test_forwarding_follows_the_condition() -> None:
    topology = _fabric()
    intact = forwarding(topology)
    down = forwarding(topology, frozenset(), frozenset({"spine1"}))
    assert forwarding(topology) is intact
    assert intact["leaf1"].groups
    assert not down["leaf1"].groups
