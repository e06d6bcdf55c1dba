# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper real-training` where it cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyrhythm.cli import main
from polyrhythm.paper import real_training
from polyrhythm.paper.real_training.parts import PARTS, RATES_BPS
from topo.mininet import MininetError

COMMAND = ["paper", "real-training"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--repeats", "0"], "must be 1 or more"),
        (["--iterations", "1"], "must be 2 or more"),
        (["--parts", "all"], "invalid choice"),
        (["--link-mbps", "100"], "invalid choice"),
    ],
)
def test_bad_options_end_with_2_and_one_line(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*COMMAND, *options])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(real_training, "check_host", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([*COMMAND, "--parts", "collide"]) == 1
    assert "tcpdump" in capsys.readouterr().err
    for program in ("tcpdump", "mpirun"):
        (tmp_path / program).write_text("")
        (tmp_path / program).chmod(0o700)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(COMMAND) == 1
    assert "torch is not installed" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    monkeypatch.setattr(real_training, "BUILT_SOCKET_SHIM", tmp_path / "none")
    assert main(COMMAND) == 1
    assert "make shim" in capsys.readouterr().err


@pytest.mark.parametrize("rate_bps", RATES_BPS)
def test_times_are_those_of_the_largest_rate_at_every_rate(rate_bps: int) -> None:
    """A smaller rate carries smaller models: what changes is the work of this machine only."""
    for part in PARTS:
        for job, usual in zip(part.jobs(rate_bps), part.jobs(RATES_BPS[0]), strict=True):
            assert job.up_ms(rate_bps) == pytest.approx(usual.up_ms(RATES_BPS[0]), rel=0.01)
            assert job.compute_ms == usual.compute_ms
            assert usual.gradient_bytes <= 4_000_000


def test_logs_are_kept_also_of_a_run_that_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fails(part: object, iterations: int, repeats: int, folder: Path, **options: object) -> None:
        (folder / "rhythm0").mkdir()
        (folder / "rhythm0" / "controller0.log").write_text("why")
        raise MininetError("a rank failed")

    monkeypatch.setattr(real_training, "check_needs", lambda also: None)
    monkeypatch.setattr(real_training, "measure", fails)
    assert main([*COMMAND, "--parts", "rhythm", "--out", str(tmp_path)]) == 1
    assert "a rank failed" in capsys.readouterr().err
    assert (tmp_path / "logs" / "rhythm0" / "controller0.log").read_text() == "why"
