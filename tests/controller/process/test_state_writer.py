# SPDX-License-Identifier: Apache-2.0
"""The thread that commits the state: a locked or full disk costs the controller nothing."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from control_rig import PATIENCE_S, eventually, job, join_message

from controller.live.messages import SendRefusal
from controller.live.saved_state import StateChange
from controller.process import state_writer
from controller.process.state_writer import StateWriter
from controller.store.interface import Kind, LoadedState
from controller.store.sqlite import SqliteStore
from controller.wire import agent_pb2 as wire


def events(file: Path) -> list[tuple[str, str]]:
    """(what, subject) of all events, oldest first; a controller may use the file."""
    with closing(sqlite3.connect(file)) as db:
        return db.execute("SELECT what, subject FROM events ORDER BY number").fetchall()


def records(file: Path) -> dict[str, bytes]:
    with closing(sqlite3.connect(file)) as db:
        return dict(db.execute("SELECT key, value FROM records").fetchall())


def arrived(name: str) -> StateChange:
    return StateChange({(Kind.JOB, name): {"name": name}}, events=(("job arrived", name, ""),))


class Rig:
    """A writer on a file, and what it has acknowledged."""

    def __init__(self, path: Path) -> None:
        self.answers: list[str] = []
        self.store = SqliteStore(path)
        self.store._db.execute("PRAGMA busy_timeout = 10")
        self.writer = StateWriter(
            self.store,
            self.store.load(),
            committed=lambda sent: self.answers.extend(a.what for a in sent if isinstance(a, SendRefusal)),
            retry_s=0.01,
        )

    def save(self, change: StateChange, *answers: str) -> None:
        self.writer.save(change, [SendRefusal("h1", answer) for answer in answers])


def test_changes_come_in_order_and_the_newest_record_stays(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "state")
    rig.save(arrived("a"), "has a")
    rig.save(arrived("b"))
    rig.save(StateChange({(Kind.JOB, "a"): None}, events=(("job left", "a", ""),)), "a is gone")
    rig.writer.close()
    assert events(tmp_path / "state") == [("job arrived", "a"), ("job arrived", "b"), ("job left", "a")]
    assert records(tmp_path / "state") == {"b": b'{"name":"b"}'}
    assert rig.answers == ["has a", "a is gone"]


def test_a_locked_file_is_written_once_it_is_free_and_nothing_is_acknowledged_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_writer, "MOST_WAITING", 3)
    rig = Rig(tmp_path / "state")
    with caplog.at_level(logging.WARNING), closing(sqlite3.connect(tmp_path / "state")) as other:
        other.execute("BEGIN IMMEDIATE")
        for i in range(5):
            rig.save(arrived(f"job{i}"), f"job{i}")
        eventually(lambda: "the state is not stored: " in caplog.text)
        eventually(lambda: "database is locked" in rig.writer.failure)
        assert rig.answers == []
        other.rollback()
        eventually(lambda: "the state is stored again; 2 plans and events were dropped" in caplog.text)
    rig.writer.close()
    assert rig.writer.failure == ""
    # Events and acknowledgements that wait are bounded; no record is ever dropped.
    assert [name for _, name in events(tmp_path / "state")] == ["job2", "job3", "job4"]
    assert rig.answers == ["job2", "job3", "job4"]
    assert sorted(records(tmp_path / "state")) == [f"job{i}" for i in range(5)]


def test_jobs_that_come_and_go_while_the_file_is_locked_take_no_room(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "state")
    with closing(sqlite3.connect(tmp_path / "state")) as other:
        other.execute("BEGIN IMMEDIATE")
        for i in range(1_000):
            rig.save(StateChange({(Kind.JOB, f"job{i}"): 1}))
            rig.save(StateChange({(Kind.JOB, f"job{i}"): None}))
        with rig.writer._changed:
            # What an attempt has taken may be in the file, so only that is removed from it.
            assert len(rig.writer._waiting.records) < 100
        other.rollback()
    rig.writer.close()
    assert records(tmp_path / "state") == {}


def test_what_cannot_be_written_at_the_end_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(tmp_path / "state")
    with closing(sqlite3.connect(tmp_path / "state")) as other:
        other.execute("BEGIN IMMEDIATE")
        rig.save(arrived("a"))
        eventually(lambda: "the state is not stored" in caplog.text)
        rig.writer.close()
    assert "the stored state lacks the last 2 changes" in caplog.text


def test_a_full_disk_is_said_and_survived(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(tmp_path / "state")
    # SQLite reports a file that may not grow as it reports a full disk.
    (pages,) = rig.store._db.execute("PRAGMA page_count").fetchone()
    rig.store._db.execute(f"PRAGMA max_page_count = {pages + 1}")
    big = {"x": "y" * 100_000}
    rig.save(StateChange({(Kind.JOB, "big"): big}), "big")
    eventually(lambda: "database or disk is full" in caplog.text)
    assert rig.answers == []
    rig.store._db.execute("PRAGMA max_page_count = 100000")
    eventually(lambda: rig.answers == ["big"])
    rig.writer.close()
    assert len(records(tmp_path / "state")["big"]) > 100_000


def test_the_store_is_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pruned = []
    monkeypatch.setattr(SqliteStore, "prune", lambda *_: pruned.append(1))
    monkeypatch.setattr(state_writer, "PRUNE_EVERY", 2)
    rig = Rig(tmp_path / "state")
    for i in range(5):
        rig.save(arrived(f"job{i}"), f"job{i}")
        eventually(lambda i=i: len(rig.answers) == i + 1)
    rig.writer.close()
    assert len(pruned) == 3


@pytest.mark.slow
def test_a_controller_without_a_disk_goes_on(fabric, start_controller, connect, tmp_path):
    state = tmp_path / "state.sqlite"
    controller = start_controller(fabric.description(), f"--state={state}")
    with closing(sqlite3.connect(state, timeout=PATIENCE_S)) as other:
        other.execute("BEGIN IMMEDIATE")
        member = job("a", "h1", "h3")
        agents = [connect(controller.agents, host) for host in member.hosts]
        for rank, agent in enumerate(agents):
            agent.next("welcome")
            agent.send(join_message(member, rank))
        agents[0].send(wire.AgentMessage(flow_request=wire.FlowRequest(flow="a/h1>h3")))
        # By ECMP at first, if the question came before the job.
        while agents[0].next("flow").source_port < 0xC000:
            pass
        eventually(lambda: controller.says("database is locked; the controller goes on without it"))
        for rank, agent in enumerate(agents):
            agent.send(wire.AgentMessage(job_leave=wire.JobLeave(job="a", rank=rank)))
        eventually(lambda: controller.says("job a has left"))
        other.rollback()
    eventually(lambda: controller.says("the state is stored again; 0 plans and events were dropped"))
    # The commit that ends the trouble may have begun before the job left.
    eventually(lambda: ("job left", "a") in events(state))


def test_a_store_that_refuses_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Refuses(SqliteStore):
        def commit(self, batch):
            raise state_writer.StoreRefusedError("another controller owns it")

    store = Refuses(tmp_path / "state")
    writer = StateWriter(store, LoadedState(), committed=lambda _: None)
    writer.save(arrived("a"))
    writer._thread.join(10)
    assert "another controller owns it; it is not written any more" in caplog.text
    assert writer.failure == "another controller owns it"
