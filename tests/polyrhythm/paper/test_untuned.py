# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper untuned`: the jobs and their load, the table, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyrhythm.cli import main
from polyrhythm.paper.untuned import to_text
from polyrhythm.paper.untuned_jobs import (
    HORIZON_S,
    STATISTICS,
    UntunedSpec,
    alone_ns,
    at_load,
    cluster,
    excerpt,
    generated,
    smallest_fabric,
    workload,
)
from polyrhythm.paper.untuned_table import UntunedRun, losses, spraying, table
from sim.cluster import JobRequest
from sim.models import data_parallel

HOUR_NS = 3600 * 10**9


@pytest.mark.parametrize("trace", STATISTICS)
@pytest.mark.parametrize("load", [0.5, 0.9])
def test_the_jobs_offer_the_load_that_is_asked_for(trace: str, load: float) -> None:
    spec = UntunedSpec(trace, "8-racks", load, 1, 8.0, "")
    found = workload(spec)
    on = cluster("8-racks")
    busy = sum(
        job.gpus * length for job, length in zip(found.requests, alone_ns(on, found.requests), strict=True)
    )
    assert found.load == pytest.approx(load, rel=0.05)
    assert busy / on.gpus / HORIZON_S / 1e9 == pytest.approx(found.load, rel=1e-6)
    assert max(job.arrival_ns for job in found.requests) == HORIZON_S * 1e9
    assert workload(UntunedSpec(trace, "8-racks", load, 2, 8.0, "")).requests != found.requests


def test_each_trace_gets_the_smallest_fabric_that_has_its_largest_job(tmp_path: Path) -> None:
    assert {name: smallest_fabric(name) for name in STATISTICS} == {
        "lingjun": "8-racks",
        "muri": "2-racks",
        "sensetime": "2-racks",
    }
    trace = tmp_path / "trace.csv"
    row = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n0,{},0,9,vgg16,200\n"
    for gpus, expected in ((64, "2-racks"), (65, "8-racks"), (513, "8-racks")):
        trace.write_text(row.format(gpus))
        assert smallest_fabric(str(trace)) == expected


def test_no_job_is_longer_than_a_third_of_the_horizon() -> None:
    jobs = generated(STATISTICS["muri"], 3, 512, 1)
    alone = [job.iterations * job.shape.compute_ns for job in jobs]
    found = at_load(jobs, [float(a) for a in alone], 1.0, 512, HOUR_NS)
    assert found.load < 0.5
    for before, after in zip(jobs, found.requests, strict=True):
        assert after.iterations * before.shape.compute_ns <= HOUR_NS / 3 + before.shape.compute_ns


def test_an_excerpt_keeps_the_traces_order_and_distances() -> None:
    shape = data_parallel("bert")
    jobs = [JobRequest(f"job-{i}", "bert", i * i * 10**9, 1, 1, shape) for i in range(20)]
    found = excerpt(jobs, 5, 1)
    first = jobs.index(found[0])
    assert found == jobs[first : first + 5]
    at_once = [JobRequest(f"job-{i}", "bert", 0, 1, 1, shape) for i in range(20)]
    drawn = excerpt(at_once, 5, 1)
    assert len({job.name for job in drawn}) == 5
    assert len({job.arrival_ns for job in drawn}) == 5
    assert excerpt(at_once, 5, 1) == drawn != excerpt(at_once, 5, 2)


