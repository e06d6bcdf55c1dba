# SPDX-License-Identifier: Apache-2.0
"""The Python examples of the guides: they pass `mypy --strict` and run, with nothing but the wheel installed."""

import re
from pathlib import Path

import pytest
from wheel_environment import ROOT, build_environment, run_python

import polyrhythm

PAGE = ROOT / "docs" / "python-api.md"
NOT_RUN = {"agent.md": "its example is a fragment of a training loop"}
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
USES_API = re.compile(r"^(from|import) polyrhythm\b(?!_)", re.M)


def examples() -> list[tuple[str, str]]:
    """(name, code) of each Python block that imports the API."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        (f"{page.stem.replace('-', '_').lower()}_{i}", code)
        for page in pages
        if page.name not in NOT_RUN
        for i, code in enumerate(BLOCK.findall(page.read_text()), 1)
        if USES_API.search(code)
    ]


def test_the_page_names_every_export() -> None:
    table = "\n".join(line for line in PAGE.read_text().splitlines() if line.startswith("|"))
    named = set(re.findall(r"`(\w+)`", table))
    assert set(polyrhythm.__all__) - named == set()


def test_the_page_imports_from_polyrhythm_only() -> None:
    ours = r"^(?:from|import) (controller|topo|sim|bmv2|hostagent|polyrhythm\.\w+)\b"
    assert re.findall(ours, PAGE.read_text(), re.M) == []


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_environment(tmp_path_factory.mktemp("api"))


@pytest.mark.slow
def test_the_examples_pass_mypy_strict(python: Path, tmp_path: Path) -> None:
    assert len(examples()) >= 5
    files = []
    for name, code in examples():
        files.append(tmp_path / f"{name}.py")
        files[-1].write_text(code)
    # One run for all: each file is a module of its own.
    done = run_python(python, "-m", "mypy", "--strict", *files, cwd=tmp_path, timeout_s=600)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), examples(), ids=[name for name, _ in examples()])
def test_the_examples_run(python: Path, tmp_path: Path, name: str, code: str) -> None:
    script = tmp_path / f"{name}.py"
    script.write_text(code)
    done = run_python(python, script, cwd=tmp_path, timeout_s=600)
    assert done.returncode == 0, done.stderr
