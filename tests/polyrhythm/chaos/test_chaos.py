# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm chaos` itself: forty faults, without a violation."""

from __future__ import annotations

import json

import pytest

from polyrhythm.cli import main


@pytest.mark.slow
def test_forty_faults_violate_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["chaos", "--faults", "40", "--seed", "1", "--json"])
    out, err = capsys.readouterr()
    figures = json.loads(out)
    assert (figures["faults"], figures["what"], figures["lost_jobs"]) == (40, [], 0), err
    assert code == 0
    assert figures["answers"] > 0
    assert figures["probes_delivered"] > 0
    assert sum(figures["kinds"].values()) == 40
