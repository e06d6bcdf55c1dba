# SPDX-License-Identifier: Apache-2.0
"""Every command block of README, CONTRIBUTING, SECURITY and docs/ runs, or says why it does not.

CONTRIBUTING.md describes the marks. All `sh` blocks of one guide run in order, in one temporary folder that
links to everything at the repository's root.
"""

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300
"""Per block. Chosen: several times what the slowest one takes on a busy machine."""

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>.*)$")
MARK = re.compile(r"^\s*<!-- *(?P<key>not run|slow|exit|file)(?:: *(?P<value>.+?))? *-->$")
COMMANDS = ("apt-get", "cd", "curl", "git", "make", "pip", "polyrhythm", "python", "python3", "sudo", "$")
"""First words by which an unmarked indented block is taken for commands."""


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, its language, its text and the mark on the line before it."""

    guide: str
    line: int
    language: str
    text: str
    mark: str = ""
    value: str = ""

    @property
    def where(self) -> str:
        return f"{self.guide}:{self.line}"


def guides() -> list[str]:
    top = [p for p in ROOT.glob("*.md") if p.name != "CHANGELOG.md"]
    return sorted(str(p.relative_to(ROOT)) for p in (*top, *(ROOT / "docs").rglob("*.md")))


def blocks_of(guide: str) -> tuple[list[Block], list[str]]:
    """The fenced blocks of a guide in order, and what is wrong with its marking."""
    lines = (ROOT / guide).read_text().splitlines()
    found: list[Block] = []
    wrong: list[str] = []
    n = 0
    while n < len(lines):
        opening = FENCE.match(lines[n])
        if opening is None:
            before = lines[n - 1].strip() if n else ""
            words = lines[n].split()
            if (
                lines[n].startswith("    ")
                and not before
                and words
                and words[0].rpartition("/")[2] in COMMANDS
            ):
                wrong.append(f"{guide}:{n + 1}: an indented command: write it in a ```sh block")
            n += 1
            continue
        close = next(
            (k for k in range(n + 1, len(lines)) if lines[k].strip() == opening["ticks"]), len(lines)
        )
        text = textwrap.dedent("\n".join(lines[n + 1 : close])) + "\n"
        language = opening["info"].split()[0] if opening["info"].strip() else ""
        mark = MARK.match(lines[n - 1]) if n else None
        block = Block(guide, n + 1, language, text)
        if mark:
            block = Block(guide, n + 1, language, text, mark["key"], mark["value"] or "")
        if not language:
            wrong.append(f"{block.where}: a fence without a language: ```sh, ```text, ```python ...")
        if language in {"bash", "shell", "console"}:
            wrong.append(f"{block.where}: write ```sh, without prompts")
        if block.mark == "not run" and not block.value:
            wrong.append(f"{block.where}: `not run` needs a reason")
        if block.mark == "exit" and not block.value.isdigit():
            wrong.append(f"{block.where}: `exit` needs a number")
        found.append(block)
        n = close + 1
    return found, wrong


def run_guide(guide: str, folder: Path, *, slow: bool) -> None:
    """Run the blocks of a guide in order; with `slow`, also those that are marked so."""
    for entry in ROOT.iterdir():
        if entry.name not in {".git", "out", "site"}:
            (folder / entry.name).symlink_to(entry)
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for block in blocks_of(guide)[0]:
        if block.mark == "file":
            path = folder / block.value
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        if block.language != "sh" or block.mark == "not run" or (block.mark == "slow" and not slow):
            continue
        done = subprocess.run(
            ["sh", "-eu", "-c", block.text],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        expected = int(block.value) if block.mark == "exit" else 0
        assert done.returncode == expected, (
            f"{block.where} ended with {done.returncode}:\n{block.text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )


def guides_that_run(*, slow: bool) -> list[str]:
    """The guides with a block to run; with `slow`, those with a slow one."""

    def runs(block: Block) -> bool:
        return block.language == "sh" and (
            block.mark == "slow" if slow else block.mark in {"", "exit", "file"}
        )

    return [g for g in guides() if any(runs(b) for b in blocks_of(g)[0])]


@pytest.mark.parametrize("guide", guides())
def test_every_block_says_what_it_is(guide: str) -> None:
    assert blocks_of(guide)[1] == []


@pytest.mark.parametrize("guide", guides_that_run(slow=False))
def test_commands_run(guide: str, tmp_path: Path) -> None:
    run_guide(guide, tmp_path, slow=False)


@pytest.mark.long
@pytest.mark.parametrize("guide", guides_that_run(slow=True))
def test_slow_commands_run(guide: str, tmp_path: Path) -> None:
    run_guide(guide, tmp_path, slow=True)
