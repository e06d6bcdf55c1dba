# SPDX-License-Identifier: Apache-2.0
"""The NIC over UDP sockets: a message to itself by real datagrams, over either address family."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from hostagent.loop import AgentLoop
from hostagent.nic.dcqcn import DcqcnProfile
from hostagent.nic.udp import NicError, UdpNic

RATE = 100_000_000
PATIENCE_NS = 60_000_000_000


@pytest.fixture
def loop() -> Iterator[AgentLoop]:
    made = AgentLoop()
    yield made
    made.close()


def nic_at(address: str, loop: AgentLoop) -> UdpNic:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        pytest.skip(f"{address}: {error}")
    return UdpNic("h1", address, RATE, loop=loop, dcqcn=DcqcnProfile.scaled(RATE, 1082))


@pytest.mark.parametrize("address", ["127.0.0.77", "::1"])
def test_a_message_arrives_by_real_datagrams(address: str, loop: AgentLoop) -> None:
    """Address, DSCP and source port are taken from what the kernel says of a datagram, so the ICRC holds."""
    nic = nic_at(address, loop)
    try:
        queue = nic.listen("job/a>b", address, lambda queue, size: None)
        qp = nic.open_qp("job/a>b", address, 0xC123, 26)

        def again() -> None:
            qp.repin(0xC456, 30)
            qp.post(5_000, loop.stop)

        qp.post(20_000, again)
        loop.call_at(loop.present() + PATIENCE_NS, loop.stop)
        loop.run()
        assert (queue.bytes, nic.bad_frames, nic.stray_frames, nic.unsent) == (25_000, 0, 0, 0)
        assert qp.bytes_acked == 25_000
    finally:
        nic.close()


def test_a_source_port_in_use_sends_the_flow_all_the_same(loop: AgentLoop) -> None:
    """The kernel chooses another port, with which the ICRC is computed."""
    nic = nic_at("::1", loop)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as taken:
        taken.bind(("::1", 0xC789))
        try:
            queue = nic.listen("job/a>b", "::1", lambda queue, size: None)
            nic.open_qp("job/a>b", "::1", 0xC789, 26).post(3_000, loop.stop)
            loop.call_at(loop.present() + PATIENCE_NS, loop.stop)
            loop.run()
            assert (queue.bytes, nic.bad_frames) == (3_000, 0)
        finally:
            nic.close()


def test_an_address_of_another_host_is_named(loop: AgentLoop) -> None:
    nic_at("::1", loop).close()
    with pytest.raises(NicError, match=r"2001:db8::1:4791: no interface of this host has the address"):
        UdpNic("h1", "2001:db8::1", RATE, loop=loop, dcqcn=DcqcnProfile.scaled(RATE, 1082))
