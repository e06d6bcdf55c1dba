# SPDX-License-Identifier: Apache-2.0
"""The SQLite store: what is committed is there after any end, and old things go."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from control_rig import job

from controller.planner import PlanInput, plan
from controller.planner.registry import POLICIES, resolve
from controller.store.interface import (
    SCHEMA,
    Batch,
    Change,
    Event,
    Kind,
    StoredPlan,
    StoreError,
    StoreRefusedError,
)
from controller.store.records import decode, encode
from controller.store.sqlite import SqliteStore
from controller.store.stored_plans import PlanEncoder, plan_of
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=10**8, fabric_bps=10**8)


def made():
    return plan(PlanInput(TOPOLOGY, (job("a", "h1", "h3"),), POLICIES["polyrhythm"], 0))


def test_what_is_committed_is_loaded(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "state")) as store:
        assert store.load().last_version == 0
        store.commit(Batch([Change(Kind.JOB, "a", b"1"), Change(Kind.WORKERS, "a", b"2")]))
        store.commit(Batch([Change(Kind.JOB, "a", b"3"), Change(Kind.WORKERS, "a", None)]))
        store.commit(
            Batch([Change(Kind.JOB, "never", None)], [PlanEncoder().stored(5, made())], [Event(1, "x", "y")])
        )
    with closing(SqliteStore(tmp_path / "state")) as store:
        loaded = store.load()
        assert {kind: found for kind, found in loaded.records.items() if found} == {Kind.JOB: {"a": b"3"}}
        assert loaded.last_version == made().version
        kept = store.plan(loaded.last_version)
        assert kept is not None
        assert (kept.time_ns, kept.policy, plan_of(kept)) == (5, "polyrhythm", made())
        assert resolve(plan_of(kept).policy) == POLICIES["polyrhythm"]
        assert store.plan(99) is None


def test_a_state_that_others_could_read_is_closed_to_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "state"
    with closing(SqliteStore(state)) as store:
        store.commit(Batch([Change(Kind.JOB, "a", b"1")]))
        kept = {file: file.read_bytes() for file in tmp_path.glob("state*")}
    # As after a controller of an earlier version was killed.
    for file, content in kept.items():
        file.write_bytes(content)
        file.chmod(0o644)
    (tmp_path / "state.lock").unlink()
    assert not caplog.text
    with closing(SqliteStore(state)) as store:
        assert store.load().records[Kind.JOB] == {"a": b"1"}
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("state*")}
    assert modes == dict.fromkeys(("state", "state-wal", "state-shm", "state.lock"), 0o600)
    assert f"{state}: others could read it (mode 0644); now its owner alone may" in caplog.text


def test_a_batch_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "state")) as store:
        wrong = StoredPlan(None, 0, "", b"")  # type: ignore[arg-type]
        store._db.execute("CREATE TRIGGER no BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no'); END")
        with pytest.raises(StoreError, match="no"):
            store.commit(Batch([Change(Kind.JOB, "a", b"1")], [wrong], [Event(1, "x", "y")]))
        assert store.load().records[Kind.JOB] == {}
        assert store.plans(10) == ()
        store._db.execute("DROP TRIGGER no")
        store.commit(Batch([Change(Kind.JOB, "a", b"1")]))


@pytest.mark.parametrize("ending", ["", "-wal"])
def test_what_is_written_to_a_removed_file_is_not_acknowledged(tmp_path: Path, ending: str) -> None:
    """SQLite writes on to a file that has no name any more."""
    state, aside = tmp_path / f"state{ending}", tmp_path / "aside"
    batch = Batch([Change(Kind.JOB, "a", b"1")])
    with closing(SqliteStore(tmp_path / "state")) as store:
        assert (tmp_path / "state-wal").exists()
        store.commit(batch)
        state.rename(aside)
        with pytest.raises(StoreError, match="was removed or replaced; put it back, or start the controller"):
            store.commit(batch)
        if not ending:
            # Reading makes no new file.
            with pytest.raises(StoreError):
                store.plans(1)
            assert not state.exists()
        aside.rename(state)
        store.commit(batch)
        other = tmp_path / "other"
        other.write_bytes(b"another one")
        other.rename(state)
        with pytest.raises(StoreError, match="was removed or replaced"):
            store.commit(batch)


def test_nobody_else_may_read_the_state(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "state")) as store:
        store.commit(Batch([Change(Kind.JOB, "a", b"1")]))
        files = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
    assert files == dict.fromkeys(("state", "state.lock", "state-shm", "state-wal"), 0)


def test_events_are_read_page_by_page(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "state")) as store:
        store.commit(Batch(events=[Event(i, "e", str(i)) for i in range(1, 6)]))
        first = store.events(2)
        assert [e.event.subject for e in first] == ["5", "4"]
        assert [e.event.subject for e in store.events(9, first[-1].number)] == ["3", "2", "1"]


def test_a_second_controller_is_kept_out_until_the_first_ends(tmp_path: Path) -> None:
    path = tmp_path / "state"
    code = "import sys,time\nfrom pathlib import Path\nfrom controller.store.sqlite import SqliteStore\n"
    code += "s=SqliteStore(Path(sys.argv[1]))\nprint('open',flush=True)\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StoreRefusedError, match="another controller uses this file"):
            SqliteStore(path)
        other.kill()
    SqliteStore(path).close()


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but long enough to be taken for one\n" * 20)
    with pytest.raises(StoreRefusedError, match=r"notes\.txt: not usable as an SQLite file"):
        SqliteStore(file)
    with pytest.raises(StoreRefusedError, match="No such file"):
        SqliteStore(tmp_path / "nowhere" / "state")


def test_a_file_of_a_newer_version_is_refused_and_untouched(tmp_path: Path) -> None:
    file = tmp_path / "state"
    SqliteStore(file).close()
    with closing(sqlite3.connect(file)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(StoreRefusedError, match="use a newer Polyrhythm"):
        SqliteStore(file)
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA + 1,)


def test_the_history_of_a_file_without_schema_version_is_taken_over(tmp_path: Path) -> None:
    file, old = tmp_path / "state", made()
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE plans (run, version, time_ns, policy, body)")
        db.execute("CREATE TABLE jobs (run, time_ns, job, event)")
        for run in (1, 2):
            db.execute(
                "INSERT INTO plans VALUES (?, 1, 7, 'p', ?)",
                (run, encode(replace(old, epoch_ns=run)).decode()),
            )
            db.execute("INSERT INTO jobs VALUES (?, 7, 'a', 'arrived')", (run,))
        db.commit()
    with closing(SqliteStore(file)) as store:
        (kept,) = store.plans(10)
        assert plan_of(kept).epoch_ns == 2
        assert plan_of(kept).flows == old.flows
        assert [(e.event.what, e.event.subject) for e in store.events(10)] == [("job arrived", "a")] * 2
        assert store.load().last_version == 1
        assert not any(store.load().records.values()), "nothing of it is in force"


def test_a_record_that_is_not_readable_is_named() -> None:
    with pytest.raises(StoreRefusedError, match=r"job 'a' is not readable: .* restore a backup"):
        decode(b'{"hosts": 3}', int, "job 'a'")
    assert decode(encode({"a": (1, 2)}), dict[str, tuple[int, ...]], "") == {"a": (1, 2)}
