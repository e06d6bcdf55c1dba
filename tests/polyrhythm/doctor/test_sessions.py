# SPDX-License-Identifier: Apache-2.0
"""The checks of what runs: real agents, a silent TCP peer, a served switch, a server whose clock is wrong."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from agent_rig import AgentProcess, Hub, config_text, eventually, status, welcome_and_pin

from bmv2 import EmbeddedSwitch
from bmv2.hostloop import HostLoop
from bmv2.server import serve
from controller.process.config import FabricDescription
from controller.southbound.desired import EcnProfile
from controller.southbound.fleet import Target
from hostagent.config import AgentSettings, Config
from polyrhythm.doctor import sessions
from polyrhythm.doctor.finding import Deployment, ProblemError, UncheckedError
from topo.generate import leaf_spine
from topo.graph import UNKNOWN_HASH, HashSpec

Start = Callable[..., AgentProcess]


def agent_at(path: Path | str, host: str = "h1") -> Deployment:
    return Deployment(agent=Config(agent=AgentSettings(host=host, ip="127.0.0.1", socket=str(path))))


def problem(check: Callable[[Deployment], str], deployment: Deployment) -> str:
    with pytest.raises(ProblemError) as found:
        check(deployment)
    assert found.value.remedy
    return str(found.value)


def unchecked(check: Callable[[Deployment], str], deployment: Deployment) -> str:
    with pytest.raises(UncheckedError) as found:
        check(deployment)
    return str(found.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sock"


def started(start: Start, path: Path, controller: str) -> AgentProcess:
    told = f'socket = "{path}"'
    return start(config_text("h1", "127.0.0.1", controller=controller, agent=told, nic='driver = "none"'))


def test_an_agent_with_a_session_and_one_that_loses_it(
    start_agent: Start, hub: tuple[Hub, str], path: Path
) -> None:
    made, controller = hub
    made.answer = welcome_and_pin
    agent = started(start_agent, path, controller)
    eventually(lambda: status(str(path))["connected"], "connected")
    assert "has a session" in sessions.check_agent_socket(agent_at(path))
    assert "is the socket of host h1, not h7" in problem(sessions.check_agent_socket, agent_at(path, "h7"))
    # This hub never tells the time.
    assert "knows fabric time not at all" in problem(sessions.check_time, agent_at(path))
    policy = status(str(path))["policy"]
    here = replace(agent_at(path), policy=policy)
    assert sessions.check_policy(here) == f"--policy and the agent's controller have {policy}"
    assert "--policy has ecmp, the agent's controller has" in problem(
        sessions.check_policy, replace(here, policy="ecmp")
    )
    agent.stop()
    assert "systemctl start" in str(
        getattr(_error(sessions.check_agent_socket, agent_at(path)), "remedy", "")
    )


def _error(check: Callable[[Deployment], str], deployment: Deployment) -> Exception:
    with pytest.raises(ProblemError) as found:
        check(deployment)
    return found.value


def test_an_agent_without_a_controller(start_agent: Start, path: Path) -> None:
    started(start_agent, path, "127.0.0.1:1")
    assert "has no session with 127.0.0.1:9560" in problem(sessions.check_agent_socket, agent_at(path))


def test_sockets_that_are_none_or_of_others_or_silent(path: Path, tmp_path: Path) -> None:
    assert "No such file" in problem(sessions.check_agent_socket, agent_at(path))
    file = tmp_path / "file"
    file.touch()
    assert "is no socket" in problem(sessions.check_agent_socket, agent_at(file))
    assert "this agent has none" in unchecked(sessions.check_agent_socket, agent_at(""))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        assert "Connection refused" in problem(sessions.check_agent_socket, agent_at(path))
        silent.listen()
        assert "the agent hangs" in problem(sessions.check_agent_socket, agent_at(path))


@pytest.mark.parametrize(
    ("answer", "words"), [(b"", "closes without an answer"), (b"[1]\n", "not the socket of an agent")]
)
def test_a_socket_of_another_program(path: Path, answer: bytes, words: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def speak() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(100)
                accepted.sendall(answer)

        thread = threading.Thread(target=speak)
        thread.start()
        assert words in problem(sessions.check_agent_socket, agent_at(path))
        thread.join()


def fabric(targets: dict[str, str], known: bool = True) -> Deployment:
    topology = leaf_spine(2, 2, 2, host_bps=10**8, fabric_bps=10**8)
    if not known:
        topology = replace(topology, hash=HashSpec(algorithm=UNKNOWN_HASH))
    return Deployment(
        fabric=FabricDescription(
            name="x", clock="host", topology=topology,
            targets={name: Target(address, n) for n, (name, address) in enumerate(targets.items(), 1)},
            ecn=EcnProfile(5, 50, 0.1), verify=True, scenario="", poll_ns=10**8, elephant_bytes=1,
        )
    )  # fmt: skip


def test_switches_that_answer_are_absent_or_silent() -> None:
    loop = HostLoop()
    server = serve(EmbeddedSwitch("leaf1", loop), loop, device_id=1)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        quiet = f"127.0.0.1:{silent.getsockname()[1]}"
        assert sessions.check_switches(fabric({"leaf1": server.address})) == "all 1 switches answer"
        what = problem(
            sessions.check_switches,
            fabric({"leaf1": server.address, "leaf2": quiet, "spine1": "127.0.0.1:1"}),
        )
    server.stop()
    loop.stop()
    thread.join(20)
    loop.close()
    assert what.startswith("2 of 3 switches do not answer: ")
    assert f"leaf2 ({quiet}): silent: no answer within 2 s" in what
    assert "spine1 (127.0.0.1:1): " in what
    assert "refused" in what


def test_a_hash_that_nobody_has_described() -> None:
    assert sessions.check_hash(fabric({})) == "the switches hash by crc32"
    assert "is unknown" in problem(sessions.check_hash, fabric({}, known=False))
    assert "--fabric FILE" in unchecked(sessions.check_hash, Deployment())


@contextmanager
def web(plan: dict[str, Any] | None, date: str | None = None) -> Iterator[str]:
    """A REST server with that plan, and with a clock of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = not self.path.startswith("/api/v1/plan") or plan is not None
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps(plan or {}).encode())

        def date_time_string(self, timestamp: float | None = None) -> str:
            return date or super().date_time_string(timestamp)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_clocks_that_differ() -> None:
    with web(None) as url:
        assert "agrees with the controller's" in sessions.check_time(Deployment(web=url))
    with web(None, "Thu, 01 Jan 2026 00:00:00 GMT") as url:
        assert "differ by about" in problem(sessions.check_time, Deployment(web=url))
    with web(None, "yesterday") as url:
        assert "unreadable" in unchecked(sessions.check_time, Deployment(web=url))
    assert "--web-ca /none: No such file" in unchecked(
        sessions.check_time, Deployment(web="https://127.0.0.1:1", web_ca=Path("/none"))
    )
    assert "--web URL" in unchecked(sessions.check_time, Deployment())


def test_a_controller_that_is_away_or_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Deployment(web="http://127.0.0.1:1", policy="crux")
    for check in (sessions.check_time, sessions.check_policy):
        assert problem(check, away) == "http://127.0.0.1:1 does not answer: Connection refused"
    # The system takes the connection, and nobody reads.
    monkeypatch.setattr(sessions, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert "does not answer: timed out" in problem(sessions.check_time, Deployment(web=url))


def test_policies_and_versions_that_differ() -> None:
    plan = {"policy": {"name": "crux", "distribution": "polyrhythm", "version": version("polyrhythm")}}
    with web(plan) as url:
        assert "have crux" in sessions.check_policy(Deployment(web=url, policy="crux"))
        assert "--policy has ecmp" in problem(sessions.check_policy, Deployment(web=url, policy="ecmp"))
    plan["policy"]["version"] = "0.0.1"
    with web(plan) as url:
        assert "the controller has polyrhythm 0.0.1; here" in problem(
            sessions.check_policy, Deployment(web=url, policy="crux")
        )
    with web(None) as url:
        assert "it needs two of" in unchecked(sessions.check_policy, Deployment(web=url, policy="crux"))
