# SPDX-License-Identifier: Apache-2.0
"""Two controllers as real processes, with a real etcd and real switches: whatever happens to the leader, one
writes, and nothing that was acknowledged is lost.

Run with `-s` to see how long each takeover took.
"""

from __future__ import annotations

import os
import signal
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from control_rig import PATIENCE_S, Controller, HostFabric, eventually, job, join_message
from etcd_rig import Cluster, needs_etcd
from silent_proxy import SilentProxy
from write_record import WriteRecord, recorded_writes

from controller.model.job import Job
from controller.process.server import DEPOSED
from controller.wire import agent_pb2 as wire
from hostagent.session import ControllerSession

pytestmark = [needs_etcd, pytest.mark.slow]

Start = Callable[..., Controller]
MEMBER = job("a", "h1", "h3")


class Host:
    """An agent's own session, which finds the leader; it announces its workers each time it is welcomed."""

    def __init__(self, name: str, ip: str, rank: int, *controllers: Controller) -> None:
        self.accepted: set[str] = set()
        """The jobs that the present leader has acknowledged."""
        self.ever_accepted: set[str] = set()
        self._hello = wire.Hello(host=name, ip=ip, pinning="udp", protocol=1)
        self._rank = rank
        self._jobs = [MEMBER]
        self._sequence = 0
        self.session = ControllerSession(
            [c.agents for c in controllers], self._heard, self.accepted.clear, self._connected
        )
        self.session.start()

    def announce(self, member: Job) -> None:
        """Announce a worker of another job, now and to each later leader."""
        self._jobs.append(member)
        self._join(member)

    def _join(self, member: Job) -> None:
        self._send(join_message(member, self._rank))

    def _connected(self) -> None:
        self._sequence = 0
        self._send(wire.AgentMessage(hello=self._hello))

    def _heard(self, message: wire.ControllerMessage) -> None:
        if message.HasField("welcome"):
            for member in self._jobs:
                self._join(member)
        elif message.HasField("accepted"):
            self.accepted.add(message.accepted.job)
            self.ever_accepted.add(message.accepted.job)

    def _send(self, message: wire.AgentMessage) -> None:
        self._sequence += 1
        message.sequence = self._sequence
        self.session.send(message)


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteRecord]:
    with recorded_writes(monkeypatch) as made:
        yield made


def asked(controller: Controller, path: str) -> Any:
    """An answer of the REST API, also one with status 503; None while the port is closed."""
    try:
        return controller.api(path)
    except (urllib.error.URLError, ConnectionError):
        return None


def jobs(controller: Controller) -> list[str]:
    answer = asked(controller, "jobs")
    return sorted(j["name"] for j in answer["jobs"]) if answer is not None else []


class Pair:
    """Two controllers of one fabric, of which the first one leads, and the agents of a job."""

    def __init__(
        self, fabric: HostFabric, start: Start, record: WriteRecord, first_etcd: str, etcd: str
    ) -> None:
        description = fabric.description(verify=False, profile="declared")
        self.record = record
        self.fabric = fabric
        self.leader = start(description, f"--state=etcd://{first_etcd}", "--name=one")
        eventually(lambda: self.leader.says("this controller leads from now on"), "one leads")
        eventually(lambda: len(record) == len(fabric.switches), "it is primary everywhere")
        self.standby = start(description, f"--state=etcd://{etcd}", "--name=two")
        eventually(lambda: self.standby.says("this controller is standby: one leads"), "two stands by")
        self.term = record.newest_term()
        hosts = fabric.topology.host
        self.hosts = [Host(n, hosts[n].ip, i, self.standby, self.leader) for i, n in enumerate(MEMBER.hosts)]
        self.acknowledged("a")
        eventually(lambda: (asked(self.leader, "plan") or {}).get("version"), "the job is planned")

    def acknowledged(self, name: str) -> None:
        for host in self.hosts:
            eventually(lambda host=host: name in host.accepted, f"{name} is acknowledged")

    def taken_over(self, what: str, since_s: float, *others: str) -> None:
        """Check that the standby leads, has every acknowledged job, and does all work of a controller."""
        eventually(
            lambda: len(self.record.primaries_above(self.term)) == len(self.fabric.switches),
            "two is primary of every switch",
        )
        print(
            f"{what}: primary of all switches after {max(self.record.primaries_above(self.term)) - since_s:.2f} s"
        )
        eventually(lambda: "a" in jobs(self.standby), "the acknowledged job is there")
        self.acknowledged("a")
        print(f"{what}: all agents back after {time.monotonic() - since_s:.2f} s")
        for host in self.hosts:
            host.announce(job("b", *MEMBER.hosts))
        self.acknowledged("b")
        eventually(lambda: jobs(self.standby) == ["a", "b", *others], "a new job is planned")
        self.record.check_one_writer()

    def close(self) -> None:
        for host in self.hosts:
            host.session.stop()


