# SPDX-License-Identifier: Apache-2.0
"""The table of `polyrhythm run` on a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from polyrhythm.run.report import blocks, rivals, summary, table

FIGURES = {
    "mean_iteration_ms": 1.0,
    "p99_iteration_ms": 1.0,
    "ecn_marks_per_iteration": 0.0,
    "retransmits_per_iteration": 0.0,
}


GAINS = {
    "gpu_utilisation": {"ecmp": 0.5, "polyrhythm": 0.5},
    "speedup_geometric_mean": 1.0,
    "worst_job": {"name": "a:b:[red]c[/red]", "ratio": 1.0},
    "jain_index": {"ecmp": 1.0, "polyrhythm": 1.0},
}


def scenario_of(gains: dict[str, Any], offsets: dict[str, Any] | None = None) -> dict[str, Any]:
    scenario = {
        "speedup_mean": 1.0,
        "speedup_p99": 1.0,
        **gains,
        "windows": [],
        "notes": {"ecmp": [], "polyrhythm": []},
        "failovers": {"ecmp": [], "polyrhythm": []},
        "scale": {"nominal_bits_per_emulated_bit": 2000, "asked": 2000, "cpu_load": None},
        "deterministic": True,
        "jobs": [],
    }
    return scenario if offsets is None else {**scenario, "random_offsets": {"draws": 3, **offsets}}


def test_a_fall_of_utilisation_is_said_in_red_beside_the_other_start() -> None:
    rose = {**GAINS, "gpu_utilisation": {"ecmp": 0.4, "polyrhythm": 0.5}}
    fell = {
        "gpu_utilisation": {"ecmp": 0.34, "polyrhythm": 0.188},
        "speedup_geometric_mean": 1.13,
        "worst_job": {"name": "dlrm", "ratio": 105.2},
        "jain_index": {"ecmp": 0.99, "polyrhythm": 0.61},
    }
    for shown in (summary({"s": scenario_of(rose, fell)}), blocks({"s": scenario_of(rose, fell)})):
        out = io.StringIO()
        Console(file=out, width=200, force_terminal=True, color_system="standard").print(shown)
        text = out.getvalue()
        assert "40.0% > 50.0%" in text
        assert "\x1b[1;31m34.0% > 18.8%, it fell" in text
        assert text.count("fell") == 1
        for words in ("1.13x", "dlrm 105.20", "0.990 > 0.610", "3 random start offsets"):
            assert words in text


def test_equal_utilisation_is_no_fall() -> None:
    same = {**GAINS, "gpu_utilisation": {"ecmp": 0.50004, "polyrhythm": 0.49996}}
    out = io.StringIO()
    Console(file=out, width=200).print(summary({"s": scenario_of(same)}))
    assert "50.0% > 50.0%" in out.getvalue()
    assert "fell" not in out.getvalue()


def test_names_are_no_markup() -> None:
    job = {
        "name": "a:b:[red]c[/red]",
        "ideal_iteration_ms": 1.0,
        "ecmp": FIGURES,
        "polyrhythm": FIGURES,
        "speedup_mean": 1.0,
        "level": 0,
        "dscp": 30,
        "shift_ms": 0.0,
        "period_ms": None,
        "flows": [],
    }
    scenario = {
        "speedup_mean": 1.0,
        "speedup_p99": 1.0,
        **GAINS,
        "windows": [],
        "notes": {"ecmp": ["port [h1]"], "polyrhythm": []},
        "failovers": {"ecmp": [], "polyrhythm": []},
        "scale": {"nominal_bits_per_emulated_bit": 2000, "asked": 2000, "cpu_load": None},
        "deterministic": True,
        "jobs": [job],
    }
    shown = io.StringIO()
    Console(file=shown, width=200).print(table({"x:a:y": scenario}), summary({"x:a:y": scenario}))
    for text in ("a:b:[red]c[/red]", "x:a:y", "port [h1]"):
        assert text in shown.getvalue()


@pytest.mark.parametrize(("load", "said"), [(None, False), (0.9, False), (1.2, True)])
def test_a_machine_that_cannot_carry_all_jobs_together_is_told(load: float | None, said: bool) -> None:
    scenario = scenario_of(GAINS, GAINS)
    scenario["scale"]["cpu_load"] = load
    out = io.StringIO()
    Console(file=out, width=80).print(blocks({"s": scenario}))
    words = "all jobs together would take 120% of the machine's CPU time, so the figures say little"
    assert (words in " ".join(out.getvalue().split())) == said


def policy_row(name: str, use: float, worst: tuple[str, float] | None) -> dict[str, Any]:
    figures = {
        "gpu_utilisation": use,
        "speedup_geometric_mean": 1.0 if worst is None else 1.25,
        "worst_job": None if worst is None else {"name": worst[0], "ratio": worst[1]},
        "slowest_job": {"name": "bert", "ratio": 1.75},
        "jain_index": 0.875,
        "jobs": [],
    }
    return {
        "policy": name,
        "notes": [f"noted of {name}"],
        "failovers": [],
        **figures,
        "random_offsets": figures,
    }


def test_all_policies_stand_in_one_table_each_with_its_worst_job_by_name() -> None:
    scenario = scenario_of(GAINS, GAINS)
    scenario["policies"] = [
        policy_row("ecmp", 0.25, None),
        policy_row("polyrhythm", 0.5, ("gpt", 0.9)),
        policy_row("own.package:[red]", 0.375, ("a:b:[red]c[/red]", 1.5)),
    ]
    out = io.StringIO()
    Console(file=out, width=200).print(rivals({"s": scenario}), table({"s": scenario}))
    lines = out.getvalue().splitlines()
    own = next(line for line in lines if "own.package:[red]" in line)
    # From both starts.
    assert own.count("a:b:[red]c[/red] 1.50") == own.count("37.5%") == own.count("bert 1.75") == 2
    ecmp = next(line for line in lines if line.strip("│ ").startswith("ecmp"))
    assert "1.00x" in ecmp
    assert " - " in ecmp
    assert "noted of own.package:[red]" in out.getvalue()
    out = io.StringIO()
    Console(file=out, width=80).print(blocks({"s": scenario}))
    narrow = " ".join(out.getvalue().split())
    assert "polyrhythm, mean over 3 random start offsets: GPU utilisation 50.0%" in narrow
    assert "worst job a:b:[red]c[/red] 1.50, slowest job bert 1.75" in narrow
