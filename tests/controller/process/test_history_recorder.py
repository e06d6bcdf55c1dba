# SPDX-License-Identifier: Apache-2.0
"""The thread that writes the history: a locked or full disk costs the controller nothing."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from control_rig import eventually, job, join_message

from controller.live.messages import JobArrived, JobLeft
from controller.process import history_recorder
from controller.process.history_recorder import HistoryRecorder
from controller.store import history as history_module
from controller.store.history import History
from controller.wire import agent_pb2 as wire


def events(file: Path) -> list[tuple[str, str]]:
    with closing(History(file)) as read:
        return [(r.job, r.event) for r in read.jobs()]


def test_records_come_in_order(tmp_path: Path) -> None:
    recorder = HistoryRecorder(History(tmp_path / "state"))
    recorder.record(JobArrived(1, job("a", "h1", "h3")))
    recorder.record(JobLeft(2, job("a", "h1", "h3")))
    recorder.close()
    assert events(tmp_path / "state") == [("a", "arrived"), ("a", "left")]


def test_a_locked_file_is_written_once_it_is_free(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_recorder, "MOST_WAITING", 3)
    history = History(tmp_path / "state")
    history._db.execute("PRAGMA busy_timeout = 10")
    recorder = HistoryRecorder(history, retry_s=0.01)
    with caplog.at_level(logging.WARNING), closing(sqlite3.connect(tmp_path / "state")) as other:
        other.execute("BEGIN EXCLUSIVE")
        for i in range(5):
            recorder.record(JobArrived(i, job(f"job{i}", "h1", "h3")))
        eventually(lambda: "the history is not written: database is locked" in caplog.text)
        other.rollback()
        eventually(lambda: "the history is written again" in caplog.text)
    recorder.close()
    kept = [name for name, _ in events(tmp_path / "state")]
    # What waits is bounded: the oldest records may be gone, and the log has their number.
    assert kept == [f"job{i}" for i in range(5 - len(kept), 5)]
    assert len(kept) >= 3
    assert f"{5 - len(kept)} records were dropped" in caplog.text


def test_what_cannot_be_written_at_the_end_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    history = History(tmp_path / "state")
    history._db.execute("PRAGMA busy_timeout = 10")
    recorder = HistoryRecorder(history)
    with closing(sqlite3.connect(tmp_path / "state")) as other:
        other.execute("BEGIN EXCLUSIVE")
        recorder.record(JobArrived(0, job("a", "h1", "h3")))
        eventually(lambda: "the history is not written" in caplog.text)
        recorder.close()
    assert "the history lacks the last 1 records" in caplog.text


def test_old_records_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MOST_JOB_EVENTS", 4)
    monkeypatch.setattr(history_recorder, "PRUNE_EVERY", 2)
    recorder = HistoryRecorder(History(tmp_path / "state"))
    for i in range(10):
        recorder.record(JobArrived(i, job(f"job{i}", "h1", "h3")))
    recorder.close()
    assert [name for name, _ in events(tmp_path / "state")] == ["job6", "job7", "job8", "job9"]


def test_a_controller_without_a_disk_goes_on(fabric, start_controller, connect, tmp_path):
    state = tmp_path / "state.sqlite"
    controller = start_controller(fabric.description(), f"--state={state}")
    with closing(sqlite3.connect(state)) as other:
        other.execute("BEGIN EXCLUSIVE")
        member = job("a", "h1", "h3")
        agents = [connect(controller.agents, host) for host in member.hosts]
        for rank, agent in enumerate(agents):
            agent.next("welcome")
            agent.send(join_message(member, rank))
        agents[0].send(wire.AgentMessage(flow_request=wire.FlowRequest(flow="a/h1>h3")))
        assert agents[0].next("flow").source_port >= 0xC000
        eventually(lambda: controller.says("the history is not written: database is locked"))
        for rank, agent in enumerate(agents):
            agent.send(wire.AgentMessage(job_leave=wire.JobLeave(job="a", rank=rank)))
        eventually(lambda: controller.says("job a has left"))
        other.rollback()
    eventually(lambda: controller.says("the history is written again; 0 records were dropped"))
    assert events(state)[-1:] == [("a", "left")]
