# SPDX-License-Identifier: Apache-2.0
"""What the columns of a plan say without making its flows is what its flows say."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.live.plan_changes import disturbed
from controller.model import Flow, Plan, PolicyReference
from controller.model.flow_plans import (
    FlowPlans,
    JobFlows,
    flows_of_job,
    header_of,
    path_in,
    pinned_flows,
    with_dscps,
    with_flows,
)
from topo.generate import leaf_spine

FABRIC = leaf_spine(2, 2, 2, host_bps=1_000, fabric_bps=1_000)
ELEPHANT_BYTES = 10


@st.composite
def blocks(draw: st.DrawFn, name: str, prefixes: tuple[str, ...]) -> JobFlows:
    """A job of up to four flows from leaf1 to leaf2; some are mice, some have no path. The names of the flows
    begin with one of `prefixes`."""
    flows, hops, ports = [], [], []
    for n in range(draw(st.integers(0, 4))):
        size = draw(st.sampled_from((1, 100)))
        flows.append(Flow(f"{draw(st.sampled_from(prefixes))}/{name}{n}", name, "h1", "h3", size))
        routed = size >= ELEPHANT_BYTES and draw(st.booleans())
        hops.append((0, draw(st.integers(2, 3)), 1) if routed else (-1, -1, -1))
        ports.append(draw(st.integers(50_000, 50_003)) if routed else -1)
    columns = np.array(hops, dtype=np.int32).reshape(len(flows), 3)
    return JobFlows(tuple(flows), columns, np.array(ports, dtype=np.int32), draw(st.sampled_from((8, 10))))


@st.composite
def plans(draw: st.DrawFn, *others: str) -> FlowPlans:
    """Up to three jobs, perhaps with a flow that has moved since. `others` are further prefixes of names."""
    names = sorted(draw(st.sets(st.sampled_from(("a", "b", "c")))))
    jobs = {name: draw(blocks(name, (name, *others))) for name in names}
    flows = FlowPlans(FABRIC, ELEPHANT_BYTES, jobs)
    if len(flows) and draw(st.booleans()):
        moved = draw(st.sampled_from(sorted(flows)))
        other = replace(flows[moved], path=("h1", "leaf1", "spine1", "leaf2", "h3"), source_port=60_000)
        return flows.replaced({moved: other})
    return flows


@given(plans("other"))
def test_columns_say_what_the_flows_say(flows: FlowPlans) -> None:
    plain = dict(flows)
    assert dict(flows.each()) == plain
    assert [f for job in flows.jobs for f in flows_of_job(flows, job)] == list(plain.values())
    assert sorted(pinned_flows(flows)) == sorted(pinned_flows(plain))
    assert [header_of(flows, name) for name in plain] == [header_of(plain, name) for name in plain]
    assert flows.routed == sum(f.path is not None for f in plain.values())
    assert len(flows) == len(plain)
    assert all(name in flows for name in plain)
    assert "a/none" not in flows
    assert header_of(flows, "none") is None
    assert [path_in(flows, name) for name in plain] == [path_in(plain, name) for name in plain]
    assert path_in(flows, "none") is path_in(plain, "none") is None
    with pytest.raises(KeyError):
        flows["a/none"]
    again = pickle.loads(pickle.dumps(flows))
    assert again.jobs.keys() == flows.jobs.keys()
    assert all(block.same(again.jobs[name]) for name, block in flows.jobs.items())


@given(plans(), plans())
def test_columns_tell_whom_a_change_disturbs(before: FlowPlans, after: FlowPlans) -> None:
    one = Plan(1, PolicyReference("p"), 0, before, {}, ())
    for flows in (after, with_flows(before, dict(before)), before):
        other = replace(one, flows=flows)
        wanted = disturbed(replace(one, flows=dict(before)), replace(other, flows=dict(flows)))
        # A job that is gone, or has no flows, is found by its schedule. These plans have none.
        sending = {name.split("/")[0] for name in flows}
        found = disturbed(one, other) & sending
        assert found >= wanted & sending
        for name in found - wanted:
            # The DSCP of a job without elephants, and sizes of flows, count too.
            was, now = before.jobs[name], flows.jobs[name]  # type: ignore[attr-defined]
            assert (was.dscp, was.flows) != (now.dscp, now.flows)


@given(plans(), st.dictionaries(st.sampled_from(("a", "b", "x")), st.tuples(st.integers(8, 10), st.just(30))))
def test_columns_take_other_dscps(flows: FlowPlans, dscps: dict[str, tuple[int, int]]) -> None:
    changed = with_dscps(flows, dscps)
    assert isinstance(changed, FlowPlans)
    assert changed == with_dscps(dict(flows), dscps)
    # A job that stays as it was keeps its object.
    assert all(job is flows.jobs[name] for name, job in changed.jobs.items() if name not in dscps)
