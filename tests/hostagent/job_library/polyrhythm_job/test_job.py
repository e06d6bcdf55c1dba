# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm_job` in training code, with the agent as a real process and without it."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_rig import (
    MS,
    ROOT,
    AgentProcess,
    Hub,
    agents_in,
    assignment,
    clock_answer,
    config_text,
    environment,
    eventually,
    local_socket,
    running_hub,
    status,
    welcome_and_pin,
)

from controller.wire import agent_pb2 as pb
from polyrhythm import polyrhythm_job

HOSTS = {"h2": "127.0.1.2", "h3": "127.0.1.3"}
Start = Callable[..., AgentProcess]
pytestmark = pytest.mark.usefixtures("patient_library")


def connected_agent(start: Start, folder: Path, controller: str) -> tuple[AgentProcess, str]:
    """An agent without a NIC that pins, connected with the controller; and its socket."""
    path = str(folder / "agent.sock")
    text = config_text(
        "h2",
        HOSTS["h2"],
        controller=controller,
        addresses=HOSTS,
        agent=f'socket = "{path}"',
        nic='driver = "none"',
    )
    process = start(text)
    eventually(lambda: status(path)["connected"], "a session")
    return process, path


@pytest.fixture
def agent(start_agent: Start, tmp_path: Path, hub: tuple[Hub, str]) -> tuple[AgentProcess, str]:
    return connected_agent(start_agent, tmp_path, hub[1])


@pytest.fixture(scope="module")
def shared_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AgentProcess, str]]:
    """One agent for all tests of what must not harm it."""
    folder = tmp_path_factory.mktemp("agent")
    with running_hub() as (_, address), agents_in(folder) as start:
        yield connected_agent(start, folder, address)


def test_a_job_with_a_profile_joins_is_placed_and_reports(
    agent: tuple[AgentProcess, str], hub: tuple[Hub, str]
) -> None:
    made, _ = hub
    moves: list[int] = []
    with polyrhythm_job(
        "llama", ["h2", "h3"], rank=0, model="LLaMA", gpus=16, flops_per_iteration=1e15, period_ms=20,
        phases_ms=[(0, 8)], bytes_per_flow=1_000_000, agent=agent[1],
    ) as job:  # fmt: skip
        job.adopt("llama/h2>h3", moves.append)
        for _ in range(4):
            time.sleep(0.002)
            job.step()
        assert job.connected
        assert job.placements["llama/h2>h3"].source_port == 0xC777
        assert moves[-1] == 0xC777
        eventually(lambda: len(made.bodies("iteration")) == 4, "four reports")
    eventually(lambda: made.bodies("job_leave"), "the job's leave")
    join = made.bodies("job_join")[0]
    assert (join.job, join.model, join.gpus, join.rank, join.period_ns) == ("llama", "LLaMA", 16, 0, 20 * MS)
    assert [(p.start_ns, p.end_ns, p.rate_bps) for p in join.phases] == [(0, 8 * MS, 1_000_000_000)]
    assert [f.name for f in join.flows] == ["llama/h2>h3", "llama/h3>h2"]
    reports = made.bodies("iteration")
    assert [r.index for r in reports] == [0, 1, 2, 3]
    assert any(m.earlier for m in made.kept), "none of four quick steps waited for another"
    assert all(r.end_ns - r.start_ns >= 2 * MS for r in reports)
    assert all(a.end_ns == b.start_ns for a, b in itertools.pairwise(reports))


def test_a_job_without_a_profile_is_measured_first(
    agent: tuple[AgentProcess, str], hub: tuple[Hub, str]
) -> None:
    made, _ = hub
    with polyrhythm_job("bert", ["h2", "h3"], rank=0, agent=agent[1]) as job:
        for _ in range(9):
            time.sleep(0.006)
            with job.communicating():
                time.sleep(0.012)
            time.sleep(0.004)
            job.step()
            if job.connected:
                break
    eventually(lambda: made.bodies("job_join"), "a join")
    join = made.bodies("job_join")[0]
    # Sleeps are never short; on a busy machine they are long.
    assert 22 * MS <= join.period_ns < 200 * MS
    assert join.phases[0].start_ns == 0
    assert 12 * MS <= join.phases[0].end_ns <= join.period_ns - 10 * MS


