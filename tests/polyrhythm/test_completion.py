# SPDX-License-Identifier: Apache-2.0
"""Completion, as the shells ask for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from polyrhythm.cli import COMMANDS, main

# What bash itself sets when Tab is pressed behind the words of $1.
PRESS_TAB = """
. "$HOME/.bashrc"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
read -ra COMP_WORDS <<<"$1"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
case $1 in *' ') COMP_CWORD=${#COMP_WORDS[@]}; COMP_WORDS+=('') ;; esac
_python_argcomplete polyrhythm
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    (home / ".bashrc").write_text("alias ll='ls -l'")
    return home


def environment(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ZDOTDIR"))}
    folder = Path(sys.executable).parent
    return kept | {"HOME": str(home), "PATH": f"{folder}:{os.environ['PATH']}", "SHELL": "/usr/bin/bash"}


def install(home: Path, *shell: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "polyrhythm", "--install-completion", *shell],
        capture_output=True, text=True, check=False, env=environment(home),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "some", "none"),
    [
        ("polyrhythm ro", {"route", "rollback"}, {"run"}),
        ("polyrhythm jobs ", {"submit", "list", "show", "end"}, {"route"}),
        ("polyrhythm jobs list --j", {"--json "}, {"--token"}),
        ("polyrhythm bench plan --se", {"--seed "}, {"--json "}),
        ("polyrhythm route --order ", {"given", "largest"}, {"intensity"}),
        ("polyrhythm plan tw", {"two_vgg19 "}, {"crux"}),
        ("polyrhythm run two_vgg19 co", {"collide", "contend"}, {"two_vgg19"}),
        ("polyrhythm sim --trace sn", {"snapshot1", "snapshot2"}, {"two_vgg19"}),
        ("polyrhythm plan two_vgg19 --policy cru", {"crux", "crux-fair"}, {"ecmp"}),
        ("polyrhythm plan two_vgg19 --policy=cas", {"cassini "}, {"ecmp"}),
        ("polyrhythm sim --policy crux,dl", {"crux,dlb "}, {"dlb"}),
        ("polyrhythm run --compare spray,tac", {"spray,taccl "}, {"taccl"}),
        ("polyrhythm route --algorithm gre", {"greedy "}, {"ecmp"}),
        ("polyrhythm apply c", {"cluster", "collide", "cassini", "crux"}, {"ecmp"}),
        ("polyrhythm controller --policy spr", {"spray "}, {"crux"}),
    ],
)
def test_tab_offers_what_the_command_takes(home: Path, line: str, some: set[str], none: set[str]) -> None:
    install(home)
    done = subprocess.run(
        ["bash", "-c", PRESS_TAB, "bash", line],
        capture_output=True,
        text=True,
        check=True,
        env=environment(home),
    )
    offered = set(done.stdout.splitlines())
    assert offered >= some, done.stderr
    assert not offered & none
    start = (home / ".bashrc").read_text()
    assert start.startswith("alias ll='ls -l'\n")
    assert start.count("polyrhythm/completion.bash") == 2, "one line, also when installed again"


def test_fish_and_zsh_get_theirs(tmp_path: Path) -> None:
    assert "config.fish" not in install(tmp_path, "fish")
    assert "complete" in (tmp_path / ".config/fish/completions/polyrhythm.fish").read_text()
    assert str(tmp_path / ".zshrc") in install(tmp_path, "zsh")
    assert (
        (tmp_path / ".local/share/polyrhythm/completion.zsh").read_text().startswith("#compdef polyrhythm\n")
    )


@pytest.mark.parametrize(("shell", "what"), [("/bin/tcsh", "$SHELL is 'tcsh'"), ("", "$SHELL is not set")])
def test_another_shell_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shell: str, what: str
) -> None:
    monkeypatch.setenv("SHELL", shell)
    with pytest.raises(SystemExit) as ended:
        main(["--show-completion"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert what in said
    assert said.count("\n") == 1


def test_a_home_that_cannot_be_written_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".local").write_text("a file, no folder")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["--install-completion", "bash"])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert str(tmp_path) in said
    assert said.count("\n") == 1


def test_serve_is_the_controller() -> None:
    assert COMMANDS["serve"][0] == COMMANDS["controller"][0]
