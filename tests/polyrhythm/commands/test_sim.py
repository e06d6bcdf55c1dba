# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm sim`, `bench` and `paper` as commands."""

import argparse
import csv
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from polyrhythm import bench, paper
from polyrhythm.api import scenario_workload
from polyrhythm.commands import sim as sim_command
from polyrhythm.scenario import load_scenario, scenario_path
from sim import figures, simulation
from sim.mltcp import LINEAR
from sim.output import parquet_available
from sim.shape import program

TOPOLOGY = {
    "kind": "leaf_spine", "leaves": 4, "spines": 2, "hosts_per_leaf": 2, "host_gbps": 100, "fabric_gbps": 50,
}  # fmt: skip


def command(module: ModuleType, *words: str) -> int:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args(words))
    return code


@pytest.fixture
def fabric(tmp_path: Path) -> str:
    path = tmp_path / "fabric.json"
    path.write_text(json.dumps(TOPOLOGY))
    return str(path)


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_scenario_under_two_policies(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(sim_command, "--trace", "two_vgg19", "--policy", "ecmp,polyrhythm", "--json") == 0
    fair, ours = printed(capsys)["policies"]
    assert (fair["policy"], ours["policy"]) == ("ecmp", "polyrhythm")
    assert fair["finished"] == ours["finished"] == 2
    # Always together: 240 ms for both, then 140 of compute.
    assert fair["mean_slowdown"] == pytest.approx(380 / 260, rel=0.01)
    assert ours["mean_slowdown"] < 1.05
    assert fair["versions"]["polyrhythm"]


def test_a_scenario_may_be_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.json"
    path.write_text(json.dumps(yaml.safe_load(scenario_path("two_vgg19").read_text())))
    assert command(sim_command, "--trace", str(path), "--json") == 0
    assert printed(capsys)["policies"][0]["finished"] == 2
    path.write_text("[]")
    assert command(sim_command, "--trace", str(path)) == 2
    assert "--topology is needed" in capsys.readouterr().err


def test_a_trace_makes_tables(fabric: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--trace", "poisson:30", "--topology", fabric, "--hours", "2", "--samples-s", "600", "--json")
    for name in ("a", "b"):
        assert command(sim_command, *words, "--out", str(tmp_path / name)) == 0
    capsys.readouterr()
    for table in ("jobs", "flows", "links", "samples"):
        first, second = ((tmp_path / name / "ecmp" / f"{table}.csv").read_bytes() for name in ("a", "b"))
        assert first == second
        assert (tmp_path / "a" / "ecmp" / f"{table}.parquet").exists() == parquet_available()
    with (tmp_path / "a" / "ecmp" / "jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 30
    assert all(float(r["ended_s"]) > float(r["started_s"]) >= float(r["arrival_s"]) for r in rows)
    assert all(float(r["mean_iteration_ms"]) >= float(r["ideal_iteration_ms"]) * 0.999999 for r in rows)
    assert (tmp_path / "a" / "summary.json").read_bytes() == (tmp_path / "b" / "summary.json").read_bytes()
    assert not list(tmp_path.rglob("*.checkpoint"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trace", "nowhere"], "no such scenario"),
        (["--trace", "t.csv"], "--topology is needed"),
        (["--trace", "two_vgg19", "--topology", "f.json"], "two_vgg19: a scenario has its own fabric"),
        (["--trace", "two_vgg19", "--policy", "best"], "'best' is no policy; legal"),
        (["--trace", "two_vgg19", "--fail", "spine2"], "legal: NAME@MS"),
        (["--trace", "two_vgg19", "--fail", "spine2@5"], "no switch and no cable"),
        (["--trace", "two_vgg19", "--until-s", "-1"], "--until-s -1: legal"),
        (["--trace", "two_vgg19", "--gpus-per-server", "0"], "--gpus-per-server 0: legal: 1 to"),
        (
            ["--trace", "poisson:3", "--topology", "nowhere.json"],
            "nowhere.json: cannot be read: No such file",
        ),
        (["--trace", "two_vgg19", "--policy", "ecmp,,crux"], "'' is no policy; legal"),
        (["--trace", "two_vgg19", "--pcie-gbps", "nan"], "--pcie-gbps nan: legal: 0 to"),
        (["--trace", "two_vgg19", "--nvlink-gbps", "-1"], "--nvlink-gbps -1: legal: 0 to"),
        (["--trace", "two_vgg19", "--hours", "0"], "--hours 0: legal: 0.001 to"),
        (
            ["--trace", "two_vgg19", "--out", "/dev/null/x"],
            "--out: /dev/null/x: Not a directory; legal: a folder",
        ),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(sim_command, *words) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{h}\n1,2,0,5,vgg16,100\n2,90,0,5,vgg16,9\n", "row 3, column num_gpu: job job-2: it wants 90 GPUs"),
        ("{h}\n1,2,0,5,vgg16,100,7\n", "row 2, column 7: '7' is beyond the header's 6 columns"),
        ("{h},job_id\n1,2,0,5,vgg16,100,7\n", "row 1, column job_id: is there twice"),
        ("{h}\n1,2,0\n", "row 2, column model_name: is empty"),
        ("{h}\n1,2,-1,5,vgg16,100\n", "row 2, column submit_time: -1 is out of range"),
        ("{h}\n1,2,nan,5,vgg16,100\n", "row 2, column submit_time: 'nan' is no number; legal: 0 to"),
        ("{h}\n1,1.5,0,5,vgg16,100\n", "row 2, column num_gpu: 1.5 is no whole number; legal: whole"),
        ("{h}\n1,²,0,5,vgg16,100\n", "row 2, column num_gpu: '²' is no number; legal: 1 to"),
        ("{h}\n1,2,9e11,5,vgg16,100\n", "row 2: job job-1: it arrives at 9e+08 s; legal: up to 9.22337e+06"),
        ("{h}\n1,2,0,1e15,vgg16,100\n", "row 2: job job-1: its 1000000000000000 iterations compute for"),
        ('{h}\n1,2,0,5,"vgg16,100\n', "row 2: not CSV: unexpected end of data"),
        pytest.param("x" * 200_000, "row 1: not CSV: field larger than field limit", id="long cell"),
        ("", "row 1: of no known kind"),
    ],
)
def test_a_bad_trace_is_told_by_row_and_column(
    text: str, message: str, fabric: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time"
    (tmp_path / "trace.csv").write_text(text.format(h=header))
    assert command(sim_command, "--trace", str(tmp_path / "trace.csv"), "--topology", fabric) == 2
    said = capsys.readouterr().err
    assert f"trace.csv: {message}" in said
    assert said.count("\n") == 1


def test_too_many_samples_are_refused(fabric: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--trace", "poisson:3", "--topology", fabric, "--until-s", "10", "--samples-s", "1e-7")
    before = simulation._SAMPLES_BYTES
    simulation._SAMPLES_BYTES = 1 << 20
    try:
        assert command(sim_command, *words) == 2
    finally:
        simulation._SAMPLES_BYTES = before
    assert "take fewer" in capsys.readouterr().err


def test_a_scenario_keeps_its_bytes_on_the_wire() -> None:
    scenario = load_scenario(scenario_path("two_vgg19"))
    for request, workload in zip(scenario_workload(scenario), scenario.workloads, strict=True):
        built = program(request.shape, request.name, request.ranks or ())
        frames = workload.job.flows[0].bytes_per_iteration / scenario.packet_bytes
        assert built.channel_bits == pytest.approx([frames * (scenario.packet_bytes + 58) * 8] * 2)


def test_a_scenario_keeps_its_senders_or_is_refused() -> None:
    scenario = load_scenario(scenario_path("two_vgg19"))
    first, second = scenario.workloads

    def requested(sender: str) -> list[str]:
        changed = replace(first, job=replace(first.job, sender=sender))
        return [r.mltcp for r in scenario_workload(replace(scenario, workloads=(changed, second)))]

    assert requested("dcqcn") == ["", ""]
    assert requested("mltcp-dcqcn") == [LINEAR, ""]
    with pytest.raises(
        ValueError, match="job vgg19-a: the simulator has no equivalent of sender cubic; legal: dcqcn"
    ):
        requested("cubic")


@pytest.mark.parametrize("group", [bench, paper])
def test_a_command_group_names_its_commands(group: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command(group, "nothing")
    assert stopped.value.code == 2
    assert "routing" in capsys.readouterr().err


def test_figures_and_parquet_where_their_extras_are(
    fabric: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--trace", "snapshot:8", "--topology", fabric, "--samples-s", "10", "--policy", "ecmp,routing")
    assert command(sim_command, *words, "--out", str(tmp_path)) == 0
    said = capsys.readouterr().err
    for there, pattern, word in (
        (figures.available(), "*.png", "matplotlib is not installed"),
        (parquet_available(), "*/*.parquet", "pyarrow is not installed"),
    ):
        assert bool(list(tmp_path.glob(pattern))) == there
        assert (word in said) != there


def test_the_bench_prints_its_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numba")
    small = {"PAPER_JOBS": (("BLOOM", 2),), "ACTIVE_FLOWS": 800, "OVERLOADED_EVENTS": 100, "PLAIN_S": 0.1}
    for name, value in small.items():
        monkeypatch.setattr(f"polyrhythm.bench.sim.{name}", value)
    assert command(bench, "sim", "--json") == 0
    report = printed(capsys)
    wanted = {"events_per_second", "events_per_second_overloaded", "speedup_full_resolve"}
    assert wanted <= set(report)
    assert all(report[key] > 0 for key in wanted)


def test_spraying_and_flowlets_are_compared_with_ecmp(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(sim_command, "--trace", "collide", "--policy", "ecmp,spray,dlb", "--json") == 0
    ecmp, spray, dlb = printed(capsys)["policies"]
    assert spray["mean_slowdown"] == pytest.approx(1.0, abs=0.01)
    assert dlb["mean_slowdown"] == pytest.approx(1.0, abs=0.02)
    assert ecmp["mean_slowdown"] > 1.2
