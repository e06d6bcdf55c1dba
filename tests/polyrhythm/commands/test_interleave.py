# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm interleave` as a command: the vectors of the thesis, its promises on random files, bad input."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ET
from itertools import pairwise, product
from math import lcm
from pathlib import Path

import pytest

from polyrhythm.cli import main


def phase(start: float, end: float, gbps: float = 50) -> dict:
    return {"start_ms": start, "end_ms": end, "gbps": gbps}


def task(jobs: dict[str, tuple[float, list]], links: dict[str, list[str]] | None = None, **more) -> dict:
    links = links or {"l1": list(jobs)}
    return {
        "links": [{"name": n, "gbps": 50, "jobs": who} for n, who in links.items()],
        "jobs": [{"name": n, "period_ms": t, "phases": phases} for n, (t, phases) in jobs.items()],
        **more,
    }


def call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: object, *words: str
) -> tuple[int, str, str]:
    file = tmp_path / "task.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    code = main(["interleave", str(file), *words])
    out, err = capsys.readouterr()
    return code, out, err


def solved(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: object) -> dict:
    code, out, err = call(tmp_path, capsys, data, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize(("ups", "score"), [((10, 10), 1.0), ((10, 20), 11 / 12), ((20, 20), 5 / 6)])
def test_40_60_vectors(tmp_path, capsys, ups, score) -> None:
    found = solved(tmp_path, capsys, task({"a": (40, [phase(0, ups[0])]), "b": (60, [phase(0, ups[1])])}))
    (link,) = found["links"]
    assert link["score"] == pytest.approx(score, abs=1e-12)
    assert link["best_score"] == link["score"]
    assert link["perimeter_ms"] == 120
    assert [j["period_ms"] for j in found["jobs"]] == [40, 60]
    if ups == (10, 10):
        assert link["score"] == 1.0
        assert found["jobs"][1]["shift_ms"] == 10
        assert link["rotation_deg"] == {"a": 0, "b": 30}


def test_vgg16_pair(tmp_path, capsys) -> None:
    found = solved(tmp_path, capsys, task({"a": (255, [phase(141, 255)]), "b": (255, [phase(141, 255)])}))
    assert found["links"][0]["score"] == 1.0
    assert found["jobs"][0]["shift_ms"] == 0
    assert 114 <= found["jobs"][1]["shift_ms"] <= 141
    assert len(found["links"][0]["demand_gbps"]) == 72
    assert found["loops"] == []


def exact_score(data: dict, link: dict, periods: dict, shifts: dict) -> float:
    """Integrated over the printed periods and shifts, in ns."""
    jobs = {j["name"]: j for j in data["jobs"]}
    around = lcm(*(periods[j] for j in link["jobs"]))
    cuts = {0, around}
    for name in link["jobs"]:
        for p in jobs[name]["phases"]:
            for edge in (p["start_ms"], p["end_ms"]):
                first = (round(edge * 1e6) + shifts[name]) % periods[name]
                cuts |= set(range(first, around, periods[name]))
    area = 0.0
    ordered = sorted(cuts)
    for begin, end in pairwise(ordered):
        total = 0.0
        for name in link["jobs"]:
            at = (begin - shifts[name]) % periods[name] / 1e6
            total += sum(p["gbps"] for p in jobs[name]["phases"] if p["start_ms"] <= at < p["end_ms"])
        area += max(0.0, total - link["gbps"]) * (end - begin)
    return 1 - area / around / link["gbps"]


@pytest.mark.parametrize("seed", range(12))
def test_printed_scores_are_exact_and_best_scores_beat_the_step_grid(tmp_path, capsys, seed) -> None:
    rng = random.Random(seed)
    jobs = {}
    for name in "abc":
        period = rng.choice([40, 60, 120, 90])
        cuts = sorted(rng.sample(range(period + 1), 4))
        jobs[name] = (
            period,
            [phase(*cuts[:2], rng.choice([50, 25])), phase(*cuts[2:], rng.choice([50, 10]))],
        )
    data = task(jobs, {"l1": ["a", "b"], "l2": ["b", "c"], "l3": ["a", "c"]}, step_deg=10)
    found = solved(tmp_path, capsys, data)
    shifts = {j["name"]: round(j["shift_ms"] * 1e6) for j in found["jobs"]}
    periods = {j["name"]: round(j["period_ms"] * 1e6) for j in found["jobs"]}
    assert periods == {n: t * 10**6 for n, (t, _) in jobs.items()}
    assert shifts["a"] == 0
    (loop,) = found["loops"]
    for given, link in zip(data["links"], found["links"], strict=True):
        assert link["score"] == pytest.approx(exact_score(data, given, periods, shifts), abs=1e-9)
        assert loop["loss"][link["name"]] == pytest.approx(link["best_score"] - link["score"], abs=1e-9)
        a, b = given["jobs"]
        step = round(link["perimeter_ms"] * 1e6) // 36
        grid = max(
            exact_score(data, given, periods, {a: 0, b: turn})
            for (turn,) in product(range(0, periods[b], step))
        )
        assert link["best_score"] >= grid - 1e-9
        assert len(link["demand_gbps"]) == 36


def test_a_loop_names_its_links_and_jobs(tmp_path, capsys) -> None:
    up = [phase(0, 12)]
    data = task(dict.fromkeys("abc", (30, up)), {"l1": ["a", "b"], "l2": ["b", "c"], "l3": ["a", "c"]})
    found = solved(tmp_path, capsys, data)
    (loop,) = found["loops"]
    assert (sorted(loop["links"]), sorted(loop["jobs"])) == (["l1", "l2", "l3"], ["a", "b", "c"])
    assert [k["best_score"] for k in found["links"]] == [1.0] * 3
    # Three Up phases of 12 ms in 30: 6 ms too many, whatever the shifts.
    assert sum(loop["loss"].values()) == pytest.approx(6 / 30, abs=1e-6)
    code, out, _ = call(tmp_path, capsys, data)
    assert code == 0
    assert "loop: l1, l2, l3 with a, b, c" in out


@pytest.mark.parametrize(
    "jobs",
    [
        {"a": (255, [phase(10, 10)]), "b": (255, [phase(0, 200)])},
        {"a": (255, [phase(0, 100, 70)]), "b": (255, [phase(0, 100, 120)])},
        {"a": (3_600_007, [phase(0, 1_000_000)]), "b": (7_200_011, [phase(0, 1_000_000)])},
        {"a": (3_600_007, [phase(0, 1_000_000)]), "b": (251, [phase(0, 100)])},
        {f"j{i}": (240 + i % 3, [phase(0, 4)]) for i in range(50)},
        {"a": (10, []), "b": (10, [])},
        {"a": (10, [phase(0, 10)])},
    ],
    ids=["empty phase", "above the link", "co-prime hours", "hours and ms", "fifty", "silent", "alone"],
)
def test_awkward_jobs_get_a_plan(tmp_path, capsys, jobs) -> None:
    found = solved(tmp_path, capsys, task(jobs))
    assert [j["name"] for j in found["jobs"]] == list(jobs)
    assert found["jobs"][0]["shift_ms"] == 0
    for job, (period, _) in zip(found["jobs"], jobs.values(), strict=True):
        assert 0 <= job["shift_ms"] < job["period_ms"]
        assert period <= job["period_ms"] <= 1.13 * period
        assert job["period_error_pct"] == pytest.approx(100 * (job["period_ms"] / period - 1), abs=1e-4)
    assert found["links"][0]["score"] <= found["links"][0]["best_score"] + 1e-12


GOOD = task({"a": (40, [phase(0, 10)]), "b": (60, [phase(0, 10)])})


def changed(*path: str | int, to: object) -> dict:
    data = json.loads(json.dumps(GOOD))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("", ":1: not JSON: Expecting value (column 1)"),
        ("{]", ":1: not JSON: Expecting property name enclosed in double quotes (column 2)"),
        ("[]", ":1: an empty list is wrong; legal: a table with the keys links, jobs, step_deg"),
        ('{"links": [], "links": []}', "links: this key is there twice; first in line 1"),
        ("[" * 100_000, "nested deeper than 64 levels"),
        ("\ufeff{}", ":1: links: missing; legal: a list"),
        ({"links": []}, "jobs: missing; legal: a list"),
        (changed("link", to=1), "link: unknown key (is links meant?); legal: links, jobs, step_deg"),
        (changed("step_deg", to=7), "step_deg: an angle step"),
        (changed("step_deg", to="5"), "step_deg: '5' is wrong; legal: a number from 0.01 to 360"),
        (changed("links", 0, "gbps", to=0), "links[0].gbps: 0 is wrong; legal: a number from 1e-06 to 1000000"),
        (changed("links", 0, "gbps", to=True), "links[0].gbps: true is wrong; legal: a number"),
        (changed("links", 0, "gbps", to=float("nan")), "links[0].gbps: NaN is no number; legal: finite numbers"),
        (changed("links", 0, "jobs", 1, to="c"), "links[0].jobs[1]: no job 'c'; legal: a, b"),
        (changed("links", 0, "jobs", 1, to="a"), "links[0].jobs[1]: 'a' is there twice; legal: each name once"),
        (changed("jobs", 1, "name", to="a"), "jobs[1].name: 'a' is there twice; legal: each name once"),
        (changed("jobs", 1, "name", to="\ud800"), "jobs[1].name: '\\ud800' has half a character"),
        (changed("jobs", 0, "period_ms", to=0), "jobs[0].period_ms: 0 is wrong; legal: a number from 0.001 to 1000000000"),
        (changed("jobs", 0, "period_ms", to=10**400), "jobs[0].period_ms: a whole number of more than 77 digits"),
        (changed("jobs", 0, "phases", 0, "end_ms", to=41), "jobs[0].phases[0].end_ms: 41 is past the period; legal: 0 to 40"),
        (changed("jobs", 0, "phases", 0, "start_ms", to=11), "jobs[0].phases[0].end_ms: 10 is before start_ms; legal: 11 to 40"),
        (changed("jobs", 0, "phases", 0, "gbps", to=-1), "jobs[0].phases[0].gbps: -1 is wrong; legal: a number from 0 to 1000000"),
        (changed("jobs", 0, "phases", 0, to=[]), "jobs[0].phases[0]: an empty list is wrong; legal: a table with the keys start_ms, end_ms, gbps"),
        (changed("jobs", 0, "phases", to=[phase(0, 10), phase(5, 6)]), "jobs[0].phases[1].start_ms: 5 is inside phases[0]"),
        (task({"a": (0.001, [phase(0, 0.0005)]), "b": (10_000, [phase(0, 1)])}), "its circle would have"),
    ],
)  # fmt: skip
def test_bad_input_is_told_by_file_and_path(tmp_path, capsys, data, words) -> None:
    code, out, err = call(tmp_path, capsys, data, "--json")
    assert (code, out) == (2, "")
    assert err.startswith(str(tmp_path / "task.json"))
    assert words in err
    assert err.count("\n") == 1


