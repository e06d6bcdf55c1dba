# SPDX-License-Identifier: Apache-2.0
"""The table of `polyrhythm run` on a terminal."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from polyrhythm.run.report import blocks, summary, table

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
        "deterministic": True,
        "jobs": [job],
    }
    shown = io.StringIO()
    Console(file=shown, width=200).print(table({"x:a:y": scenario}), summary({"x:a:y": scenario}))
    for text in ("a:b:[red]c[/red]", "x:a:y", "port [h1]"):
        assert text in shown.getvalue()
