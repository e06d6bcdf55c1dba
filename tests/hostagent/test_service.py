# SPDX-License-Identifier: Apache-2.0
"""The agent as a whole, in the test's own process, because its times are changed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from agent_rig import MS, PATIENCE_S, Hub, config_text, eventually

from hostagent.config import load_config
from hostagent.service import AgentService


def test_an_agent_that_has_just_started_lists_its_workers_later(
    tmp_path: Path, hub: tuple[Hub, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostagent.service.REJOIN_NS", 300 * MS)
    made, address = hub
    path = tmp_path / "agent.toml"
    path.write_text(
        config_text("h2", "127.0.0.1", controller=address, agent='socket = ""', nic='driver = "none"')
    )
    service = AgentService(load_config(path))
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        eventually(lambda: made.bodies("workers"), "the list of workers")
        assert made.bodies("hello")[0].HasField("workers") is False
        service.session.drop()
        eventually(lambda: len(made.bodies("hello")) > 1, "another session")
        assert made.bodies("hello")[-1].HasField("workers")
    finally:
        service.loop.stop()
        thread.join(PATIENCE_S)
