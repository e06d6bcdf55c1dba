# SPDX-License-Identifier: Apache-2.0
"""The pairs of hosts of a plan: the columns give what the single flows give."""

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model import Flow, Job, Phase, Profile
from controller.planner import POLICIES, PlanInput, plan
from controller.planner.planned_pairs import planned_pairs
from topo.generate import leaf_spine

FABRIC = leaf_spine(2, 2, 2, host_bps=10_000_000, fabric_bps=20_000_000)
HOSTS = [host.name for host in FABRIC.hosts]
MOUSE, ELEPHANT = 100, 10_000_000
PROFILE = Profile(200_000_000, (Phase(0, 50_000_000, 1_000_000),))

ends = st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS)).filter(lambda pair: pair[0] != pair[1])
flows = st.lists(st.tuples(ends, st.sampled_from((MOUSE, ELEPHANT))), min_size=1, max_size=6)


def job(name, given_flows):
    made = tuple(Flow(f"{name}/{i}", name, *pair, size) for i, (pair, size) in enumerate(given_flows))
    hosts = tuple(sorted({host for pair, _ in given_flows for host in pair}))
    return Job(name, "model", len(hosts), hosts, PROFILE, 1e9, made)


@given(st.lists(flows, max_size=3))
@settings(max_examples=25, deadline=None)
def test_levels_mice_and_columns(given_jobs):
    jobs = tuple(job(f"job{i}", some) for i, some in enumerate(given_jobs))
    made = plan(PlanInput(FABRIC, jobs, POLICIES["routing"], 0))
    by_size = {
        size: {(f.src, f.dst) for j in jobs for f in j.flows if f.bytes_per_iteration == size}
        for size in (MOUSE, ELEPHANT)
    }
    levels, mice = planned_pairs(jobs, made.flows)
    assert (made.pairs, made.mice_pairs) == (levels, mice) == planned_pairs(jobs, dict(made.flows))
    assert list(levels) == sorted(by_size[ELEPHANT])
    assert list(mice) == sorted(by_size[MOUSE] - by_size[ELEPHANT])
