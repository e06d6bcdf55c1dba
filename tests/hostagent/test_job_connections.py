# SPDX-License-Identifier: Apache-2.0
"""A job that says nothing is found by its TCP connections: which they are, what they send, and when."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from agent_rig import MS, AgentProcess, Hub, config_text, eventually, welcome_and_pin
from hypothesis import given
from hypothesis import strategies as st

from controller.wire import agent_pb2 as pb
from hostagent.config import load_config
from hostagent.job_connections import ANY_USER, JobEnds, SentBytes
from hostagent.sock_diag import OpenSocket, open_sockets
from polyrhythm_files import ConfigError

TCP = socket.IPPROTO_TCP
ENDS = JobEnds("ring", "10.0.0.1", frozenset({"10.0.0.2", "10.0.0.3"}), 7)
RING = """
import socket, sys, time
out = socket.socket()
out.bind((sys.argv[1], 0))
out.connect((sys.argv[2], int(sys.argv[3])))
period, up = 0.3, 0.1
begun = time.monotonic()
while True:
    part = (time.monotonic() - begun) % period
    if part < up:
        out.sendall(bytes(20_000))
        time.sleep(0.002)
    else:
        time.sleep(period - part)
"""


def one(
    sent: int,
    *,
    port: int = 1000,
    inode: int = 1,
    peer: str = "10.0.0.2",
    user: int = 7,
    local: str = "10.0.0.1",
) -> OpenSocket:
    return OpenSocket(TCP, (local, port), (peer, 2000), user, inode, sent, 0)


def test_only_sockets_between_the_jobs_hosts_and_of_its_user_are_its_own() -> None:
    its = one(5)
    others = (
        one(5, peer="10.0.0.9"), one(5, user=8), one(5, local="10.0.0.9"),
        OpenSocket(socket.IPPROTO_UDP, its.local, its.peer, 7, 1, 5, 0),
    )  # fmt: skip
    assert list(ENDS.of([its, *others])) == [its]
    anyone = JobEnds("ring", "10.0.0.1", ENDS.peers, ANY_USER)
    assert list(anyone.of([its, *others])) == [its, others[1]]


def test_one_end_of_a_connection_reports_it() -> None:
    for low, high in (("10.0.0.2", "10.0.0.10"), ("fd00::2", "fd00::10")):
        ends = (
            OpenSocket(TCP, (low, 1), (high, 2), 0, 1, 0, 0),
            OpenSocket(TCP, (high, 2), (low, 1), 0, 2, 0, 0),
        )
        assert [ENDS.reports(end) for end in ends] == [True, False]


@given(st.lists(st.dictionaries(st.integers(1, 3), st.integers(0, 9)), min_size=1))
def test_bytes_never_fall_and_count_each_byte_that_was_seen(growths: list[dict[int, int]]) -> None:
    """At each reading some sockets are open and have sent so many bytes more; those that are not have closed."""
    counter, sent, inode, total = SentBytes(ENDS), dict[int, int](), dict[int, int](), 0
    counter.of([])
    read = [0]
    for number, growth in enumerate(growths):
        for port in set(sent) - set(growth):
            del sent[port], inode[port]
        for port, size in growth.items():
            # A port may be taken again at once, by another socket that counts from 0.
            inode.setdefault(port, 10 * number + port)
            sent[port] = sent.get(port, 0) + size
            total += size
        read.append(counter.of([one(size, port=port, inode=inode[port]) for port, size in sent.items()])[""])
    assert read[-1] == total
    assert all(a <= b for a, b in pairwise(read))


def test_the_kernel_tells_bytes_and_class_of_a_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, closing(socket.socket()) as made:
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 26 << 2)
        made.connect(listener.getsockname())
        with listener.accept()[0] as other:
            made.sendall(bytes(5000))
            while len(other.recv(5000, socket.MSG_WAITALL)) < 5000:
                pass
            ends = JobEnds("a", "127.0.0.1", frozenset({"127.0.0.1"}), os.getuid())

            def found() -> list[OpenSocket]:
                return [s for s in ends.of(open_sockets(TCP)) if s.local == made.getsockname()]

            # The kernel counts the first packet, which opens the connection, as a byte.
            eventually(lambda: found()[0].bytes_sent in (5000, 5001), "the acknowledgement")
            assert found()[0].dscp == 26


def test_a_silent_job_is_found_measured_and_its_connections_are_reported(
    start_agent: Callable[..., AgentProcess], tmp_path: Path, addresses: dict[str, str], hub: tuple[Hub, str]
) -> None:
    flows = {"ring/h1>h2": "h1>h2", "ring/h2>h1": "h2>h1"}

    def answer(message: pb.AgentMessage) -> list[pb.ControllerMessage]:
        if message.WhichOneof("body") != "job_join":
            return welcome_and_pin(message)
        told = []
        for flow, ends in flows.items():
            src, dst = (addresses[host] for host in ends.split(">"))
            told.append(
                pb.ControllerMessage(
                    connection_path=pb.ConnectionPath(
                        flow=flow, job="ring", src_ip=src, dst_ip=dst, protocol=TCP, dscp=26
                    )
                )
            )
        return [*welcome_and_pin(message), *told]

    hub[0].answer = answer
    more = (
        f'[sockets]\nmap = "{tmp_path / "sockets"}"\n[[sources.jobs]]\nname = "ring"\nhosts = ["h1", "h2"]\n'
        f"connections = true\nuser = {os.getuid()}\n"
    )
    text = config_text(
        "h1", addresses["h1"], controller=hub[1], addresses=addresses, agent='socket = ""',
        nic='driver = "sockets"', more=more,
    )  # fmt: skip
    with socket.create_server((addresses["h2"], 0)) as listener:
        argv = [sys.executable, "-I", "-S", "-c", RING, addresses["h1"], addresses["h2"]]
        ring = subprocess.Popen([*argv, str(listener.getsockname()[1])])
        try:
            accepted, (_, own) = listener.accept()
            draining = subprocess.Popen(["sh", "-c", "cat >/dev/null"], stdin=accepted)
            try:
                start_agent(text)
                join = eventually(lambda: hub[0].bodies("job_join"), "the job joins")[0]
                assert (join.job, list(join.hosts), join.rank) == ("ring", ["h1", "h2"], 0)
                # A busy machine lengthens it.
                assert join.period_ns >= 250 * MS
                ports = own, listener.getsockname()[1]
                wanted = {("ring/h1>h2", *ports, 0), ("ring/h2>h1", *reversed(ports), 0)}

                def said(closed: bool) -> bool:
                    every = [c for body in hub[0].bodies("connections") for c in body.connections]
                    found = {
                        (c.flow, c.source_port, c.dest_port, c.sent_dscp) for c in every if c.closed == closed
                    }
                    return found == wanted

                eventually(lambda: said(closed=False), "a report of both directions")
                eventually(lambda: len(hub[0].bodies("iteration")) >= 3, "iterations are reported")
            finally:
                ring.kill()
                ring.wait()
                accepted.close()
                draining.wait()
            eventually(lambda: said(closed=True), "a report that it has closed")
        finally:
            ring.kill()
            ring.wait()


@pytest.mark.parametrize(
    ("job", "sockets", "complaint"),
    [
        ('connections = true\nrecord = "x"', True, "connections: true with a record; legal: one of both"),
        ("user = 0", True, "user: means nothing without connections"),
        ("connections = true", False, "connections: true without sockets.map; legal: with it"),
        ("connections = true\nuser = -2", True, "user"),
    ],
)
def test_keys_that_do_not_fit_are_refused(job: str, sockets: bool, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    more = '[sockets]\nmap = "/run/x"\n' if sockets else ""
    file.write_text(
        f'[agent]\nhost = "h1"\nip = "10.0.0.1"\n{more}[[sources.jobs]]\nname = "a"\nhosts = ["h1", "h2"]\n{job}\n'
    )
    with pytest.raises(ConfigError, match=complaint):
        load_config(file)