def test_the_table_by_hand() -> None:
    def run(*completion: float) -> UntunedRun:
        return UntunedRun(completion, 6.0, 8.0)

    runs = {
        ("t", 0.5, "ecmp", 1): run(10.0, 20.0),
        ("t", 0.5, "ecmp", 2): run(20.0, 20.0),
        ("t", 0.5, "crux", 1): run(14.0, 16.0),
        ("t", 0.5, "crux", 2): run(24.0, 20.0),
        ("t", 0.5, "polyrhythm", 1): run(9.0, 18.0),
        ("t", 0.5, "polyrhythm", 2): run(18.0, 18.0),
        ("t", 0.5, "spray", 1): run(9.0, 18.0),
        ("t", 0.5, "spray", 2): run(18.0, 18.0),
        ("t", 0.5, "spray-priority", 1): run(8.1, 16.2),
        ("t", 0.5, "spray-priority", 2): run(16.2, 16.2),
    }
    rows = {row["policy"]: row for row in table(runs)}
    assert rows["crux"]["mean_jct_s"] == 18.5
    assert rows["crux"]["gpu_utilisation"] == 0.75
    # Quotients 1.0 and 1.1: mean 1.05, Student's t of two draws 12.706.
    assert rows["crux"]["jct_to_ecmp"] == 1.05
    assert rows["crux"]["jct_to_ecmp_pm"] == pytest.approx(12.706 * 0.05, abs=1e-3)
    assert rows["crux"]["worst_job"] == 1.4
    found = [(row["policy"], row["against"], row["certain"]) for row in losses(runs)]
    assert found[0] == ("crux", "spray-priority", False)
    assert ("polyrhythm", "spray-priority", True) in found
    assert not any(judged == "polyrhythm" and rival in {"ecmp", "spray"} for judged, rival, _ in found)
    (place,) = spraying(runs)
    assert place["routing_needless"]
    assert place["best_routing"] == "ecmp"
    assert place["on_top"] == {"spray-priority": {"ratio": 0.9, "pm": 0.0}}


@pytest.mark.slow
def test_a_file_through_the_command_and_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fabric.json").write_text(
        '{"kind": "leaf_spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 2, "host_gbps": 100, '
        '"fabric_gbps": 100}'
    )
    header = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time"
    jobs = [f"{i},{(4, 12, 16)[i % 3]},{1000 * i},{50 + i},vgg16,200" for i in range(6)]
    (tmp_path / "trace.csv").write_text("\n".join([header, *jobs]) + "\n")
    out = tmp_path / "out"
    words = ["paper", "untuned", "--trace", str(tmp_path / "trace.csv"), "--loads", "0.9", "--seeds", "2"]
    words += [
        "--topology",
        str(tmp_path / "fabric.json"),
        "--policies",
        "crux",
        "polyrhythm-unjudged",
        "spray-priority",
    ]
    words += ["--workers", "1", "--json", "--out", str(out)]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in report["rows"]] == [
        "ecmp",
        "crux",
        "polyrhythm-unjudged",
        "spray-priority",
    ]
    assert next(iter(report)) == "calibrated"
    left = report["not_run"]
    assert (left["loads"], left["seeds"]) == ([0.5, 0.7], 1)
    assert "polyrhythm" in left["policies"]
    assert "loads 0.5 0.7, 1 of 3 seeds\n" in to_text(report)
    assert report["workloads"][0]["jobs"] == [6, 6]
    assert all(row["gpu_utilisation"] > 0 for row in report["rows"])
    lines = (out / "simulations.jsonl").read_text().splitlines()
    assert len(lines) == 8
    # Killed while it wrote the last row: the command simulates that one and ends with the same report.
    (out / "simulations.jsonl").write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:40])
    assert main(words) == 0
    again = json.loads(capsys.readouterr().out)
    assert {k: v for k, v in again.items() if k != "seconds"} == {
        k: v for k, v in report.items() if k != "seconds"
    }
    assert (out / "simulations.jsonl").read_text().splitlines() == lines


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--loads", "0"], "--loads: 0; legal: 0.05"),
        (["--loads", "nan"], "--loads: nan; legal"),
        (["--loads", "0.5", "0.5"], "--loads: 0.5 0.5; legal: each once"),
        (["--seeds", "6"], "--seeds: 6; legal: 1 to 5"),
        (["--jobs-a-gpu", "inf"], "--jobs-a-gpu: inf; legal"),
        (["--trace", "nowhere.csv"], "nowhere.csv"),
        (["--topology", "nowhere.json"], "nowhere.json"),
        (["--workers", "0"], "--workers: 0"),
    ],
)
@pytest.mark.parametrize("quick", [["--quick"], []])
def test_bad_input(
    options: list[str], says: str, quick: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paper", "untuned", *quick, *options]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_job_larger_than_the_cluster_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n1,65,0,5,vgg16,200\n")
    assert main(["paper", "untuned", "--quick", "--trace", str(path)]) == 2
    assert f"{path}: row 2, column num_gpu: job job-1: it wants 65 GPUs" in capsys.readouterr().err