def keeps_step(agent: str, period: int) -> bool:
    """Whether five steps in a row of a job begin at their slots, within a minute.

    On a busy machine a job keeps its own pace for a while, because the agent does not know its clock well
    enough for slots.
    """
    late: list[int] = []
    give_up = time.monotonic() + 60.0
    with polyrhythm_job("sane", ["h2", "h3"], rank=0, period_ms=200, phases_ms=[(0, 10)], agent=agent) as job:
        while time.monotonic() < give_up:
            time.sleep(0.02)
            job.step()
            late.append((time.monotonic_ns() - 7 * MS) % period)
            # Without the schedule a step would come every 20 ms, and only two of ten so near a slot.
            if len(late) >= 5 and max(late[-5:]) < 40 * MS and job.held_ns > 4 * 100 * MS:
                return True
    return False


def test_a_shift_holds_the_job_to_its_slots_and_never_longer_than_a_period(
    agent: tuple[AgentProcess, str], hub: tuple[Hub, str]
) -> None:
    made, _ = hub
    period = 200 * MS

    def answer(message: pb.AgentMessage) -> list[pb.ControllerMessage]:
        kind = message.WhichOneof("body")
        if kind == "job_join":
            far = time.monotonic_ns() + 3_600_000 * MS
            # An epoch an hour ahead: a controller that has lost its head must not stop a job.
            epoch = far if message.job_join.job == "mad" else 0
            schedule = pb.JobSchedule(
                job=message.job_join.job, epoch_ns=epoch, shift_ns=7 * MS, period_ns=period
            )
            return [pb.ControllerMessage(schedule=schedule)]
        if kind == "clock_request":
            return clock_answer(message)
        return welcome_and_pin(message)

    made.answer = answer
    eventually(lambda: status(agent[1])["clock_error_ns"] < MS, "a clock in step")
    assert keeps_step(agent[1], period)
    with polyrhythm_job("mad", ["h2", "h3"], rank=0, period_ms=200, agent=agent[1]) as job:
        for _ in range(4):
            job.step()


def test_new_flows_of_training_code(agent: tuple[AgentProcess, str], hub: tuple[Hub, str]) -> None:
    made, _ = hub
    with polyrhythm_job("a", ["h2", "h3"], rank=0, agent=agent[1]) as job:
        mouse = job.flow("a/x", 100)
        elephant = job.flow("a/y", 1 << 30)
        again = job.flow("a/y", 1 << 30)
        assert (mouse.by, elephant.by, again.by) == ("mouse", "controller", "known")
        assert (elephant.source_port, elephant.dscp) == (0xC777, 34)
        assert 0xC000 <= mouse.source_port <= 0xFFFF
        job.end_flow("a/y")
        assert job.flow("a/y", 1 << 30).by == "controller"
    assert [r.flow for r in made.bodies("flow_request")] == ["a/y", "a/y"]


@pytest.mark.usefixtures("short_deadline")
def test_a_controller_that_is_always_late_is_waited_for_no_more(
    agent: tuple[AgentProcess, str], hub: tuple[Hub, str]
) -> None:
    made, _ = hub
    made.answer = lambda message: []
    with polyrhythm_job("a", ["h2"], rank=0, agent=agent[1]) as job:
        waited = [job.flow(f"a/{n}", 1 << 30).by for n in range(6)]
        assert waited == ["deadline"] * 3 + ["late"] * 3
        assert len(eventually(lambda: made.bodies("flow_request")[5:], "six requests")) == 1
        made.answer = welcome_and_pin
        assert job.flow("a/7", 1 << 30).by == "late"
        # The answer to that one came in time; the next flow waits for its own again.
        eventually(lambda: job.flow(f"a/{time.monotonic_ns()}", 1 << 30).by == "controller", "hope")


def test_without_an_agent_nothing_waits_and_nothing_breaks(tmp_path: Path) -> None:
    with polyrhythm_job("a", ["h2", "h3"], rank=0, period_ms=50, agent=str(tmp_path / "none")) as job:
        for _ in range(200):
            job.step()
        assert not job.connected
        assert job.held_ns == 0
        assert job.flow("a/h2>h3", 1 << 30).by == "nobody"


def test_the_agents_status_says_what_the_controller_has_stored(
    start_agent: Start, tmp_path: Path, hub: tuple[Hub, str]
) -> None:
    made, address = hub

    def answer(message: pb.AgentMessage) -> list[pb.ControllerMessage]:
        if message.WhichOneof("body") == "job_join":
            join = message.job_join
            return [pb.ControllerMessage(accepted=pb.JobAccepted(job=join.job, rank=join.rank))]
        return welcome_and_pin(message)

    made.answer = answer
    _, path = connected_agent(start_agent, tmp_path, address)
    with polyrhythm_job("a", ["h2", "h3"], rank=0, period_ms=50, agent=path) as job:
        job.step()
        stored = [{"job": "a", "rank": 0, "accepted": True}]
        eventually(lambda: status(path)["workers"] == stored, "the controller's word")


