# SPDX-License-Identifier: Apache-2.0
"""The Ryu frame: events reach applications, and no application can stop the controller."""

import logging
import re
import threading
from pathlib import Path

import pytest
from control_rig import eventually, job

from controller.app import BACKLOG, RyuApplications, RyuError
from controller.live.notices import (
    JobArrived,
    PacketArrived,
    PlanApplied,
    SwitchUp,
)
from controller.model.plan import Plan
from controller.planner import POLICIES

ROOT = Path(__file__).parents[2]

NOISY = """
from os_ken.base.app_manager import OSKenApp
from os_ken.controller.handler import set_ev_cls
from controller import events

SEEN = []

class Noisy(OSKenApp):
    @set_ev_cls(events.EventJobArrived)
    def arrived(self, event):
        SEEN.append(event.job.name)
        raise {error}("a handler gone wrong")
"""

SLOW = """
import threading
from os_ken.base.app_manager import OSKenApp
from os_ken.controller.handler import set_ev_cls
from controller import events

GATE = threading.Event()
SEEN = []

class Slow(OSKenApp):
    @set_ev_cls(events.EventJobArrived)
    def arrived(self, event):
        GATE.wait(300)
        SEEN.append(event.job.name)
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Start a frame with an application of this source; gives the frame and the application's module."""
    frames = []

    def start(name, source, send=lambda *frame: None):
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        frame = RyuApplications([name])
        frames.append(frame)
        frame.start(send)
        return frame, __import__(name)

    yield start
    for frame in frames:
        frame.stop()


def arrival(name):
    return JobArrived(0, job(name, "h1", "h3"))


@pytest.mark.parametrize("error", ["ValueError", "Exception", "KeyboardInterrupt"])
def test_an_exception_in_a_handler_never_stops_the_application(load, error):
    frame, module = load(f"noisy_{error.lower()}", NOISY.format(error=error))
    names = [f"job{i}" for i in range(300)]
    for name in names:
        frame.publish(arrival(name))
    eventually(lambda: names == module.SEEN, "all events handled, in order")


def test_a_slow_application_never_blocks_the_controller(load, caplog):
    frame, module = load("slow_app", SLOW)
    with caplog.at_level(logging.ERROR):
        for i in range(BACKLOG + 1000):
            frame.publish(arrival(f"job{i}"))
    assert "too slow" in caplog.text
    module.GATE.set()
    eventually(lambda: len(module.SEEN) > BACKLOG - 1)
    assert module.SEEN[:3] == ["job0", "job1", "job2"]


def test_an_application_that_cannot_be_loaded_is_named(tmp_path, monkeypatch):
    with pytest.raises(RyuError, match="no_such_application"):
        RyuApplications(["no_such_application"])
    (tmp_path / "empty_app.py").write_text("X = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RyuError, match="empty_app"):
        RyuApplications(["empty_app"])


def test_the_example_of_the_docs_works(load, caplog):
    text = (ROOT / "docs/ryu.md").read_text()
    source = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    assert len(source.splitlines()) <= 30
    sent = []
    done = threading.Event()

    def send(*frame):
        sent.append(frame)
        done.set()

    with caplog.at_level(logging.INFO):
        frame, _ = load("watcher", source, send)
        frame.publish(SwitchUp(1, "leaf1", 7))
        frame.publish(PacketArrived(2, "leaf1", 3, 3, b"knock"))
        plan = Plan(1, POLICIES["ecmp"], 0, {}, {}, ())
        frame.publish(PlanApplied(3, plan, (), ()))
        assert done.wait(300)
    assert sent == [("leaf1", b"knock", 3, False)]
    assert "leaf1 is up, device 7" in caplog.text


def test_a_handle_refuses_a_packet_to_nowhere(load):
    from controller.events import SwitchHandle

    handle = SwitchHandle("leaf1", 1, lambda *frame: None)
    with pytest.raises(ValueError, match="a packet-out needs a port"):
        handle.send_packet_out(b"x")
