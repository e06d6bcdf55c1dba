# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm chaos` itself: forty faults, without a violation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyrhythm.cli import main


@pytest.mark.slow
@pytest.mark.alone
def test_forty_faults_violate_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["chaos", "--faults", "40", "--seed", "1", "--json"])
    out, err = capsys.readouterr()
    figures = json.loads(out)
    assert (figures["faults"], figures["what"], figures["lost_jobs"]) == (40, [], 0), err
    assert code == 0
    assert figures["answers"] > 0
    assert figures["probes_delivered"] > 0
    assert sum(figures["kinds"].values()) == 40


@pytest.mark.slow
@pytest.mark.alone
def test_failures_of_the_fabric_make_no_loop_and_no_long_black_hole(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Links down, switches dead, empty and silent (a silent leaf is cut off from the controller)."""
    kinds = ("link-down", "link-flap", "switch-dead", "switch-empty", "switch-silence")
    words = [word for kind in kinds for word in ("--kind", kind)]
    main(["chaos", "--faults", "10", "--seed", "5", "--json", "--logs", str(tmp_path), *words])
    out, err = capsys.readouterr()
    figures = json.loads(out)
    assert figures["what"] == [], err
    assert figures["longest_black_hole_s"] <= 3.0
    assert figures["probes_delivered"] > 200
    # The log says what happened, and how flows were moved.
    log = (tmp_path / "controller.log").read_text()
    for words_of in (
        "(the answer was ",
        "the session is lost (silent: no answer within 1 s)",
        "is lost: it has had no session for",
        "is in service: its pipeline and tables are written",
        "is down",
        "is up",
    ):
        assert words_of in log
