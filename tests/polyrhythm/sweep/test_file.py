# SPDX-License-Identifier: Apache-2.0
"""The file of `polyrhythm sweep`: which simulations it means, and what is wrong with it."""

from pathlib import Path

import pytest

from polyrhythm.sweep.file import load_sweep
from polyrhythm_files import ConfigError


def sweep(folder: Path, text: str) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return path


def test_every_trace_runs_on_every_topology_and_a_scenario_on_its_own(tmp_path: Path) -> None:
    text = (
        "traces: [two_vgg19, batch:2]\ntopologies: [a.json, b.json]\npolicies: [ecmp, crux]\nseeds: [1, 7]\n"
    )
    points = load_sweep(sweep(tmp_path, text)).points
    assert len(points) == 1 * 2 * 2 + 2 * 2 * 2
    assert {p.topology for p in points if p.trace == "two_vgg19"} == {""}
    assert {p.topology for p in points if p.trace == "batch:2"} == {"a.json", "b.json"}
    assert len({p.columns for p in points}) == len(points)


def test_files_are_found_from_the_folder_of_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("")
    point = load_sweep(sweep(tmp_path, "traces: [jobs.csv]\ntopologies: [a.json]\n")).points[0]
    assert (point.trace, point.topology) == ("jobs.csv", "a.json")
    assert (point.trace_file, point.topology_file) == (str(tmp_path / "jobs.csv"), str(tmp_path / "a.json"))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("traces: []\n", 1, "traces"),
        ("traces: [batch:2]\n", 1, "only a scenario has its own fabric"),
        ("traces: [two_vgg19]\npolicies: [ecpm]\n", 2, "policies[0]"),
        ("traces: [two_vgg19]\nschedulers:\n  - fifo\n  - daly\n", 4, "legal: fifo"),
        ("traces: [two_vgg19]\nseeds: [1, 2, 1]\n", 2, "seeds[2]: 1 is there twice"),
        ("traces: [two_vgg19]\nseeds: [-1]\n", 2, "seeds[0]"),
        ("traces: [two_vgg19]\nlease_s: 0\n", 2, "lease_s"),
        ("traces: [two_vgg19]\nseed: 3\n", 2, "is seeds meant?"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = sweep(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        load_sweep(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert words in str(error.value)
