# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper dally` at the door."""

from __future__ import annotations

import json

import pytest

from polyrhythm.cli import main
from polyrhythm.paper.dally_paper import FIGURES, TABLES, ratio, verdict

QUICK = ["paper", "dally", "--quick", "--jobs", "60", "--workers", "1"]


def test_report_files_and_a_second_run_from_them(tmp_path, capsys) -> None:
    words = [*QUICK, "--schedulers", "dally", "gandiva", "--json", "--out", str(tmp_path)]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "report.json").read_text())
    rows = {(r["arrivals"], r["scheduler"]): r for r in report["rows"]}
    assert len(rows) == 6
    assert {r["racks"] for r in report["rows"]} == {8}
    for (_, name), row in rows.items():
        assert row["jct_median"] <= row["jct_p95"] <= row["jct_p99"] <= row["makespan"]
        assert set(row["paper"]) == (set() if name == "tiresias" else set(FIGURES))
        assert row["to_tiresias"]["jct_mean"] == pytest.approx(
            row["jct_mean"] / rows[row["arrivals"], "tiresias"]["jct_mean"], abs=1e-3
        )
    assert sum(report["verdicts"].values()) == 2 * 2 * 4
    table = (tmp_path / "jobs.csv").read_text().splitlines()
    assert len(table) == 1 + 6 * 60
    # A run that was stopped after its first rows continues to the same report.
    rows_file = tmp_path / "rows.jsonl"
    rows_file.write_text("".join(rows_file.read_text().splitlines(keepends=True)[:2]) + '{"mark": "cut')
    assert main(words) == 0
    again = json.loads(capsys.readouterr().out)
    assert again | {"seconds": 0} == report | {"seconds": 0}


def test_text(capsys) -> None:
    assert main([*QUICK, "--schedulers", "dally", "--rule", "flat"]) == 0
    text = capsys.readouterr().out
    assert "batch, 8 racks" in text
    assert "poisson, 8 racks" in text
    assert "of 8 ratios of Tables II and III" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--racks", "0"], "--racks: 0; legal: a number from 1"),
        (["--racks", "0", "8"], "--racks: 0; legal"),
        (["--jobs", "0"], "--jobs: 0; legal"),
        (["--lease-h", "0"], "--lease-h: 0.0; legal: a number from 0.01"),
        (["--lease-h", "nan"], "--lease-h: nan; legal"),
        (["--history", "inf"], "--history: inf; legal"),
        (["--restore-s", "-1"], "--restore-s: -1.0; legal"),
        (["--seed", "-1"], "--seed: -1; legal"),
        (["--trace", "nowhere.json"], "nowhere.json: cannot be read"),
    ],
)
def test_bad_options(words, message, capsys) -> None:
    assert main(["paper", "dally", "--workers", "1", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_job_larger_than_the_smallest_cluster_is_named_with_its_row(tmp_path, capsys) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n"
        "1,8,0,100,resnet50,50\n2,65,0,100,vgg11,50\n"
    )
    assert main(["paper", "dally", "--racks", "1", "--trace", str(path)]) == 2
    error = capsys.readouterr().err
    assert "row 3, column num_gpu" in error
    assert "wants 65 GPUs; legal: 1 to the cluster's 64" in error


def test_the_papers_ratios() -> None:
    assert ratio("batch", "dally", "jct_mean") == pytest.approx(0.634, abs=1e-3)
    assert ratio("poisson", "dally", "jct_mean") == pytest.approx(0.654, abs=1e-3)
    assert ratio("batch", "hived", "jct_mean") is None
    assert all(ratio(a, "tiresias", f) == 1 for a in TABLES for f in FIGURES)


@pytest.mark.parametrize(
    ("ours", "published", "expected"),
    [
        (0.70, 0.63, "reproduced"),
        (1.02, 0.94, "reproduced"),
        (0.20, 0.63, "order only"),
        (9.0, 1.2, "order only"),
        (1.5, 0.63, "not reproduced"),
        # Neither has an order: the paper's is Tiresias' equal, or ours is.
        (1.66, 1.002, "not reproduced"),
        (1.026, 13.6, "not reproduced"),
    ],
)
def test_verdicts(ours: float, published: float, expected: str) -> None:
    assert verdict(ours, published) == expected


def test_dallys_placements_on_shared_links(tmp_path, capsys) -> None:
    # A job of 12 GPUs needs two machines. At 25 Gbit/s its gradients take longer than its compute.
    job = {"model": "BERT", "total_iterations": "600", "time_per_iteration": "0.3", "max_parallelism": "12"}
    trace = tmp_path / "two.json"
    trace.write_text(json.dumps([job | {"job_id": str(n)} for n in range(2)]))
    words = ["paper", "dally", "--model", "shared", "--racks", "1", "--trace", str(trace), "--workers", "1"]
    words += ["--host-gbps", "25", "--policies", "crux", "--schedulers", "dally+cassini"]
    assert main([*words, "--json", "--out", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["rows"]) == 8
    rows = {(r["arrivals"], r["policy"]): r for r in report["rows"] if r["scheduler"] == "dally"}
    assert set(rows) == {(a, p) for a in ("batch", "poisson") for p in ("ecmp", "crux")}
    assert report["largest_demand"] == 12
    for row in rows.values():
        assert (row["machines_gpu_time"], row["racks_gpu_time"]) == (1.0, 0.0)
        assert 0 < row["network_time"] < 1
        # There is room for each on machines of its own.
        assert row["contended_time"] == 0
        assert row["makespan"] >= row["jct_p99"] >= row["jct_median"]
    for (arrivals, _), row in rows.items():
        ratio_of_means = row["jct_mean"] / rows[arrivals, "ecmp"]["jct_mean"]
        assert row["shorter_by"]["jct_mean"] == pytest.approx(1 - ratio_of_means, abs=1e-3)
    assert (tmp_path / "jobs-shared.csv").read_text().count("\n") == 1 + 8 * 2


def test_what_jobs_on_shared_machines_take_from_one_another_is_told(tmp_path, capsys) -> None:
    # Five jobs of 12 GPUs fill five machines, and meet on the other three.
    job = {"model": "BERT", "total_iterations": "60", "time_per_iteration": "0.3", "max_parallelism": "12"}
    trace = tmp_path / "five.json"
    trace.write_text(json.dumps([job | {"job_id": str(n)} for n in range(5)]))
    words = ["paper", "dally", "--model", "shared", "--racks", "1", "--trace", str(trace), "--workers", "1"]
    assert main([*words, "--host-gbps", "25", "--policies", "ecmp", "--json"]) == 0
    batch, _ = json.loads(capsys.readouterr().out)["rows"]
    assert 0.01 < batch["contended_time"] < batch["network_time"] < 1


def test_cassini_has_nothing_to_rank_where_no_link_is_shared(capsys) -> None:
    assert main(["paper", "dally", "--schedulers", "dally+cassini", "--jobs", "3"]) == 2
    assert "--schedulers: dally+cassini: jobs share no link here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--oversubscription", "0"], "--oversubscription: 0.0; legal: a number from 0.1 to 100"),
        (["--load", "nan"], "--load: nan; legal: a number from 0.01 to 100"),
        (["--policies", "none"], "--policies: 'none'"),
    ],
)
def test_bad_options_of_shared_links(words, message, capsys) -> None:
    assert main(["paper", "dally", "--model", "shared", "--jobs", "3", *words]) == 2
    assert message in capsys.readouterr().err
