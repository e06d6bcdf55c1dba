# SPDX-License-Identifier: Apache-2.0
"""A job that all its workers describe is translated once, and one that is too large is refused in one line."""

from __future__ import annotations

import pytest

from controller.agents.job_descriptions import MOST_FLOWS, JobDescriptions, accepted
from controller.agents.translate import MessageError, described_job
from controller.model.job import Job
from controller.wire import agent_pb2 as wire
from controller.wire.limits import MAX_FLOWS_OF_JOB


def join(name: str = "a", flows: int = 2, rank: int = 0) -> wire.JobJoin:
    described = [wire.FlowSpec(name=f"{name}/{n}", src="h1", dst="h2") for n in range(flows)]
    return wire.JobJoin(job=name, gpus=1, hosts=["h1", "h2"], rank=rank, flows=described)


def test_workers_of_one_job_share_its_description() -> None:
    known = JobDescriptions()
    first = known.job(join(rank=0))
    assert first == described_job(join())
    second = join(rank=1)
    assert known.job(second) is first
    assert second.rank == 1
    # One that says something else is another job.
    other = known.job(join(flows=3, rank=1))
    assert isinstance(other, Job)
    assert len(other.flows) == 3


def test_a_refused_description_is_refused_again() -> None:
    known = JobDescriptions()
    wrong = join()
    wrong.gpus = 0
    for _ in range(2):
        with pytest.raises(MessageError, match=r"^job a: it has 0 GPUs; legal: 1 to 10,000,000$"):
            accepted(known.job(wrong))


def test_a_job_of_a_million_flows_is_refused_in_one_line() -> None:
    # Equal flows are enough: they are counted before they are read.
    many = wire.JobJoin(job="a", gpus=1, hosts=["h1"], flows=[wire.FlowSpec()] * (MAX_FLOWS_OF_JOB + 1))
    with pytest.raises(MessageError, match=r"^job a: it has 65,537 flows; legal: at most 65,536$"):
        accepted(JobDescriptions().job(many))


@pytest.mark.parametrize(
    ("many", "words"),
    [
        (wire.JobJoin(job="a", hosts=["h1"] * 65_537), "65,537 hosts; legal: at most 65,536"),
        (wire.JobJoin(job="a", phases=[wire.Phase()] * 1_001), "1,001 phases; legal: at most 1,000"),
    ],
)
def test_a_job_of_too_many_hosts_or_phases_is_refused_in_one_line(many: wire.JobJoin, words: str) -> None:
    with pytest.raises(MessageError, match=f"^job a: it has {words}$"):
        accepted(JobDescriptions().job(many))


def test_few_descriptions_are_kept() -> None:
    known = JobDescriptions()
    first = known.job(join())
    for n in range(3):
        # Hosts count as flows do.
        large = join(f"large{n}", 1)
        large.hosts.extend(["h1"] * (MOST_FLOWS // 2 - 2))
        known.job(large)
    assert known.job(join()) is not first
