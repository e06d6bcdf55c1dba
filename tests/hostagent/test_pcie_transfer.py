# SPDX-License-Identifier: Apache-2.0
"""PCIe links that real processes share: agents that train over UDP, and training code with the library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from agent_rig import (
    MS,
    ROOT,
    WELCOME,
    AgentProcess,
    Hub,
    assignment,
    command,
    config_text,
    environment,
    eventually,
    status,
)

from controller.wire import agent_pb2 as pb
from polyrhythm import polyrhythm_job

Start = Callable[..., AgentProcess]
LEVELS = (30, 26, 22, 18, 14, 10)
LINK = "0000:17:00.0"


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the links of this test alone."""
    monkeypatch.setenv("POLYRHYTHM_SHARED", str(tmp_path))
    return tmp_path


def by_level(level_of: dict[str, int]) -> Callable[[pb.AgentMessage], list[pb.ControllerMessage]]:
    """A controller that has put each job on a level, and tells agents so."""

    def answer(message: pb.AgentMessage) -> list[pb.ControllerMessage]:
        kind = message.WhichOneof("body")
        if kind == "hello":
            welcome = pb.Welcome()
            welcome.CopyFrom(WELCOME)
            welcome.level_dscp.extend(LEVELS)
            return [pb.ControllerMessage(sequence=1, welcome=welcome)]
        if kind == "flow_request":
            flow = message.flow_request.flow
            return [assignment(flow, 0xC777, LEVELS[level_of[flow.partition("/")[0]]])]
        return []

    return answer


def worker(job: str, host: str, folder: Path, controller: str, addresses: dict[str, str]) -> tuple[str, Path]:
    """agent.toml of a host whose job sends 30 ms of the link to h3, then computes for 15 ms; its records."""
    records = folder / f"{host}.jsonl"
    pcie = f'pcie = {{link = "{LINK}", rate_mbps = 8}}\n' if host != "h3" else ""
    return config_text(
        host, addresses[host], controller=controller, addresses=addresses, agent='socket = ""',
        more=f'[training]\nrecords = "{records}"\n' + "".join(
            f'[[training.jobs]]\nname = "{name}"\nhosts = ["{src}", "h3"]\nring = [["{src}", "h3"]]\n{pcie}'
            f"phases = [{{up_ns = {30 * MS}, bytes_per_flow = 30000, down_ns = {15 * MS}}}]\n"
            for name, src in (("a", "h2"), ("b", "h4")) if host in (src, "h3")
        ),
    ), records  # fmt: skip


def test_two_agents_take_turns_on_a_link_by_the_levels_of_the_plan(
    start_agent: Start, tmp_path: Path, addresses: dict[str, str], hub: tuple[Hub, str]
) -> None:
    made, address = hub
    level_of = {"a": 4, "b": 1}
    plain = by_level(level_of)
    swapped: list[bool] = []

    def answer(message: pb.AgentMessage) -> list[pb.ControllerMessage]:
        iteration = message.iteration
        if message.WhichOneof("body") != "iteration":
            return plain(message)
        # The plan changes when "b" has done 12 iterations; each agent hears of its own job's flow.
        if iteration.job == "b" and iteration.index == 12:
            swapped.append(True)
        if swapped and iteration.job in level_of and iteration.rank == 0:
            host = {"a": "h2", "b": "h4"}[iteration.job]
            level_of.pop(iteration.job)
            return [assignment(f"{iteration.job}/{host}>h3", 0xC777, LEVELS[{"a": 1, "b": 4}[iteration.job]])]
        return []

    made.answer = answer
    files: dict[str, Path] = {}
    for job, host in (("", "h3"), ("a", "h2"), ("b", "h4")):
        text, records = worker(job, host, tmp_path, address, addresses)
        files[job] = records
        start_agent(text)
    assert (tmp_path / f"pcie-{LINK}").exists()

    def lengths(job: str) -> list[tuple[int, float]]:
        lines = files[job].read_text().splitlines() if files[job].exists() else []
        return [(r["start_ns"], r["communication_ns"] / MS) for r in map(json.loads, lines)]

    eventually(lambda: len(lengths("b")) > 13 and not level_of, "the new plan")
    at = lengths("b")[13][0]
    eventually(lambda: sum(start > at for start, _ in lengths("a")) > 14, "iterations under the new plan")
    # Alone a transfer takes 30 ms. The job of the lower level gets what is left of the link: 15 ms in 45.
    both = lengths("b")[1][0]
    before = {job: median([t for start, t in lengths(job) if both < start < at]) for job in "ab"}
    after = {job: median([t for start, t in lengths(job) if start > at][2:]) for job in "ab"}
    assert before["b"] < before["a"]
    assert after["a"] < after["b"]


