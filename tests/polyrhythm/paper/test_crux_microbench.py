# SPDX-License-Identifier: Apache-2.0
"""The small cases of CRUX, section 4.4: that the optimum is one, and that the report is what was measured."""

import csv
import json
from collections import Counter
from itertools import permutations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from controller.priority.fluid import Fluid, progress
from polyrhythm.cli import main
from polyrhythm.paper import crux_cases, crux_microbench
from polyrhythm.paper.charts import draw_cdf
from polyrhythm.paper.crux_case_paths import RingFabric, least_congested_paths
from polyrhythm.paper.crux_cases import (
    HORIZON_S,
    JOBS,
    PARTITIONS,
    PATHS,
    _compressions,
    _first_order,
    draw_case,
    measure,
    splits,
)
from polyrhythm.paper.crux_microbench import collect

pytest.importorskip("numba")


def test_every_answer_is_there_once() -> None:
    assert len(PARTITIONS) == len(set(PARTITIONS)) == 181
    assert len(PATHS) == 16
    for order in permutations(range(JOBS)):
        cuts = list(splits(order))
        assert len(set(cuts)) == 11
        assert all([c[j] for j in order] == sorted(c) for c in cuts)
        assert set(cuts) <= set(PARTITIONS)


def test_cases_are_of_the_papers_size() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        case = draw_case(rng)
        assert sum(case.hosts) <= 20
        assert case.gpus.tolist() == [8 * n for n in case.hosts]
        assert max(t for mine in case.tors for t in mine) < 4
        assert all(0 < len(t) <= n for t, n in zip(case.tors, case.hosts, strict=True))


def test_the_table_holds_what_the_plain_reference_computes() -> None:
    rng = np.random.default_rng(5)
    for _ in range(3):
        case = draw_case(rng)
        table = case.utilities(PATHS, PARTITIONS)
        assert table.shape == (16, 181)
        assert table.max() <= case.alone * (1 + 1e-9) + (case.gpus * case.compute).sum()
        for p, q in zip(rng.integers(0, 16, 4), rng.integers(0, 181, 4), strict=True):
            fluid = Fluid(case.before, case.compute - case.before, case.seconds(PATHS[p]))
            computed, _ = progress(fluid, PARTITIONS[q], HORIZON_S, plain=True)
            assert table[p, q] == pytest.approx(float((computed * case.gpus).sum()), rel=1e-6)


def test_random_cuts_are_cuts_of_the_order_each_as_likely() -> None:
    case = draw_case(np.random.default_rng(3))
    jobs = case.jobs(PATHS[0])
    rng = np.random.default_rng(8)
    order = (3, 1, 4, 0, 2)
    drawn = [dict(_compressions(case, jobs, order, rng))["_random"] for _ in range(1_100)]
    counts = Counter(drawn)
    assert set(counts) == set(splits(order))
    assert max(counts.values()) < 150


def test_swapping_the_switches_changes_nothing() -> None:
    case = draw_case(np.random.default_rng(9))
    there = case.utilities([(0, 1, 1, 0, 1)], PARTITIONS)[0]
    back = case.utilities([(1, 0, 0, 1, 0)], PARTITIONS)[0]
    assert len(set(there.tolist())) > 1
    assert there.tolist() == pytest.approx(back.tolist())


def test_methods_see_the_links_that_the_table_has() -> None:
    case = draw_case(np.random.default_rng(3))
    for paths in PATHS[::5]:
        jobs = case.jobs(paths)
        rates = case.rates(jobs)
        for j, job in enumerate(jobs):
            assert job.contender(rates).traffic_s == pytest.approx(case.traffic[j])
            assert len(job.bytes_on) == int((case.seconds(paths)[j] > 0).sum())


