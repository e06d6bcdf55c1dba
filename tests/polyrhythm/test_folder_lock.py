# SPDX-License-Identifier: Apache-2.0
"""Two commands that write results never share a folder."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from polyrhythm import folder_lock
from polyrhythm.cli import main
from polyrhythm.folder_lock import FolderInUseError, alone_in

HOLDER = """
import sys
from pathlib import Path
from polyrhythm.folder_lock import alone_in
with alone_in(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_the_end_of_a_process_frees_its_folder(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(FolderInUseError, match="another process writes results there"), alone_in(tmp_path, 0):
        pass
    holder.kill()
    with alone_in(tmp_path):
        assert not list(tmp_path.iterdir())


def test_nothing_is_locked_without_a_folder() -> None:
    with alone_in(None), alone_in(None):
        pass


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize(
    "words",
    [
        ["paper", "all", "--only", "dally"],
        ["paper", "dally", "--jobs", "5"],
        ["paper", "battery", "--count", "1"],
        ["paper", "crux-trace", "--days", "0.1", "--volume", "1"],
        ["sweep", "sweep.json"],
        ["sim", "--trace", "two_vgg19"],
    ],
)
def test_a_folder_in_use_is_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "PATIENCE_S", 0.0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.json").write_text(json.dumps({"traces": ["two_vgg19"]}))
    assert main([*words, "--out", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.err == (
        f"--out: {tmp_path}: another process writes results there; legal: another folder, or this one when "
        "that process has ended\n"
    )
    assert not said.out
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.json"]
