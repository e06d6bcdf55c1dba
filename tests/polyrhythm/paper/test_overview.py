# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper all`: experiments as processes, and one HTML report."""

import errno
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from polyrhythm.cli import main
from polyrhythm.paper import overview
from polyrhythm.paper.overview_html import to_html
from polyrhythm.paper.overview_rows import Figure
from polyrhythm.paper.verdicts import VERDICTS

LOADED = re.compile(r"<(?:script|link|img|iframe)\b|@import|url\(")
"""What would make a browser read another file."""


def test_the_document_needs_no_other_file_and_escapes_what_it_shows() -> None:
    rows = [
        Figure("CRUX", "a <b> & c", 1.0, 2.0, "surpassed", "why"),
        Figure("CRUX", "d", 3.0, 2.5, "order only"),
        Figure("Dally", "e", None, None, "not run", "no such experiment", "said", "-"),
    ]
    text = to_html(
        rows,
        {"seed": "1"},
        [{"name": "dally", "size": "2 jobs", "command": "polyrhythm paper dally", "outcome": "3 s"}],
        {"dally": ["<svg></svg>"]},
    )
    assert "a &lt;b&gt; &amp; c" in text
    assert "<b>" not in text
    assert text.count("<svg") == 2
    assert not LOADED.search(text)
    assert "2 jobs" in text
    assert all(verdict in text for verdict in VERDICTS)


def test_an_experiment_that_fails_is_listed_as_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "command", lambda name, args: ["paper", name, "--workers", "0"])
    assert main(["paper", "all", "--only", "dally", "--out", str(tmp_path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    (row,) = report["rows"]
    assert row["verdict"] == "not run"
    assert "failed with 2: --workers: 0" in row["why"]
    assert "--workers: 0" in (tmp_path / "report.html").read_text()


def test_bad_options_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "all", "--seed", "-1", "--out", str(tmp_path)]) == 2
    assert "--seed" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["paper", "all", "--only", "dally", "--out", str(tmp_path / "file")]) == 2
    assert "--out" in capsys.readouterr().err


def test_a_full_disk_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The experiment fails too, and its log is empty.
    def failing(words: Sequence[str], printed: Path, log: Path) -> int:
        printed.touch()
        log.touch()
        return 1

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(overview, "run_command_apart", failing)
    monkeypatch.setattr(overview, "replace_file", full)
    assert main(["paper", "all", "--only", "dally", "crux-testbed", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.err.endswith("No space left on device; make space, and give the same command again\n")
    assert said.err.count("\n") == 1
    assert str(tmp_path) in said.err
    assert not said.out


def test_ctrl_c_says_how_to_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(overview, "run_command_apart", interrupted)
    assert main(["paper", "all", "--only", "dally", "--out", str(tmp_path)]) == 130
    assert "stopped in experiment 1 of 1" in capsys.readouterr().err


@pytest.mark.slow
def test_a_stopped_report_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["paper", "all", "--quick", "--out", str(tmp_path), "--json", "--workers", "2", "--only"]
    assert main([*words, "dally"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert len(first["rows"]) == 24
    assert main([*words, "crux-microbench", "dally"]) == 0
    both = json.loads(capsys.readouterr().out)
    outcomes = {e["name"]: e["outcome"] for e in both["experiments"]}
    assert outcomes["dally"].endswith("in an earlier run")
    assert not outcomes["crux-microbench"].endswith("in an earlier run")
    assert [row for row in both["rows"] if row["source"].startswith("Dally")] == first["rows"]
    assert sum(both["verdicts"].values()) == len(both["rows"]) == 27
    text = (tmp_path / "report.html").read_text()
    assert "Table III" in text
    assert text.count("<svg") > 3
    assert not LOADED.search(text)
