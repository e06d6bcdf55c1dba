# SPDX-License-Identifier: Apache-2.0
"""The test of `a/b/c.py` is `tests/a/b/test_c.py`; what spans rooms lies in `tests/integration/`."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
# These folders test no single source module.
ELSEWHERE = {"integration", "house", "docs"}
# Shared code and files of the tests.
NO_TESTS = {"rigs", "data"}
SOURCES = (".py", ".p4", ".c")


def modules_of_tests() -> list[Path]:
    found = sorted(p.relative_to(TESTS) for p in TESTS.rglob("test_*.py"))
    return [p for p in found if p.parts[0] not in ELSEWHERE]


@pytest.mark.parametrize("path", modules_of_tests(), ids=str)
def test_each_test_has_its_source(path: Path) -> None:
    name = path.stem.removeprefix("test_")
    module = path.with_name(name)
    # `a/b/test_b.py` tests the folder `a/b` as a whole.
    whole_folder = path.parent.name == name and (ROOT / path.parent).is_dir()
    assert whole_folder or any((ROOT / module).with_suffix(s).is_file() for s in SOURCES), (
        f"tests/{path} has no source: neither {module}.py nor a folder {path.parent / name} as its parent. "
        f"Rename it with `git mv` to tests/a/b/test_c.py if it tests a/b/c.py, to tests/a/b/test_b.py if it "
        f"tests the package a/b as a whole, or to tests/integration/test_<subject>.py if it spans rooms."
    )


def test_shared_test_code_lies_in_rigs() -> None:
    stray = [
        str(p.relative_to(ROOT))
        for p in TESTS.rglob("*.py")
        if not p.name.startswith("test_") and p.name != "conftest.py" and p.parent != TESTS / "rigs"
    ]
    assert stray == [], "move what several tests share to tests/rigs/; it is imported by its bare name"
    assert not [p for name in NO_TESTS for p in (TESTS / name).rglob("test_*.py")]
