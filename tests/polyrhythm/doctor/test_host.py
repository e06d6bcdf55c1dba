# SPDX-License-Identifier: Apache-2.0
"""The checks of a host's network, each with the real fault: namespaces, veth, and a switch between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from namespace_rig import Pair, inside, pair_of_hosts

from controller.model.traffic import TRAFFIC_CLASSES
from hostagent.config import AgentSettings, Config, NicSettings
from polyrhythm.doctor import host
from polyrhythm.doctor.finding import Deployment, ProblemError, UncheckedError

AGENT = Config(agent=AgentSettings(host="h1", ip="10.77.0.1"), nic=NicSettings(driver="udp"))
HERE = Deployment(agent=AGENT, addresses={"h1": "10.77.0.1", "h2": "10.77.0.2"})
Check = Callable[[Deployment], str]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with pair_of_hosts() as made:
        yield made


def made(pair: Pair, check: Check, deployment: Deployment = HERE) -> str:
    return inside(pair.names[0], lambda: check(deployment))


def problem(pair: Pair, check: Check, deployment: Deployment = HERE) -> tuple[str, str]:
    with pytest.raises(ProblemError) as found:
        made(pair, check, deployment)
    return str(found.value), found.value.remedy


def test_a_host_without_a_fault(pair: Pair) -> None:
    assert made(pair, host.check_offloads) == "eth0 has rx, tx, tso, gso and gro off"
    assert made(pair, host.check_mtu) == "eth0 has an MTU of 9000, and packets of 1084 bytes pass"
    assert made(pair, host.check_route) == "each of 1 hosts has a route from 10.77.0.1"
    assert made(pair, host.check_dscp) == "DSCPs arrive unchanged at 1 of 1 hosts"


def test_offloads_that_are_on(pair: Pair) -> None:
    pair.offloads("on")
    try:
        what, remedy = problem(pair, host.check_offloads)
        assert "eth0 has offloads on (rx, tx, tso, gso, gro)" in what
        rdma = replace(HERE, agent=Config(agent=AGENT.agent, nic=NicSettings(driver="shim")))
        assert "RDMA does not pass" in made(pair, host.check_offloads, rdma)
        # What the remedy says is what helps.
        pair.run(*remedy.split())
        assert made(pair, host.check_offloads)
    finally:
        pair.offloads("off")


def test_an_mtu_that_is_too_small_on_the_interface(pair: Pair) -> None:
    pair.run("ip", "link", "set", "eth0", "mtu", "1000")
    try:
        what, remedy = problem(pair, host.check_mtu)
        assert what == "eth0 has an MTU of 1000; packets of 1084 bytes do not fit"
        assert remedy.startswith("ip link set eth0 mtu 1084")
    finally:
        pair.run("ip", "link", "set", "eth0", "mtu", "9000")


def test_an_mtu_that_is_too_small_on_the_way(pair: Pair) -> None:
    pair.middle.largest = 1050
    try:
        what, remedy = problem(pair, host.check_mtu)
        assert what == (
            "packets of 1084 bytes do not arrive: h2 (10.77.0.2): small packets arrive, large ones are lost"
        )
        assert "1084" in remedy
    finally:
        pair.middle.largest = 65536


def test_a_switch_that_trusts_no_dscp(pair: Pair) -> None:
    pair.middle.cleared_dscps = range(64)
    try:
        what, remedy = problem(pair, host.check_dscp)
        assert "DSCP 30 arrives at h2 as 0; DSCP 10 arrives at h2 as 0" in what
        assert "trust DSCP" in remedy
    finally:
        pair.middle.cleared_dscps = ()


def test_a_leaf_that_guards_its_ports_is_no_fault(pair: Pair) -> None:
    pair.middle.cleared_dscps = TRAFFIC_CLASSES.levels
    try:
        words = "DSCPs arrive unchanged at 1 of 1 hosts; the leaf sends these datagrams on as mice, because no plan"
        assert made(pair, host.check_dscp) == f"{words} has them"
    finally:
        pair.middle.cleared_dscps = ()


def test_one_level_that_is_rewritten_is_a_fault(pair: Pair) -> None:
    pair.middle.cleared_dscps = TRAFFIC_CLASSES.levels[:1]
    try:
        what, _ = problem(pair, host.check_dscp)
        assert what == "something on the way rewrites DSCPs: DSCP 30 arrives at h2 as 0"
    finally:
        pair.middle.cleared_dscps = ()


def test_a_route_that_is_missing_or_leaves_from_another_address(pair: Pair) -> None:
    far = replace(HERE, addresses={"h1": "10.77.0.1", "h3": "10.78.0.3"})
    what, remedy = problem(pair, host.check_route, far)
    assert what == "1 of 1 hosts have no usable route: h3 (10.78.0.3): Network is unreachable"
    assert remedy == "ip route add NETWORK dev INTERFACE src 10.77.0.1"
    pair.run("ip", "address", "add", "10.79.0.1/24", "dev", "eth0")
    pair.run("ip", "route", "add", "10.78.0.0/24", "dev", "eth0", "src", "10.79.0.1")
    try:
        what, _ = problem(pair, host.check_route, far)
        assert "packets leave from 10.79.0.1, not from 10.77.0.1" in what
    finally:
        pair.run("ip", "address", "del", "10.79.0.1/24", "dev", "eth0")


def test_an_address_or_an_interface_that_is_not_there(pair: Pair) -> None:
    other = replace(HERE, agent=Config(agent=AgentSettings(host="h1", ip="10.77.0.9")))
    assert problem(pair, host.check_mtu, other)[0] == "no interface has agent.ip, 10.77.0.9"
    assert problem(pair, host.check_mtu, replace(HERE, interface="eth9"))[0] == "there is no interface eth9"


def test_what_cannot_be_checked_says_why(pair: Pair) -> None:
    alone = replace(HERE, addresses={"h1": "10.77.0.1"})
    for check in (host.check_route, host.check_dscp):
        with pytest.raises(UncheckedError, match="names no other host"):
            made(pair, check, alone)
    gone = replace(HERE, addresses={"h1": "10.77.0.1", "h9": "10.77.0.99"})
    with pytest.raises(UncheckedError, match=r"no host answers .*: h9"):
        made(pair, host.check_dscp, gone)
    for check in (host.check_offloads, host.check_mtu, host.check_dscp, host.check_route):
        with pytest.raises(UncheckedError, match="--agent FILE"):
            check(Deployment())


@pytest.mark.skipif(os.getuid() != 0, reason="root gives the privilege up")
def test_without_privilege_the_dscp_is_not_checked(pair: Pair) -> None:
    # A thread's user id is its own in Linux; 117 is setresuid on x86-64.
    import ctypes
    import platform

    if platform.machine() != "x86_64":
        pytest.skip("the number of the system call is that of x86-64")

    def unprivileged() -> str:
        assert ctypes.CDLL(None).syscall(117, 65534, 65534, 65534) == 0
        return host.check_dscp(HERE)

    with pytest.raises(UncheckedError, match="CAP_NET_RAW"):
        inside(pair.names[0], unprivileged)


def test_hosts_with_ipv6_addresses(pair: Pair) -> None:
    for index in (0, 1):
        pair.run("ip", "addr", "add", f"fd77::{index + 1}/64", "dev", "eth0", "nodad", host=index)
    six = Config(agent=AgentSettings(host="h1", ip="fd77::1"), nic=NicSettings(driver="udp"))
    here = Deployment(agent=six, addresses={"h1": "fd77::1", "h2": "fd77::2"})
    assert made(pair, host.check_mtu, here) == "eth0 has an MTU of 9000, and packets of 1104 bytes pass"
    assert made(pair, host.check_route, here) == "each of 1 hosts has a route from fd77::1"
    with pytest.raises(UncheckedError, match="over IPv4 only"):
        made(pair, host.check_dscp, here)
    far = replace(here, addresses={"h1": "fd77::1", "h3": "2001:db8::3"})
    assert problem(pair, host.check_route, far)[1].startswith("ip -6 route add")
    other = replace(here, agent=Config(agent=AgentSettings(host="h1", ip="fd77::9"), nic=six.nic))
    assert "no interface has agent.ip, fd77::9" in problem(pair, host.check_mtu, other)[0]
