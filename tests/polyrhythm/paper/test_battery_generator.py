# SPDX-License-Identifier: Apache-2.0
"""What the guide of the battery promises of its random scenarios."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrhythm.paper.battery_generator import (
    FEWEST_PACKETS,
    KINDS,
    MOST_HOSTS,
    MOST_JOBS,
    MOST_PACKETS,
    BatteryScenario,
    draw,
    with_start_offsets,
)
from polyrhythm.scenario import load_scenario

seeds, numbers = st.integers(0, 10**6), st.integers(1, 10_000)


@cache
def first_hundred(seed: int) -> list[BatteryScenario]:
    return [draw(seed, number) for number in range(1, 101)]


@given(seeds, numbers)
@settings(max_examples=20, deadline=None)
def test_seed_and_number_decide_the_scenario(seed: int, number: int) -> None:
    scenario = draw(seed, number)
    assert draw(seed, number) == scenario
    assert scenario.name == f"battery-{seed}-{number}"
    assert scenario.kind in KINDS


@given(seeds, numbers, st.integers(3, MOST_JOBS))
@settings(max_examples=40, deadline=None)
def test_the_ranges(seed: int, number: int, most_jobs: int) -> None:
    document = draw(seed, number, most_jobs).document
    fabric, jobs = document["fabric"], document["jobs"]
    tiers = [s["tier"] for s in fabric["switches"]]
    assert 1 <= tiers.count("leaf") <= 4
    assert tiers.count("spine") <= 4
    assert tiers.count("spine") >= 1 or tiers.count("leaf") == 1
    assert 2 <= len(jobs) <= most_jobs
    assert len(fabric["hosts"]) <= MOST_HOSTS
    fastest = max(host["gbps"] for host in fabric["hosts"])
    # One cable alone limits no job: alone, it does not matter which spine a flow takes.
    assert all(cable["gbps"] >= fastest for cable in fabric["links"])
    for job in jobs:
        assert 2 <= len(job["hosts"]) <= 5
        assert 0 <= job["jitter_pct"] <= 5
        phases = job["phases"]
        assert all(p["start_ms"] < p["end_ms"] for p in phases)
        assert 0.2 <= sum(p["end_ms"] - p["start_ms"] for p in phases) / job["period_ms"] <= 0.66
        frames_ms = phases[0]["gbps"] * 1e6 / document["scale"] / ((document["packet_bytes"] + 58) * 8)
        assert min(p["end_ms"] - p["start_ms"] for p in phases) * frames_ms >= FEWEST_PACKETS


@given(seeds, numbers)
@settings(max_examples=40, deadline=None)
def test_the_spans_are_the_times_between_arrivals_and_departures(seed: int, number: int) -> None:
    scenario = draw(seed, number)
    jobs, spans = scenario.document["jobs"], scenario.spans
    assert spans[0].begin_ms == 0
    assert all(a.end_ms == b.begin_ms for a, b in pairwise(spans))
    for span in spans:
        longest = max(job["period_ms"] for job in jobs)
        assert span.begin_ms + 12 * longest == span.measured_ms < span.end_ms
        assert len(span.jobs) >= 2
        for job in jobs:
            present = job["start_ms"] < span.end_ms and job.get("stop_ms", 10**9) > span.begin_ms
            assert present == (job["name"] in span.jobs)
            if present:
                # The whole of the measured time, so that all measured jobs are there.
                assert job["start_ms"] <= span.begin_ms + job["period_ms"] <= span.measured_ms
                assert job.get("stop_ms", span.end_ms) >= span.end_ms
    packets = sum(
        sum(s.end_ms - s.begin_ms for s in spans if job["name"] in s.jobs)
        * sum(p["end_ms"] - p["start_ms"] for p in job["phases"])
        / job["period_ms"]
        * len(job["hosts"])
        * job["phases"][0]["gbps"]
        * 1e6
        / scenario.document["scale"]
        / 8656
        for job in jobs
    )
    assert packets <= MOST_PACKETS * 1.001


@given(seeds, numbers, st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_draws_differ_in_the_start_offsets_alone(seed: int, number: int, draw_number: int) -> None:
    scenario = draw(seed, number)
    assert with_start_offsets(scenario, 0) == scenario
    other = with_start_offsets(scenario, draw_number)
    assert other == with_start_offsets(scenario, draw_number)
    assert other.spans == scenario.spans
    for own, job in zip(scenario.document["jobs"], other.document["jobs"], strict=True):
        assert {**own, "start_ms": 0} == {**job, "start_ms": 0}
        begin = next(span.begin_ms for span in scenario.spans if job["name"] in span.jobs)
        assert begin <= job["start_ms"] < begin + job["period_ms"]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_battery_has_all_that_the_guide_promises(seed: int) -> None:
    scenarios = first_hundred(seed)
    documents = [s.document for s in scenarios]
    assert {s.kind for s in scenarios} == set(KINDS)
    assert {len(d["jobs"]) for d in documents} == set(range(2, 11))
    assert {len(job["hosts"]) for d in documents for job in d["jobs"]} == {2, 3, 4, 5}
    leaves = [sum(s["tier"] == "leaf" for s in d["fabric"]["switches"]) for d in documents]
    spines = [sum(s["tier"] == "spine" for s in d["fabric"]["switches"]) for d in documents]
    assert set(leaves) == {1, 2, 3, 4}
    assert set(spines) == {0, 1, 2, 3, 4}
    assert {job["jitter_pct"] for d in documents for job in d["jobs"]} == {0, 1, 2, 3, 5}
    assert any(len({link["gbps"] for link in d["fabric"]["links"]}) > 1 for d in documents)
    assert any(len(s.spans) > 1 for s in scenarios)
    assert any("stop_ms" in job for d in documents for job in d["jobs"])

    def twins(document: dict[str, object]) -> bool:
        jobs = document["jobs"]
        assert isinstance(jobs, list)
        return len({(j["gpus"], j["period_ms"], json.dumps(j["phases"])) for j in jobs}) < len(jobs)

    assert 20 < sum(twins(dict(d)) for d in documents) < 100


def test_every_scenario_is_legal(tmp_path: Path) -> None:
    for scenario in first_hundred(1):
        file = tmp_path / f"{scenario.name}.json"
        file.write_text(json.dumps(scenario.document))
        assert [w.job.name for w in load_scenario(file).workloads] == [
            job["name"] for job in scenario.document["jobs"]
        ]


def test_compatible_jobs_have_one_period_and_fit() -> None:
    for scenario in first_hundred(1):
        if scenario.kind == "compatible":
            jobs = scenario.document["jobs"]
            assert len({job["period_ms"] for job in jobs}) == 1