def test_the_job_outlives_its_agent_and_finds_the_next(
    start_agent: Start, tmp_path: Path, hub: tuple[Hub, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, address = hub
    monkeypatch.setattr("polyrhythm_job.connection.RETRY_NS", 50 * MS)
    path = str(tmp_path / "agent.sock")
    text = config_text(
        "h2",
        HOSTS["h2"],
        controller=address,
        addresses=HOSTS,
        agent=f'socket = "{path}"',
        nic='driver = "none"',
    )
    first = start_agent(text)
    with polyrhythm_job("a", ["h2", "h3"], rank=0, period_ms=50, agent=path) as job:
        job.step()
        assert job.connected
        eventually(lambda: made.bodies("job_join"), "a join")
        first.stop(signal.SIGKILL)
        job.step()
        job.step()
        assert not job.connected
        start_agent(text)

        def rejoined() -> bool:
            job.step()
            return job.connected

        eventually(rejoined, "the job is with the new agent")
        eventually(lambda: len(made.bodies("job_join")) == 2, "the controller hears of it again")


JOIN = b'{"op": "join", "job": "a", "hosts": ["h2"], "rank": 0, "period_ns": %s}\n'


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "Expecting value"),
        (b"\x16\x03\x01\x00\xff\x00\n", "codec can't decode|Expecting value|Invalid"),
        (b"[1]\n", "legal: an object with a key op"),
        (b"[" * 50_000 + b"\n", "recursion"),
        (b'{"op": "dance"}\n', "op: 'dance' is wrong; legal: join, flow, end, status"),
        (b'{"op": "step", "index": 0}\n', "legal: join, flow"),
        (b'{"op": "join", "job": "a", "hosts": ["h2"], "rank": 0}\n', "period_ns: missing"),
        (b'{"op": "join", "job": "a", "hosts": ["h3"], "rank": 0, "period_ns": 5}\n', "rank 0 belongs to h3"),
        (
            b'{"op": "join", "job": "a", "hosts": ["h2", "h9"], "rank": 0, "period_ns": 5}\n',
            "h9 has no address",
        ),
        (
            b'{"op": "join", "job": "a", "hosts": ["h2"], "rank": 7, "period_ns": 5}\n',
            "rank: 7 is wrong; legal: a whole number from 0 to 0",
        ),
        (JOIN % b"1180591620717411303424", "period_ns: .* a whole number from 1 of at most 63 bits"),
        (JOIN % b"9223372036854775807", "9,223,372,036,854,775,807 ns an iteration; at most"),
        (JOIN % b'5, "gpus": 4294967296', "4,294,967,296 GPUs; at most 10,000,000 are legal"),
        (
            JOIN % b'5, "bytes_per_flow": 1000000000000000',
            "bit/s; at most 1,000,000,000,000,000,000 are legal",
        ),
        (
            JOIN % (b'5, "flops_per_iteration": 1' + b"0" * 400),
            "flops_per_iteration: a whole number of more than 77 digits",
        ),
        (JOIN % b'5, "model": "\\udc00"', "has half a character"),
        (b'{"op": "flow", "flow": "a/\\udc00", "bytes": 1}\n', "legal: a name"),
        (JOIN % b"5" + b'{"op": "step", "index": 0}\n', "start_ns: missing"),
        (
            JOIN % b"5" + b'{"op": "step", "index": 4294967296, "start_ns": 0, "end_ns": 1}\n',
            "index: 4294967296 is wrong; legal: a whole number from 0 to 4294967295",
        ),
        (b'{"op": "join", "jobs": "a"}\n', "jobs: unknown key .is job meant.*; legal: job, hosts"),
        (b'{"op": "flow", "flow": "a/b", "bytes": -1}\n', "bytes: -1 is wrong; legal: a whole number from 0"),
        (b'{"op": "join", "protocol": 2}\n', "protocol: another version; legal: 1"),
        (b"x" * 70_000, "longer than 64 KiB"),
    ],
)
def test_garbage_is_refused_logged_and_harms_nobody(
    shared_agent: tuple[AgentProcess, str], said: bytes, complaint: str
) -> None:
    process, path = shared_agent
    before = len(process.log.read_text())
    with (
        polyrhythm_job("good", ["h2", "h3"], rank=0, period_ms=50, agent=path) as job,
        local_socket(path) as bad,
    ):
        job.step()
        try:
            bad.sendall(said)
            answer = bad.makefile().read()
        except (BrokenPipeError, ConnectionResetError):
            answer = ""
        if answer:
            assert re.search(complaint, json.loads(answer.splitlines()[-1])["what"])
        eventually(lambda: re.search(complaint, process.log.read_text()[before:]), "a line in the log")
        job.step()
        assert job.connected
    assert "Traceback" not in process.log.read_text()


