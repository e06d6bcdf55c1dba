# SPDX-License-Identifier: Apache-2.0
"""Agents and a real controller that dies, hangs, returns, or is cut off: no job waits, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from agent_rig import (
    MS,
    ROOT,
    AgentProcess,
    config_text,
    environment,
    eventually,
    job_text,
    needs_namespaces,
    start_agent,
    status,
)

from polyrhythm import polyrhythm_job
from polyrhythm.bench.hostfabric import fabric

__all__ = ["start_agent"]

ELEPHANT = 1 << 30


class Rig:
    """Switches, and a controller on them that can be ended and started again at one address."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.web = ""
        self._stack = stack
        switches = self._spawn("-m", "polyrhythm.bench.hostfabric")
        assert switches.stdout is not None
        (folder / "fabric.json").write_text(switches.stdout.readline())

    def controller(self, *where: str) -> subprocess.Popen[str]:
        """A controller that is ready."""
        process = self._spawn("-m", "polyrhythm", "controller", f"--fabric={self.folder}/fabric.json", *where)
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["ready"]
        self.web = said["web"]
        return process

    def job(self, name: str) -> dict[str, Any]:
        """What the controller that was started last knows of a job; nothing if it does not know it."""
        try:
            with urllib.request.urlopen(f"{self.web}/api/v1/jobs/{name}", timeout=300) as answer:
                known: dict[str, Any] = json.load(answer)
                return known
        except urllib.error.HTTPError:
            return {}

    def _spawn(self, *arguments: str) -> subprocess.Popen[str]:
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, cwd=ROOT, env=environment(),
            )  # fmt: skip

        def end() -> None:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(300)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

        self._stack.callback(end)
        return process


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(tmp_path, stack)


def agent_text(path: Path, controller: str, host: str = "h1") -> str:
    hosts = {h.name: h.ip for h in fabric().hosts}
    return config_text(
        host, hosts[host], controller=controller, addresses=hosts, agent=f'socket = "{path}"',
        nic='driver = "none"',
    )  # fmt: skip


def asked(job: polyrhythm_job, number: int) -> str:
    """How a new flow was answered; "deadline" and "late" say that nothing waited for an answer any longer."""
    return job.flow(f"a/new{number}", ELEPHANT).by


def stop(process: subprocess.Popen[str]) -> None:
    """Stop a process and wait until each of its threads has stopped: until then one may still answer."""
    process.send_signal(signal.SIGSTOP)
    tasks = Path(f"/proc/{process.pid}/task")
    eventually(lambda: all(state_of(task) == "T" for task in tasks.iterdir()), "every thread stops")