def test_files_that_cannot_be_read_or_written(tmp_path, capsys) -> None:
    assert main(["interleave", str(tmp_path / "none.json")]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err
    (tmp_path / "latin.json").write_bytes(b"\xff\xfe{}")
    assert main(["interleave", str(tmp_path / "latin.json")]) == 2
    assert "not UTF-8" in capsys.readouterr().err
    code, _, err = call(tmp_path, capsys, GOOD, "--plot", str(tmp_path / "no" / "c.svg"))
    assert (code, "cannot be written" in err) == (2, True)
    code, _, err = call(tmp_path, capsys, GOOD, "--plot", str(tmp_path / "c.bmp"))
    assert (code, "name that ends in .svg" in err) == (2, True)


def test_circles_are_drawn(tmp_path, capsys) -> None:
    jobs = {"<a>": (40, [phase(0, 20)]), "b": (60, [phase(0, 20)]), "full": (60, [phase(0, 60, 1)])}
    picture = tmp_path / "circles.svg"
    code, _, _ = call(tmp_path, capsys, task(jobs), "--plot", str(picture))
    assert code == 0
    root = ET.parse(picture).getroot()
    titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    # Three laps of <a>, two of b, the ring of the third, and what is above the capacity.
    assert sum(t.startswith("<a>") for t in titles) >= 3
    assert sum(t.startswith("full") for t in titles) == 1
    assert "demand above capacity" in titles
