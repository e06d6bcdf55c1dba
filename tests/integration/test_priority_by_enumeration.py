# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm priority` against brute force: random files, every valid choice of levels counted by hand."""

from __future__ import annotations

import json
import random
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from polyrhythm.cli import main


def draw(rng: random.Random) -> dict[str, Any]:
    """A file of up to six jobs on up to four links, with ties, silent jobs and jobs without compute."""
    links = {f"l{i}": {"gbps": rng.choice([25, 100, 400])} for i in range(rng.randint(1, 4))}
    jobs = []
    for i in range(rng.randint(1, 6)):
        on = rng.sample(sorted(links), rng.randint(0, len(links)))
        jobs.append(
            {
                "name": f"j{i}",
                "gpus": rng.choice([1, 8, 64]),
                "flops_per_iteration": rng.choice([0, 1e15, 1e15, 3e15, 7.7e16]),
                "compute_ms": rng.choice([0, 50, 50, 333]),
                "overlap_start": rng.choice([0, 0.5, 1]),
                "bytes": {link: rng.choice([0, 1e8, 1e9, 2.5e9]) for link in on},
            }
        )
    return {"links": links, "jobs": jobs}


def edges(given: dict[str, Any], report: dict[str, Any]) -> dict[tuple[str, str], float]:
    """The contention DAG from the file and the order alone."""
    sends = {j["name"]: {link for link, b in j["bytes"].items() if b > 0} for j in given["jobs"]}
    intensity = {}
    for j in given["jobs"]:
        slowest = max(
            (8 * b / (1e9 * given["links"][link]["gbps"]) for link, b in j["bytes"].items()), default=0
        )
        intensity[j["name"]] = j["flops_per_iteration"] / slowest if slowest else None
    order = [j["name"] for j in report["jobs"]]
    assert {j["name"]: j["intensity"] for j in report["jobs"]} == {
        n: None if v is None else pytest.approx(v) for n, v in intensity.items()
    }
    return {(a, b): intensity[a] or 0.0 for a, b in combinations(order, 2) if sends[a] & sends[b]}


def best_cut(names: list[str], dag: dict[tuple[str, str], float], levels: int) -> float:
    """The largest weight that any levels, valid along every edge, keep apart."""
    found = 0.0
    for chosen in product(range(levels), repeat=len(names)):
        at = dict(zip(names, chosen, strict=True))
        if all(at[a] <= at[b] for a, b in dag):
            found = max(found, sum(w for (a, b), w in dag.items() if at[a] < at[b]))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_levels_are_a_valid_cut_and_the_sums_are_exact(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(seed)
    given = draw(rng)
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(given))
    for levels in (1, 2, 3, len(given["jobs"]), 12):
        assert main(["priority", str(file), "--levels", str(levels), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        dag = edges(given, report)
        at = {j["name"]: j["level"] for j in report["jobs"]}
        assert all(0 <= level < levels for level in at.values())
        assert all(at[a] <= at[b] for a, b in dag)
        assert report["cut"] == pytest.approx(sum(w for (a, b), w in dag.items() if at[a] < at[b]))
        assert report["lost"] == pytest.approx(sum(w for (a, b), w in dag.items() if at[a] == at[b]))
        assert all(at[j["name"]] == levels - 1 for j in report["jobs"] if j["intensity"] is None)
        if levels >= len(at):
            assert report["lost"] == 0
        elif levels <= 3:
            best = best_cut(list(at), dag, levels)
            assert report["cut"] <= best * (1 + 1e-9)
            assert report["cut"] >= 0.9 * best
    assert main(["priority", str(file), "--json"]) == 0
    ranks = json.loads(capsys.readouterr().out)
    assert [j["level"] for j in ranks["jobs"]] == list(range(len(given["jobs"])))
    assert (ranks["lost"], {j["dscp"] for j in ranks["jobs"]}) == (0, {None})