def test_a_reader_that_does_not_read_is_cut_off(agent: tuple[AgentProcess, str]) -> None:
    process, path = agent
    with local_socket(path) as lazy:
        lazy.settimeout(0.5)
        try:
            for _ in range(200):
                lazy.sendall(b'{"op": "flow", "flow": "a/h1>h2", "bytes": 1}\n' * 1000)
        except OSError:
            pass
    eventually(lambda: process.says("does not read what the agent sends"), "the lazy one is cut off")
    with local_socket(path) as lazy:
        lazy.sendall(b'{"op": "status"}\n' * 1000)
        eventually(lambda: process.says("legal: to read the answers"), "too many questions end a connection")
    assert status(path)["connected"]


def test_a_job_joins_once(agent: tuple[AgentProcess, str]) -> None:
    _, path = agent
    join = b'{"op": "join", "job": "a", "hosts": ["h2"], "rank": 0, "period_ns": 5000}\n'
    with local_socket(path) as first, local_socket(path) as second:
        first.sendall(join)
        assert json.loads(first.makefile().readline())["event"] == "flows"
        second.sendall(join)
        assert "runs already on h2" in second.makefile().readline()


def test_two_agents_with_one_socket_or_one_name(
    agent: tuple[AgentProcess, str], start_agent: Start, tmp_path: Path, hub: tuple[Hub, str]
) -> None:
    process, path = agent
    twin = tmp_path / "twin.toml"
    twin.write_text(config_text("h2", HOSTS["h2"], agent=f'socket = "{path}"', nic='driver = "none"'))
    done = subprocess.run(
        [sys.executable, "-m", "polyrhythm", "agent", "--config", str(twin)],
        capture_output=True, text=True, timeout=300, cwd=ROOT, env=environment(), check=False,
    )  # fmt: skip
    assert (done.returncode, f"another agent listens on {path}" in done.stderr) == (2, True)
    assert process.process.poll() is None
    assert status(path)["connected"]


def test_a_move_of_the_plan_reaches_the_owner(agent: tuple[AgentProcess, str], hub: tuple[Hub, str]) -> None:
    made, _ = hub

    def answer(message: pb.AgentMessage) -> list[pb.ControllerMessage]:
        if message.WhichOneof("body") == "iteration":
            return [assignment("a/h2>h3", 0xD123)]
        return welcome_and_pin(message)

    made.answer = answer
    moves: list[int] = []
    with polyrhythm_job(
        "a", ["h2", "h3"], rank=0, period_ms=50, bytes_per_flow=1 << 20, agent=agent[1]
    ) as job:
        job.adopt("a/h2>h3", moves.append)

        def stepped() -> bool:
            job.step()
            return 0xD123 in moves

        eventually(stepped, "the move")
    assert moves[-2:] == [0xC777, 0xD123]


def test_the_example_for_torchrun_runs_without_torch(
    agent: tuple[AgentProcess, str], hub: tuple[Hub, str]
) -> None:
    """Two processes of one host, as torchrun starts them; only the first speaks."""
    example = ROOT / "docs" / "examples" / "train.py"
    processes = []
    for local in (0, 1):
        rank = {
            "LOCAL_RANK": str(local), "RANK": str(local), "WORLD_SIZE": "2", "GROUP_RANK": "0",
            "POLYRHYTHM_AGENT": agent[1], "POLYRHYTHM_HOSTS": "h2,h3",
        }  # fmt: skip
        command = [sys.executable, str(example), "--without-torch", "--iterations", "10"]
        processes.append(subprocess.Popen(command, env={**os.environ, **environment(), **rank}))
    assert [p.wait(120) for p in processes] == [0, 0]
    made, _ = hub
    assert {(j.job, j.rank) for j in made.bodies("job_join")} == {("example", 0)}
    assert made.bodies("iteration")
