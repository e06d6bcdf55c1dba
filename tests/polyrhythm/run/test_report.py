# SPDX-License-Identifier: Apache-2.0
"""The table of `polyrhythm run` on a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from polyrhythm.run.report import table

FIGURES = {
    "mean_iteration_ms": 1.0,
    "p99_iteration_ms": 1.0,
    "ecn_marks_per_iteration": 0.0,
    "retransmits_per_iteration": 0.0,
}


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
        "gpu_utilisation": {"ecmp": 0.5, "polyrhythm": 0.5},
        "notes": {"ecmp": ["port [h1]"], "polyrhythm": []},
        "failovers": {"ecmp": [], "polyrhythm": []},
        "deterministic": True,
        "jobs": [job],
    }
    shown = io.StringIO()
    Console(file=shown, width=200).print(table({"x:a:y": scenario}))
    for text in ("a:b:[red]c[/red]", "x:a:y", "port [h1]"):
        assert text in shown.getvalue()