def state_of(task: Path) -> str:
    """The state of a thread, one letter: "T" is stopped. Its name, in parentheses, may hold anything."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.slow
def test_a_controller_that_hangs_is_killed_and_returns(
    rig: Rig, start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    where = f"unix:{tmp_path}/controller.sock"
    first = rig.controller(f"--agents-address={where}")
    path = tmp_path / "agent.sock"
    start_agent(agent_text(path, where))
    eventually(lambda: status(str(path))["connected"], "a session")
    with polyrhythm_job("a", ["h1"], rank=0, period_ms=50, agent=str(path)) as job:
        # It knows of no such flow, and says so: by ECMP, at its word.
        eventually(lambda: asked(job, time.monotonic_ns()) == "controller", "an answer")
        stop(first)
        assert {asked(job, n) for n in range(10)} <= {"deadline", "late", "alone"}
        for _ in range(20):
            job.step()
        # A ping goes unanswered: the session is given up, and nobody is asked any more.
        eventually(lambda: not status(str(path))["connected"], "the session is given up")
        assert asked(job, 11) == "alone"
        first.kill()
        first.wait(300)
        rig.controller(f"--agents-address={where}")
        eventually(lambda: status(str(path))["connected"], "the session resumes")
        eventually(lambda: asked(job, time.monotonic_ns()) == "controller", "an answer again")
        job.step()
        assert job.connected


@pytest.mark.slow
def test_a_controller_that_is_killed_and_started_again_has_all_of_it_again(
    rig: Rig, start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    """Nobody waits while it is away; then job, flows, places and reports are there as before, by the agents' word."""
    where = f"unix:{tmp_path}/controller.sock"
    first = rig.controller(f"--agents-address={where}")
    hosts = ["h1", "h26"]
    paths = [str(tmp_path / f"{host}.sock") for host in hosts]
    for host, path in zip(hosts, paths, strict=True):
        start_agent(agent_text(Path(path), where, host))
    for path in paths:
        eventually(lambda path=path: status(path)["connected"], "a session")
    with ExitStack() as running:
        jobs = [
            running.enter_context(
                polyrhythm_job("a", hosts, rank=rank, period_ms=40, bytes_per_flow=1 << 20, agent=path)
            )
            for rank, path in enumerate(paths)
        ]

        def stepped() -> dict[str, Any]:
            for job in jobs:
                job.step()
            return rig.job("a")

        def planned() -> bool:
            known = stepped()
            return bool(known.get("flows")) and known["iterations"] >= 2

        eventually(planned, "the job is planned and reports")
        assert {f["flow"] for f in rig.job("a")["flows"]} == {"a/h1>h26", "a/h26>h1"}
        first.kill()
        first.wait(300)
        for path in paths:
            eventually(lambda path=path: not status(path)["connected"], "the session is lost")
        assert {asked(jobs[0], n) for n in range(5)} == {"alone"}
        for job in jobs:
            job.step()
            assert job.connected
        # Another policy has other levels: what the agents were told before does not do.
        second = rig.controller(f"--agents-address={where}", "--policy=ecmp")
        eventually(planned, "the new controller knows the job and hears of its iterations")
        assert rig.job("a")["hosts"] == hosts
        # The flows that are open hear of the new controller's plans, of which measuring the job makes several.
        names = ["a/h1>h26", "a/h26>h1"]

        def in_place() -> bool:
            planned = {flow["flow"]: flow["dscp"] for flow in stepped()["flows"]}
            places = [job.flow(name, ELEPHANT) for job, name in zip(jobs, names, strict=True)]
            assert {place.by for place in places} == {"known"}
            return [place.dscp for place in places] == [planned[name] for name in names]

        eventually(in_place, "the places of the plan")
        assert second.poll() is None


@pytest.mark.slow
def test_two_agents_with_one_name(rig: Rig, start_agent: Callable[..., AgentProcess], tmp_path: Path) -> None:
    where = f"unix:{tmp_path}/controller.sock"
    rig.controller(f"--agents-address={where}")
    paths = [tmp_path / "first.sock", tmp_path / "second.sock"]
    first = start_agent(agent_text(paths[0], where))
    eventually(lambda: status(str(paths[0]))["connected"], "a session")
    twin = start_agent(agent_text(paths[1], where))
    eventually(lambda: twin.says("host h1 already has a session"), "the twin is refused")
    assert (tmp_path / "log").read_text().count("host h1 already has a session") < 10
    assert status(str(paths[0]))["connected"]
    assert not status(str(paths[1]))["connected"]
    # When the first goes, the second is let in.
    first.stop()
    eventually(lambda: status(str(paths[1]))["connected"], "the twin's session")


