# SPDX-License-Identifier: Apache-2.0
"""A slow machine changes no result: the embedded fabric waits for its controller as long as that lives."""

import asyncio
import json
import logging
import os
import signal
from dataclasses import asdict
from pathlib import Path

import pytest
from run_rig import shortened

from polyrhythm.run.processes import RunError
from polyrhythm.run.session import FabricSession, SessionResult, SessionSpec


class Disturber(logging.Handler):
    """Sends a signal to the controller when the run has made some progress, and SIGCONT when the fabric says
    that it waits.
    """

    def __init__(self, session: FabricSession, sent: signal.Signals) -> None:
        super().__init__()
        self.session = session
        self.sent: signal.Signals | None = sent
        self.said: list[str] = []

    def progress(self, fraction: float) -> None:
        if self.sent is not None:
            self.kill(self.sent)
            self.sent = None

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        self.kill(signal.SIGCONT)

    def kill(self, sent: signal.Signals) -> None:
        controller = self.session._controller
        assert controller is not None
        os.kill(controller.pid, sent)


async def disturbed(spec: SessionSpec, sent: signal.Signals) -> tuple[SessionResult, list[str]]:
    session = FabricSession(spec)
    disturber = Disturber(session, sent)
    log = logging.getLogger("polyrhythm.run.session")
    log.addHandler(disturber)
    try:
        await session.start()
        return await session.result(disturber.progress), disturber.said
    finally:
        log.removeHandler(disturber)
        # A stopped process does not see that its input is closed.
        if session._controller is not None and sent is signal.SIGSTOP:
            disturber.kill(signal.SIGCONT)
        await session.stop()


def spec_of(folder: Path, **changes: float) -> SessionSpec:
    scenario = shortened("two_vgg19", folder, warmup=1, iterations=40)
    workdir = folder / "kept"
    return SessionSpec(scenario, "polyrhythm", "together", 1, workdir, **changes)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_controller_that_stands_still_for_seconds_changes_nothing(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    slow, said = asyncio.run(disturbed(spec, signal.SIGSTOP))
    assert said
    assert "waiting for the controller for 5 s" in said[0]
    prompt, nothing = asyncio.run(disturbed(spec, signal.SIGCONT))
    assert nothing == []
    assert json.dumps(asdict(slow)) == json.dumps(asdict(prompt))
    assert slow.deterministic


@pytest.mark.slow
def test_a_killed_controller_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the controller was killed by signal 9"):
        asyncio.run(disturbed(spec_of(tmp_path), signal.SIGKILL))


@pytest.mark.slow
def test_a_silent_controller_is_an_error(tmp_path: Path) -> None:
    # Its silence is shorter than the time after which the fabric says that it waits.
    with pytest.raises(RunError, match=r"the controller has been silent for 3 s \(at "):
        asyncio.run(disturbed(spec_of(tmp_path, silence_s=3), signal.SIGSTOP))
