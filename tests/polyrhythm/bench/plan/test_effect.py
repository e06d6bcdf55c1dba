# SPDX-License-Identifier: Apache-2.0
"""The group `effect` of `polyrhythm bench plan`: what counts as an effect, and a small controller."""

from __future__ import annotations

import pytest

from controller.wire import agent_pb2 as pb
from polyrhythm.bench.plan import effect
from polyrhythm.bench.plan.agent_stand_ins import AgentStandIns, JobArrival


class _Session:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[pb.AgentMessage] = []

    def send(self, message: pb.AgentMessage) -> None:
        self.sent.append(message)


def _agents() -> AgentStandIns:
    return AgentStandIns(sessions={"h1": _Session(), "h2": _Session()})  # type: ignore[dict-item]


def _flow(name: str, port: int) -> pb.ControllerMessage:
    return pb.ControllerMessage(flow=pb.FlowAssignment(flow=name, source_port=port))


def _schedule(job: str) -> pb.ControllerMessage:
    return pb.ControllerMessage(schedule=pb.JobSchedule(job=job))


def test_an_effect_is_there_when_every_agent_has_been_told_everything() -> None:
    agents, rng = _agents(), effect.Random(1)
    agents.arrive(effect.job("a", ["h1", "h2"], rng))
    joins = [s.sent[0].job_join.rank for s in agents.sessions.values()]  # type: ignore[attr-defined]
    assert joins == [0, 1]
    arrival = agents.arrivals["a"]
    agents.said("h1", _flow("a/h1>h2", 0))  # by ECMP: no effect
    for host, message in (
        ("h1", _schedule("a")),
        ("h1", _flow("a/h1>h2", 50_000)),
        ("h2", _schedule("a")),
    ):
        agents.said(host, message)
        assert arrival.ended_s is None
    agents.said("h2", _flow("a/h2>h1", 50_001))
    assert arrival.ended_s is not None
    assert arrival.ended_s >= arrival.began_s


def test_figures_count_what_never_came() -> None:
    arrivals = {"a": JobArrival(1.0, set(), 1.25), "b": JobArrival(2.0, {"h1"})}
    found = effect.figures(arrivals, [0.002, 0.004], 1)
    assert found["jobs_unfinished"] == found["unanswered"] == 1
    assert found["job_to_effect_median_ms"] == (250 + 10_000) / 2
    assert found["answer_median_ms"] == 4.0


@pytest.mark.slow
def test_a_small_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effect, "SIZES", (4, 2))
    monkeypatch.setattr(effect, "JOBS", 3)
    monkeypatch.setattr(effect, "HOSTS_A_JOB", 2)
    monkeypatch.setattr(effect, "LIFE_S", 1.0)
    # Longer than any machine needs; a job that has its effect does not wait for it.
    monkeypatch.setattr(effect, "END_S", 300.0)
    found = effect.measure(1, 1)
    assert found["jobs"] == 3
    assert found["jobs_unfinished"] == found["unanswered"] == 0
    # How many there are depends on the machine: a flow is asked for again when the last answer is there.
    assert found["answers"] > 0
    assert 0 < found["job_to_effect_median_ms"] <= found["job_to_effect_p99_ms"]