def test_an_agent_says_what_is_wrong_with_a_link(tmp_path: Path, addresses: dict[str, str]) -> None:
    text, _ = worker("a", "h2", tmp_path, "127.0.0.1:1", addresses)
    for bad, says in (("a/b", "PCIe link 'a/b'"), ("", "PCIe link ''")):
        file = tmp_path / "agent.toml"
        file.write_text(text.replace(LINK, bad))
        done = command("check", "--config", str(file))
        assert done.returncode == 2
        assert says in done.stderr


MOVER = """
import sys, time
from polyrhythm import polyrhythm_job

name, agent, link = sys.argv[1:]
with polyrhythm_job(
    name, ["h2", "h3"], rank=0, period_ms=40, phases_ms=[(0, 20)], bytes_per_flow=10**6, agent=agent, pcie=link
) as job:
    while job.level == 255:
        time.sleep(0.005)
        job.step()
    print(job.level, flush=True)
    sys.stdin.readline()
    for _ in range(100):
        with job.pcie_transfer():
            time.sleep(0.002)
    print(time.monotonic(), flush=True)
"""


def test_two_training_processes_share_a_link_and_the_higher_one_is_done_first(
    start_agent: Start, tmp_path: Path, addresses: dict[str, str], hub: tuple[Hub, str]
) -> None:
    made, address = hub
    made.answer = by_level({"high": 0, "low": 5})
    path = str(tmp_path / "agent.sock")
    text = config_text(
        "h2",
        addresses["h2"],
        controller=address,
        addresses=addresses,
        agent=f'socket = "{path}"',
        nic='driver = "none"',
    )
    start_agent(text)
    eventually(lambda: status(path)["connected"], "a session")
    movers = {
        name: subprocess.Popen(
            [sys.executable, "-c", MOVER, name, path, LINK],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment(),
        )
        for name in ("low", "high")
    }  # fmt: skip
    try:
        levels = {name: int(_line(mover)) for name, mover in movers.items()}
        for mover in movers.values():
            assert mover.stdin is not None
            mover.stdin.write("go\n")
            mover.stdin.flush()
        ended = {name: float(_line(mover)) for name, mover in movers.items()}
    finally:
        for mover in movers.values():
            mover.kill()
            mover.communicate()
    assert levels == {"high": 0, "low": 5}
    # Each has as much to move; "low" may get a piece where "high" is slow to ask for its next.
    assert ended["high"] < ended["low"]


def _line(mover: subprocess.Popen[str]) -> str:
    assert mover.stdout is not None
    return mover.stdout.readline()


def test_without_an_agent_or_a_link_nothing_waits(tmp_path: Path, caplog: Any) -> None:
    with polyrhythm_job("a", ["h2"], agent=str(tmp_path / "none"), pcie=LINK) as job, job.pcie_transfer():
        assert job.level == 255
    with polyrhythm_job("a", ["h2"], agent=str(tmp_path / "none"), pcie="../x") as job, job.pcie_transfer():
        pass
    assert "do not wait for other jobs: PCIe link '../x'" in caplog.text
    with polyrhythm_job("a", ["h2"], agent=str(tmp_path / "none")) as job, job.pcie_transfer():
        pass
    assert os.listdir(tmp_path) == [f"pcie-{LINK}"]