def test_paths_are_the_planners_greedy_choice_by_any_measure_of_load() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        case = draw_case(rng)
        tors = [case.crossing(j) for j in range(JOBS)]
        order = [int(j) for j in rng.permutation(JOBS)]
        load = rng.choice([1.0, 2.0, 3.5], JOBS)
        on = np.zeros((4, 2))
        greedy = [0] * JOBS
        for j in order:
            if tors[j]:
                mine = list(tors[j])
                greedy[j] = min((0, 1), key=lambda a: (on[mine, a].max(), on[mine, a].sum()))
                on[mine, greedy[j]] += load[j]
        assert least_congested_paths(RingFabric(tors, 2, 1.0), order, load) == tuple(greedy)
    nobody = RingFabric([()] * JOBS, 2, 1.0)
    assert least_congested_paths(nobody, range(JOBS), np.ones(JOBS)) == (0,) * JOBS


def test_the_first_order_that_can_be_cut_into_an_optimum() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        optimal = {int(i) for i in rng.integers(0, 181, 3)}
        wanted = {PARTITIONS[i] for i in optimal}
        first = next(o for o in permutations(range(JOBS)) if wanted & set(splits(o)))
        assert _first_order(optimal) == first


def test_nothing_is_above_the_optimum_and_easy_cases_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [measure(1, number) for number in range(15)]
    hard = [row for row in rows if row is not None]
    assert hard
    for row in hard:
        assert row["ecmp"] < 0.95
        assert all(0 < part <= 1 + 1e-9 for part in row.values())
    assert rows == [measure(1, number) for number in range(15)]
    monkeypatch.setattr(crux_cases, "TOO_EASY", min(row["ecmp"] for row in hard))
    assert [measure(1, number) for number in range(15)] == [None] * 15


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crux_microbench, "_CHUNK", 2)
    assert collect(6, 4, 1) == collect(6, 4, 2)


def test_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crux_microbench, "_CHUNK", 4)
    out = tmp_path / "new" / "folder"
    options = ["--cases", "10", "--workers", "1", "--json", "--out", str(out)]
    assert main(["paper", "crux-microbench", *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((out / "report.json").read_text())
    assert report["cases"] == 10
    assert report["tried"] >= 10
    rows = list(csv.DictReader((out / "cases.csv").read_text().splitlines()))
    assert len(rows) == 10
    for key in (
        "path_selection",
        "priority_assignment",
        "priority_assignment_intensity",
        "compression",
        "random",
    ):
        mean = 100 * sum(float(r[key]) for r in rows) / 10
        assert report[f"{key}_pct"] == pytest.approx(mean, abs=0.01)
    assert report["random_pct"] < report["compression_pct"]
    for part in ("path_selection", "priority_assignment", "compression"):
        points = report[f"{part}_pct"] - report[f"{part}_random_pct"]
        assert report["random_below"][part] == pytest.approx(points, abs=0.01)
        assert report["as_good_as_the_paper"][part] == (report[f"{part}_pct"] >= report["paper_pct"][part])
    assert report["hard_enough"] == all(points >= 5 for points in report["random_below"].values())
    assert len(report["figures"]) == 3
    for name in report["figures"]:
        assert ElementTree.parse(out / name).getroot().tag.endswith("svg")


def test_the_text_has_each_measure_and_the_papers_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "crux-microbench", "--cases", "2", "--workers", "1", "--seed", "3"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    (found,) = (line for line in lines if line[0] == "path_selection")
    assert found[2] == "+-"
    assert found[-2:] == ["(paper", "97.69)"]
    assert {"random", "ecmp", "path_selection_taccl", "compression_varys"} <= {line[0] for line in lines}


def test_a_distribution_is_drawn_to_its_end() -> None:
    image = ElementTree.fromstring(draw_cdf("a < b", "x", {"one": [3.0, 1.0, 2.0], "two": [0.0]}))
    paths = [p.get("d") or "" for p in image.iter() if p.tag.endswith("path") and p.get("fill") == "none"]
    assert [p.count("V") for p in paths] == [3, 1]
    assert any(t.text == "a < b" for t in image.iter())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--cases", "0"], "--cases: 0; legal: a whole number from 1"),
        (["--workers", "0"], "--workers: 0"),
        (["--seed", "-1"], "--seed: -1; legal: a whole number from 0"),
        (["--out", "{file}/below"], "legal: a folder that can be written"),
    ],
)
def test_bad_options(
    options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    given = [o.format(file=tmp_path / "file") for o in options]
    assert main(["paper", "crux-microbench", *given]) == 2
    assert says in capsys.readouterr().err
