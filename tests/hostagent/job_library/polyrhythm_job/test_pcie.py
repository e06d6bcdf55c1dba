# SPDX-License-Identifier: Apache-2.0
"""The PCIe semaphore between real processes: order by level, sharing within one, killed and hanging holders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from agent_rig import eventually

from polyrhythm_job.pcie import PcieLink

CLIENT = """
import sys
from pathlib import Path
from polyrhythm_job.pcie import PcieLink

name, level, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
link = PcieLink("0000:17:00.0", folder)
for line in sys.stdin:
    word = line.strip()
    if word == "take":
        print("asks", flush=True)
        link.acquire(level)
        with open(folder / "log", "a") as log:
            log.write(name + "\\n")
        print("has", flush=True)
    elif word == "give":
        link.release()
        print("gave", flush=True)
"""


class Client:
    """A process of its own that takes and gives the link when it is told to."""

    def __init__(self, name: str, level: int, folder: Path) -> None:
        command = [sys.executable, "-c", CLIENT, name, str(level), str(folder)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
        )

    def say(self, word: str) -> None:
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        return self.process.stdout.readline().strip()

    def asks(self) -> None:
        self.say("take")
        assert self.hear() == "asks"

    def takes(self) -> None:
        self.asks()
        assert self.hear() == "has"

    def gives(self) -> None:
        self.say("give")
        assert self.hear() == "gave"


@pytest.fixture
def clients(tmp_path: Path):
    started: list[Client] = []

    def start(name: str, level: int) -> Client:
        started.append(Client(name, level, tmp_path))
        return started[-1]

    yield start
    for client in started:
        client.process.kill()
        client.process.wait()
        client.process.stdin.close()
        client.process.stdout.close()


def order(folder: Path) -> list[str]:
    return (folder / "log").read_text().split()


def settle(folder: Path, waiting: int) -> None:
    """Return when so many clients wait for the link: their lines in the table say so."""

    def count() -> int:
        with PcieLink("0000:17:00.0", folder) as link:
            return sum(link._read(line)[0] == 2 for line in range(64))

    eventually(lambda: count() >= waiting, "the clients wait")


def test_the_higher_priority_goes_first_whoever_came_first(tmp_path: Path, clients) -> None:
    holder, low, middle, high = clients("h", 1), clients("low", 5), clients("mid", 3), clients("high", 0)
    holder.takes()
    for count, client in enumerate((low, middle, high), 1):
        client.asks()
        settle(tmp_path, count)
    holder.gives()
    for client in (high, middle, low):
        assert client.hear() == "has"
        client.gives()
    assert order(tmp_path) == ["h", "high", "mid", "low"]


def test_a_killed_holder_blocks_nobody(tmp_path: Path, clients) -> None:
    holder, other = clients("h", 0), clients("other", 4)
    holder.takes()
    other.asks()
    settle(tmp_path, 1)
    holder.process.send_signal(signal.SIGKILL)
    assert other.hear() == "has"
    other.gives()
    again = clients("again", 2)
    again.takes()
    assert order(tmp_path) == ["h", "other", "again"]


def test_a_killed_waiter_is_not_waited_for(tmp_path: Path, clients) -> None:
    holder, best, other = clients("h", 2), clients("best", 0), clients("other", 4)
    holder.takes()
    best.asks()
    settle(tmp_path, 1)
    other.asks()
    settle(tmp_path, 2)
    best.process.send_signal(signal.SIGKILL)
    best.process.wait()
    holder.gives()
    assert other.hear() == "has"


def test_jobs_of_one_level_share_the_link(tmp_path: Path, clients) -> None:
    one, two = clients("one", 3), clients("two", 3)
    one.takes()
    two.takes()
    one.gives()
    with PcieLink("0000:17:00.0", tmp_path) as link:
        assert not link.acquire(0, timeout_s=0.05)
        two.gives()
        with link.acquired(0, timeout_s=20) as got:
            assert got


def test_a_stopped_holder_is_waited_for_no_longer_than_patience_lasts(tmp_path: Path, clients) -> None:
    holder = clients("h", 0)
    holder.takes()
    holder.process.send_signal(signal.SIGSTOP)
    with PcieLink("0000:17:00.0", tmp_path) as link:
        with link.acquired(1, timeout_s=0.05) as got:
            assert not got
        holder.process.send_signal(signal.SIGKILL)
        with link.acquired(1) as got:
            assert got


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="letters"):
        PcieLink("../etc/passwd", tmp_path)
    with PcieLink("a", tmp_path) as link:
        with pytest.raises(ValueError, match="level -1"):
            link.acquire(-1)
        with pytest.raises(RuntimeError, match="not acquired"):
            link.release()
        link.acquire(1)
        with pytest.raises(RuntimeError, match="acquired already"):
            link.acquire(1)
    many = [PcieLink("a", tmp_path) for _ in range(64)]
    with pytest.raises(OSError, match="share it already"):
        PcieLink("a", tmp_path)
    for link in many:
        link.close()
    PcieLink("a", tmp_path).close()