@pytest.fixture
def pair(
    fabric: HostFabric, start_controller: Start, record: WriteRecord
) -> Iterator[Callable[[str, str], Pair]]:
    made: list[Pair] = []

    def make(first_etcd: str, etcd: str) -> Pair:
        made.append(Pair(fabric, start_controller, record, first_etcd, etcd))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_leader_that_is_killed(cluster: Cluster, pair: Callable[[str, str], Pair]) -> None:
    etcd = f"{cluster.members[0].client}/killed"
    two = pair(etcd, etcd)
    since = time.monotonic()
    two.leader.process.kill()
    two.taken_over("kill -9", since)


def test_no_acknowledged_job_is_lost(cluster: Cluster, pair: Callable[[str, str], Pair]) -> None:
    """The leader is killed while jobs arrive, and no agent is left to announce them again."""
    etcd = f"{cluster.members[0].client}/acknowledged"
    two = pair(etcd, etcd)
    for number in range(60):
        for host in two.hosts:
            host.announce(job(f"j{number}", *MEMBER.hosts))
    eventually(lambda: all(len(host.accepted) > 20 for host in two.hosts), "some are acknowledged")
    two.leader.process.kill()
    for host in two.hosts:
        host.session.stop()
    two.leader.process.wait(PATIENCE_S)
    acknowledged = two.hosts[0].ever_accepted & two.hosts[1].ever_accepted
    print(f"kill -9 while jobs arrive: {len(acknowledged)} of 61 jobs acknowledged by then")
    eventually(lambda: acknowledged <= set(jobs(two.standby)), "all acknowledged jobs are there")
    two.record.check_one_writer()


def test_a_leader_that_is_stopped_cleanly(cluster: Cluster, pair: Callable[[str, str], Pair]) -> None:
    etcd = f"{cluster.members[0].client}/clean"
    two = pair(etcd, etcd)
    since = time.monotonic()
    two.leader.process.terminate()
    two.taken_over("SIGTERM", since)
    assert two.leader.process.wait(PATIENCE_S) == 0
    assert "lease was not given back" not in two.leader.log.read_text()


def test_a_leader_that_is_cut_off_from_etcd(cluster: Cluster, pair: Callable[[str, str], Pair]) -> None:
    """It ends before another one begins, although it still reaches every switch."""
    proxy = SilentProxy(cluster.members[0].client)
    two = pair(f"{proxy.address}/cut", f"{cluster.members[0].client}/cut")
    since = time.monotonic()
    proxy.silence()
    assert two.leader.process.wait(PATIENCE_S) == DEPOSED
    print(f"partition: the leader has ended after {time.monotonic() - since:.2f} s")
    assert not two.standby.says("this controller leads"), "the other one leads only afterwards"
    assert "it ends: no renewal of its lease was answered in time" in two.leader.log.read_text()
    two.taken_over("partition", since)
    proxy.close()


def test_a_leader_that_hangs_and_comes_back(cluster: Cluster, pair: Callable[[str, str], Pair]) -> None:
    """Its host froze for longer than its lease. What waits for it then, no switch takes from it."""
    etcd = f"{cluster.members[0].client}/hangs"
    two = pair(etcd, etcd)
    since = time.monotonic()
    two.leader.process.send_signal(signal.SIGSTOP)
    # A plan with new entries waits for it when it wakes up.
    for host in two.hosts:
        host.announce(job("c", *MEMBER.hosts))
    eventually(lambda: two.record.primaries_above(two.term), "the other one leads")
    os.kill(two.leader.process.pid, signal.SIGCONT)
    assert two.leader.process.wait(PATIENCE_S) == DEPOSED
    two.taken_over("SIGSTOP", since, "c")


def test_etcd_loses_a_member_and_the_leader_stays(
    tmp_path: Path, fabric: HostFabric, start_controller: Start, record: WriteRecord
) -> None:
    """Three members, each killed and started again in turn: whoever of them leads etcd, it elects anew."""
    three = Cluster(tmp_path, 3)
    try:
        members = ",".join(m.client for m in three.members)
        one = start_controller(fabric.description(verify=False), f"--state=etcd://{members}")
        eventually(lambda: one.says("this controller leads from now on"), "it leads")
        for member in three.members:
            member.end(signal.SIGKILL)
            # Longer than its lease: it must have been renewed through the others.
            gone = time.monotonic() + 6.0
            eventually(lambda until=gone: time.monotonic() > until, "time passes")
            three.start()
        assert one.process.poll() is None
        answer = asked(one, "readyz") or {}
        assert answer.get("controller", {}).get("role", "leader") == "leader"
    finally:
        three.end(signal.SIGKILL)
    assert one.process.wait(PATIENCE_S) == DEPOSED, "without any etcd it ends"
    record.check_one_writer()


def test_etcd_is_down_at_the_start(tmp_path: Path, fabric: HostFabric, start_controller: Start) -> None:
    alone = Cluster(tmp_path)
    alone.end()
    one = start_controller(fabric.description(verify=False), f"--state=etcd://{alone.members[0].client}")
    eventually(lambda: one.says("does not answer"), "it says so")
    alone.start()
    eventually(lambda: one.says("this controller leads from now on"), "it leads")
    said = [line for line in one.log.read_text().splitlines() if "does not answer" in line]
    assert len(said) == 1
    assert "stands by and tries again" in said[0]
    alone.end(signal.SIGKILL)
    assert one.process.wait(PATIENCE_S) == DEPOSED