@pytest.mark.slow
def test_garbage_on_the_controllers_agents_port(
    rig: Rig, start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    controller = rig.controller(f"--agents-address=unix:{tmp_path}/c.sock")
    path = tmp_path / "agent.sock"
    start_agent(agent_text(path, f"unix:{tmp_path}/c.sock"))
    eventually(lambda: status(str(path))["connected"], "a session")
    for said in (
        b"GET / HTTP/1.0\r\n\r\n",
        os.urandom(4096),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 500,
    ):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as noise:
            noise.connect(f"{tmp_path}/c.sock")
            noise.sendall(said)
    assert controller.poll() is None
    assert status(str(path))["connected"]


@pytest.mark.slow
@needs_namespaces
def test_a_network_that_is_cut_and_mended(
    rig: Rig, start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    """The agent lives in a namespace; its only link to the controller goes down, without a reset."""
    space, ours, theirs = f"pr{os.getpid()}", f"pra{os.getpid()}", f"prb{os.getpid()}"
    # A subnet of four addresses for this process alone, from the block for tests of networks (RFC 2544).
    near, far = (IPv4Address("198.18.0.0") + 4 * (os.getpid() % (1 << 15)) + n for n in (1, 2))

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    made = subprocess.run(["ip", "netns", "add", space], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"namespaces cannot be made here: {made.stderr.strip()}")
    try:
        ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", space)
        ip("addr", "add", f"{near}/30", "dev", ours)
        ip("link", "set", ours, "up")
        for words in (("addr", "add", f"{far}/30", "dev", theirs), ("link", "set", theirs, "up")):
            ip("-n", space, *words)
        controller = rig.controller(f"--agents-address={near}", "--agents-port=19560", "--insecure")
        path = tmp_path / "agent.sock"
        start_agent(agent_text(path, f"{near}:19560"), prefix=("ip", "netns", "exec", space))
        eventually(lambda: status(str(path))["connected"], "a session")
        with polyrhythm_job("a", ["h1"], rank=0, period_ms=50, agent=str(path)) as job:
            eventually(lambda: asked(job, time.monotonic_ns()) == "controller", "an answer")
            ip("link", "set", ours, "down")
            assert {asked(job, n) for n in range(5)} <= {"deadline", "late", "alone"}
            eventually(lambda: not status(str(path))["connected"], "the session is given up")
            job.step()
            assert job.connected
            ip("link", "set", ours, "up")
            eventually(lambda: status(str(path))["connected"], "the session resumes")
            eventually(lambda: asked(job, time.monotonic_ns()) == "controller", "an answer again")
        assert controller.poll() is None
    finally:
        subprocess.run(["ip", "netns", "del", space], check=False)
        subprocess.run(["ip", "link", "del", ours], check=False, capture_output=True)


@needs_namespaces
def test_training_between_namespaces(start_agent: Callable[..., AgentProcess], tmp_path: Path) -> None:
    """Two hosts in namespaces of their own, a veth pair between: what the Mininet fabric does, without it."""
    spaces = [f"pr{os.getpid()}{n}" for n in "ab"]
    addresses = {"h2": "198.18.8.1", "h3": "198.18.8.2"}
    for space in spaces:
        made = subprocess.run(["ip", "netns", "add", space], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"namespaces cannot be made here: {made.stderr.strip()}")
    try:
        words = (
            "link",
            "add",
            "eth0",
            "netns",
            spaces[0],
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            spaces[1],
        )
        subprocess.run(["ip", *words], check=True)
        agents = []
        begin = time.monotonic_ns() + 2_000 * MS
        for space, (name, address) in zip(spaces, addresses.items(), strict=True):
            for line in (("addr", "add", f"{address}/30", "dev", "eth0"), ("link", "set", "eth0", "up")):
                subprocess.run(["ip", "-n", space, *line], check=True)
            records = tmp_path / f"{name}.jsonl"
            text = config_text(
                name, address, addresses=addresses, agent='socket = ""',
                nic='driver = "udp"\nrate_mbps = 25.0\ninterface = "eth0"',
                more=job_text(("h2", "h3"), records, start_ns=begin, iterations=6),
            )  # fmt: skip
            agents.append(start_agent(text, prefix=("ip", "netns", "exec", space), records=records))
        assert [a.process.wait(300) for a in agents] == [0, 0]
        assert [[r["bytes_sent"] for r in a.records()] for a in agents] == [[20_000] * 6] * 2
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], check=False)
