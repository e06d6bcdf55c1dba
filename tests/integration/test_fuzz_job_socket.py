# SPDX-License-Identifier: Apache-2.0
"""Random requests of training processes, legal and illegal, against a model of what the agent must know.

The agent is a real process; it has no controller. One training process asks for flows all the time: whatever
the others send, it gets its answers.
"""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_rig import PATIENCE_S, AgentProcess, eventually

# A field of a request to join, and a value that it may not have.
WRONG: tuple[tuple[str, Any], ...] = (
    ("rank", 7),
    ("rank", "zero"),
    ("hosts", []),
    ("hosts", ["h9", "h8"]),
    ("gpus", -1),
    ("job", "a/b"),
    ("phases", [[5, 1]]),
    ("period_ns", -5),
    ("bytes_per_flow", "many"),
    ("surplus", 1),
    ("op", "dance"),
)
STEPS = 400
OPEN = 12


class Trainer:
    """A training process's connection; `flows` are those that the agent must know because of it."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")
        self.flows: set[str] = set()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data + b"\n")

    def tell(self, **request: Any) -> None:
        self.send(json.dumps(request).encode())

    def hear(self, *kinds: str) -> dict[str, Any]:
        """The next event of one of these kinds."""
        while True:
            line = self._lines.readline()
            assert line, "the agent closed the connection"
            said: dict[str, Any] = json.loads(line)
            if said["event"] in kinds:
                return said

    def is_refused(self) -> bool:
        """Whether the agent answers with an error, and closes the connection."""
        self.hear("error")
        return self._lines.readline() == b""

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def join(number: int) -> dict[str, Any]:
    return {
        "op": "join",
        "job": f"j{number}",
        "hosts": ["h1", "h2"],
        "rank": 0,
        "model": "fuzz",
        "gpus": 2,
        "flops_per_iteration": 1e12,
        "bytes_per_flow": 1 << 30,
        "period_ns": 100_000_000,
        "phases": [[0, 25_000_000]],
    }


def illegal(rng: random.Random, number: int, joined: bool) -> bytes:
    """A request that must be refused."""
    wrong = dict(join(number))
    field, value = rng.choice(WRONG)
    wrong[field] = value
    step = b'{"op": "step"}' if not joined else b'{"op": "step", "index": "first"}'
    return rng.choice(
        (
            json.dumps(wrong).encode(),
            b"\xff\xfe\x00garbage",
            b"[]",
            b"{",
            b"null",
            b'{"op": "flow"}',
            b'{"op": "flow", "flow": 5, "bytes": 1}',
            b'{"op": "flow", "flow": "a", "bytes": -1}',
            b'{"op": "end", "flow": []}',
            b'{"op": NaN}',
            b"[" * 5000,
            step,
        )
    )


def test_random_requests_leave_the_flows_that_the_model_says(
    start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    rng = random.Random(7)
    path = tmp_path / "agent.sock"
    agent = start_agent(
        f'[agent]\nhost = "h1"\nip = "10.0.0.1"\ncontroller = "127.0.0.1:1"\nsocket = "{path}"\n'
        '[nic]\ndriver = "none"\n[hosts]\nh2 = "10.0.0.2"\n'
    )
    victim = Trainer(path)
    others: list[Trainer] = []
    for number in range(STEPS):
        if not others or (len(others) < OPEN and rng.random() < 0.3):
            others.append(Trainer(path))
        one = rng.choice(others)
        match rng.choice(("join", "step", "flow", "status", "illegal", "close")):
            case "join" if not one.flows:
                one.tell(**join(number))
                one.flows = {f"j{number}/h1>h2"}
                one.hear("flows")
            case "step" if one.flows:
                one.tell(op="step", index=number, start_ns=0, end_ns=100_000_000, communication_ns=5)
            case "flow":
                one.tell(op="flow", flow=f"f/{number}", bytes=1 << 30, id=number)
                said = one.hear("flow", "error")
                assert (said["event"], said.get("id"), said.get("by")) == ("flow", number, "alone")
                one.tell(op="end", flow=f"f/{number}")
            case "status":
                one.tell(op="status")
                assert one.hear("status")["host"] == "h1"
            case "illegal":
                one.send(illegal(rng, number, bool(one.flows)))
                assert one.is_refused()
                one.close()
                others.remove(one)
            case "close":
                one.close()
                others.remove(one)
            case _:
                pass
        victim.tell(op="flow", flow=f"v/{number}", bytes=1 << 30, id=number)
        assert victim.hear("flow")["id"] == number
        victim.tell(op="end", flow=f"v/{number}")
        if number % 20 == 19:
            wanted = {flow for trainer in others for flow in trainer.flows}
            eventually(lambda wanted=wanted: known(victim) == wanted, f"the flows after step {number}")
    for trainer in (victim, *others):
        trainer.close()
    assert agent.process.poll() is None
    assert "Traceback" not in agent.log.read_text()


def known(trainer: Trainer) -> set[str]:
    """The flows with a queue pair, as the agent's status says."""
    trainer.tell(op="status")
    return set(trainer.hear("status")["flows"])
