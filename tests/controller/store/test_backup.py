# SPDX-License-Identifier: Apache-2.0
"""Backups of a state file, by the command that a user runs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from controller.store.interface import SCHEMA, Batch, Change, Event, Kind, StoredPlan
from controller.store.sqlite import SqliteStore
from polyrhythm.cli import main


def filled(path: Path, name: str) -> SqliteStore:
    store = SqliteStore(path)
    plan = StoredPlan(7, 1, "p", b"{}")
    store.commit(Batch([Change(Kind.JOB, name, b"{}")], [plan], [Event(1, "job arrived", name)]))
    return store


def state(*arguments: object) -> int:
    return main(["state", *map(str, arguments)])


def test_a_backup_of_a_file_in_use_is_restored_whole(tmp_path: Path, capsys) -> None:
    with closing(filled(tmp_path / "state", "a")) as store:
        assert state("backup", tmp_path / "copy", "--state", tmp_path / "state") == 0
        store.commit(Batch([Change(Kind.JOB, "a", None), Change(Kind.JOB, "b", b"{}")]))
        # The controller runs.
        assert state("restore", tmp_path / "copy", "--state", tmp_path / "state") == 2
        assert "another controller uses this file" in capsys.readouterr().err
    assert (tmp_path / "copy").stat().st_mode & 0o077 == 0
    assert state("restore", tmp_path / "copy", "--state", tmp_path / "state") == 0
    assert "1 jobs, plans up to version 7" in capsys.readouterr().out
    with closing(SqliteStore(tmp_path / "state")) as store:
        assert store.load().records[Kind.JOB] == {"a": b"{}"}
        assert len(store.events(10)) == 1
    # Onto a machine that has no state yet.
    assert state("restore", tmp_path / "copy", "--state", tmp_path / "new") == 0
    with closing(SqliteStore(tmp_path / "new")) as store:
        assert store.load().last_version == 7
    assert sorted(p.name for p in tmp_path.glob("*unfinished*")) == []


def test_files_that_cannot_be_used_are_named_and_nothing_is_touched(tmp_path: Path, capsys) -> None:
    filled(tmp_path / "state", "a").close()
    notes = tmp_path / "notes"
    notes.write_text("not a database, but long enough to be taken for one\n" * 20)
    other = tmp_path / "other"
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE t (x)")
    newer = tmp_path / "newer"
    assert state("backup", newer, "--state", tmp_path / "state") == 0
    with closing(sqlite3.connect(newer)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    damaged = tmp_path / "damaged"
    data = bytearray(newer.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    damaged.write_bytes(data)
    capsys.readouterr()
    for file, words in (
        (notes, "it is no SQLite file"),
        (other, "it is no state file of a controller"),
        (damaged, "damaged"),
        (newer, "use a newer Polyrhythm"),
        (tmp_path / "nowhere", "there is no such file"),
    ):
        assert state("restore", file, "--state", tmp_path / "state") == 2, file
        said = capsys.readouterr().err
        assert words in said
        assert str(file) in said
    assert state("backup", notes, "--state", tmp_path / "state") == 2
    assert "the file exists" in capsys.readouterr().err
    assert state("backup", tmp_path / "x" / "y", "--state", tmp_path / "state") == 2
    assert state("backup", tmp_path / "z", "--state", tmp_path / "nowhere") == 2
    with closing(SqliteStore(tmp_path / "state")) as store:
        assert store.load().records[Kind.JOB] == {"a": b"{}"}


@pytest.mark.parametrize("arguments", [["state"], ["state", "backup", "x"], ["state", "rename", "x"]])
def test_wrong_words_end_with_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_a_refusal_names_the_file_that_is_wrong(tmp_path: Path, capsys) -> None:
    filled(tmp_path / "state", "a").close()
    assert state("backup", tmp_path / "copy", "--state", tmp_path / "state") == 0
    assert state("restore", tmp_path / "none", "--state", tmp_path / "state") == 2
    assert capsys.readouterr().err == f"polyrhythm state restore: {tmp_path}/none: there is no such file\n"
    (tmp_path / "text").write_text("no state")
    assert state("restore", tmp_path / "copy", "--state", tmp_path / "text") == 2
    assert capsys.readouterr().err.startswith(f"polyrhythm state restore: {tmp_path}/text: not usable as")
