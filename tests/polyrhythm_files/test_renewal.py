# SPDX-License-Identifier: Apache-2.0
"""Values made of files that are replaced while they are in use."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from polyrhythm_files.renewal import FromFiles


def pair(folder: Path, first: str, second: str) -> FromFiles[tuple[str, str]]:
    """Two files that belong together if their first letters are the same, as a certificate and its key."""
    a, b = folder / "a", folder / "b"
    a.write_text(first)
    b.write_text(second)

    def read() -> tuple[str, str]:
        found = a.read_text(), b.read_text()
        if found[0][:1] != found[1][:1]:
            raise ValueError("they do not belong together")
        return found

    return FromFiles((a, b), read)


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    value = pair(tmp_path, "x1", "x2")
    assert value.get() == ("x1", "x2")
    (tmp_path / "new").write_text("x3")
    (tmp_path / "new").replace(tmp_path / "b")
    assert value.get() == ("x1", "x3")


def test_files_that_do_not_belong_together_leave_the_former_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    value = pair(tmp_path, "x", "x")
    (tmp_path / "a").write_text("y...")
    with caplog.at_level(logging.INFO):
        assert [value.get(), value.get()] == [("x", "x")] * 2
        assert len(caplog.records) == 1
        assert "they do not belong together; what was read before stays in use" in caplog.text
        (tmp_path / "b").write_text("y...")
        assert value.get() == ("y...", "y...")
    assert "read again" in caplog.records[-1].getMessage()


def test_a_file_that_is_gone_and_comes_back(tmp_path: Path) -> None:
    value = pair(tmp_path, "x", "x")
    (tmp_path / "a").unlink()
    assert value.get() == ("x", "x")
    (tmp_path / "a").write_text("xx")
    assert value.get() == ("xx", "x")


def test_each_new_value_is_told_once(tmp_path: Path) -> None:
    value = pair(tmp_path, "x", "x")
    assert value.newer() is None
    (tmp_path / "a").write_text("xyz")
    assert value.get() == ("xyz", "x")
    assert value.newer() == ("xyz", "x")
    assert value.newer() is None


def test_files_that_cannot_be_used_at_the_start_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="belong together"):
        pair(tmp_path, "x", "y")
