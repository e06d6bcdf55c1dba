# SPDX-License-Identifier: Apache-2.0
"""Which descriptions of jobs the controller takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control_rig import RATE_BPS, job

from controller.live.job_registry import JobRegistry, JoinError
from controller.wire.limits import MAX_FLOWS_OF_JOB
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


def test_a_job_of_too_many_flows_is_refused() -> None:
    member = job("a", "h1", "h3")
    many = replace(member, flows=member.flows[:1] * (MAX_FLOWS_OF_JOB + 1))
    with pytest.raises(JoinError, match=r"^job a: it has 65,537 flows; legal: at most 65,536$"):
        JobRegistry(TOPOLOGY).join("h1", 0, many)


def test_unknown_hosts_are_named_in_a_short_line() -> None:
    member = replace(job("a", "h1", "h3"), hosts=("h1", *(f"x{n}" for n in range(100_000))))
    with pytest.raises(JoinError) as caught:
        JobRegistry(TOPOLOGY).join("h1", 0, member)
    said = str(caught.value)
    assert said.startswith("job a: the fabric has no host named x0, x1, ")
    assert len(said) < 600


def test_a_flow_to_a_host_outside_the_job_is_refused() -> None:
    member = job("a", "h1", "h3")
    outside = replace(member.flows[0], name="a/out", dst="h2")
    with pytest.raises(JoinError, match=r"flow a/out goes from h1 to h2; legal: from one host of the job"):
        JobRegistry(TOPOLOGY).join("h1", 0, replace(member, flows=(*member.flows, outside)))


def test_each_worker_may_measure_by_itself_and_the_first_one_counts() -> None:
    registry, member = JobRegistry(TOPOLOGY), job("a", "h1", "h3")
    registry.join("h1", 0, member)
    profile = replace(member.profile, period_ns=member.profile.period_ns + 1)
    flows = tuple(replace(f, bytes_per_iteration=f.bytes_per_iteration + 1) for f in member.flows)
    assert registry.join("h3", 1, replace(member, profile=profile, flows=flows))
    assert registry.jobs == (member,)


@pytest.mark.parametrize("change", [{"name": "a/other"}, {"src": "h3", "dst": "h1"}])
def test_workers_that_name_other_flows_are_refused(change: dict[str, str]) -> None:
    registry, member = JobRegistry(TOPOLOGY), job("a", "h1", "h3")
    registry.join("h1", 0, member)
    for flows in ((replace(member.flows[0], **change), *member.flows[1:]), member.flows[1:]):
        with pytest.raises(JoinError, match="differently"):
            registry.join("h3", 1, replace(member, flows=flows))
