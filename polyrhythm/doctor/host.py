# SPDX-License-Identifier: Apache-2.0
"""Checks of this host's NIC and network: offloads, MTU, DSCP on the way, and routes."""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path

from controller.model.traffic import TRAFFIC_CLASSES
from hostagent.config import Config
from polyrhythm.doctor.finding import Deployment, ProblemError, UncheckedError, agent_of, listed
from topo.addresses import is_ipv6, unpacked

# linux/sockios.h and linux/ethtool.h.
_SIOCETHTOOL, _SIOCGIFADDR, _SIOCGIFMTU = 0x8946, 0x8915, 0x8921
_OFFLOADS = {"rx": 0x14, "tx": 0x16, "tso": 0x1E, "gso": 0x23, "gro": 0x2B}
# linux/in.h: options that Python's socket module does not name.
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO, _IP_PMTUDISC_PROBE, _IP_MTU = 10, 2, 3, 14
_IPV6_MTU_DISCOVER = 23

ROCE_MTU = 4200
"""The interface MTU that RoCE needs for packets of 4,096 bytes, the largest (NVIDIA's recommendation)."""
RETH_BYTES = 16
"""Of the RDMA extended header, which the first packet of a write carries (IBTA 9.3.3)."""
# A port that nobody listens on, so that the host answers "port unreachable": the first of traceroute.
CLOSED_PORT = 33434
# No traffic class has it (controller/model/traffic.py), so ports that guard the classes let it pass. Chosen.
_UNCLASSED_DSCP = 12
_PROBED_DSCPS = (TRAFFIC_CLASSES.levels[0], TRAFFIC_CLASSES.levels[-1], _UNCLASSED_DSCP)
_GUARDED = {TRAFFIC_CLASSES.mice, _UNCLASSED_DSCP}
# Chosen: how long a host may take to answer, and how many hosts are probed. Linux limits such answers.
ANSWER_S = 1.0
MOST_PROBED = 16


def on_each_nic(check: Callable[[Deployment], str]) -> Callable[[Deployment], str]:
    """The check of every NIC of this host. On a host with several the answer names each of them."""

    @wraps(check)
    def checked(deployment: Deployment) -> str:
        config = deployment.agent
        if config is None or not config.rails:
            return check(deployment)
        each = config.of_each_nic()
        return "; ".join(f"{c.agent.host}: {check(replace(deployment, agent=c))}" for c in each)

    return checked


@on_each_nic
def check_offloads(deployment: Deployment) -> str:
    """NIC offloads: a program that reads whole frames must not get merged ones, or ones without checksum."""
    config, name = agent_of(deployment), _interface(deployment)
    if config.nic.driver != "udp":
        return f"nic.driver is {config.nic.driver}: RDMA does not pass the offloads of {name}"
    found = [offload for offload, command in _OFFLOADS.items() if _ethtool(name, command)]
    if found:
        flags = " ".join(f"{offload} off" for offload in found)
        raise ProblemError(
            f"{name} has offloads on ({', '.join(found)}), so packets of the udp driver reach software "
            "switches merged, or without a checksum",
            f"ethtool -K {name} {flags}",
        )
    return f"{name} has rx, tx, tso, gso and gro off"


@on_each_nic
def check_mtu(deployment: Deployment) -> str:
    """The MTU of the interface, and of the paths to the other hosts."""
    config, name = agent_of(deployment), _interface(deployment)
    packed = struct.pack("16s16x", name.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        (mtu,) = struct.unpack_from("i", fcntl.ioctl(probe, _SIOCGIFMTU, packed), 16)
    # Headers of IP, UDP, BTH and RETH, and the check value.
    needed = (
        config.nic.mtu + _ip_bytes(config.agent.ip) + 8 + 12 + RETH_BYTES + 4
        if config.nic.driver == "udp"
        else ROCE_MTU
    )
    if mtu < needed:
        raise ProblemError(
            f"{name} has an MTU of {mtu}; packets of {needed} bytes do not fit",
            f"ip link set {name} mtu {needed}, and on every port of the fabric"
            + (", or a smaller nic.mtu" if config.nic.driver == "udp" else ""),
        )
    small = [
        f"{host} ({address}): {why}"
        for host, address in _others(deployment)
        if (why := _too_small(config.agent.ip, address, needed))
    ]
    if small:
        raise ProblemError(
            f"packets of {needed} bytes do not arrive: {listed(small)}",
            f"set the MTU of every port on the way to {needed} or more",
        )
    return f"{name} has an MTU of {mtu}, and packets of {needed} bytes pass"


def check_route(deployment: Deployment) -> str:
    """A route to every other host, that leaves from one of this host's RoCE addresses."""
    own = list(agent_of(deployment).nics.values())
    wrong, count = [], 0
    for host, address in _others(deployment, most=None):
        count += 1
        with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((address, CLOSED_PORT))
            except OSError as error:
                wrong.append(f"{host} ({address}): {error.strerror}")
                continue
            source = probe.getsockname()[0]
        if source not in own:
            wrong.append(f"{host} ({address}): packets leave from {source}, not from {' or '.join(own)}")
    if wrong:
        command = "ip -6 route" if is_ipv6(own[0]) else "ip route"
        raise ProblemError(
            f"{len(wrong)} of {count} hosts have no usable route: {listed(wrong)}",
            f"{command} add NETWORK dev {deployment.interface or 'INTERFACE'} src {' or '.join(own)}",
        )
    if not count:
        raise UncheckedError("agent.toml names no other host: section [hosts] or agent.hosts_file")
    return f"each of {count} hosts has a route from {' or '.join(own)}"


@on_each_nic
def check_dscp(deployment: Deployment) -> str:
    """Whether the DSCPs of the priority levels arrive at the other hosts as they were sent.

    A host that gets a datagram for a closed port quotes its IP header, with the DSCP as it arrived. Where the
    leaf guards its ports, datagrams under a level's DSCP belong to no planned flow and go on as mice; then a
    DSCP that the guard leaves alone must arrive.
    """
    config = agent_of(deployment)
    others = list(_others(deployment))
    if not others:
        raise UncheckedError("agent.toml names no other host: section [hosts] or agent.hosts_file")
    if is_ipv6(config.agent.ip):
        raise UncheckedError("agent.ip is an IPv6 address; DSCPs are probed over IPv4 only")
    try:
        listener = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    except PermissionError:
        raise UncheckedError("it needs CAP_NET_RAW (root), to read the answers of other hosts") from None
    changed: list[str] = []
    silent: list[str] = []
    guarded = False
    with listener:
        for host, address in others:
            arrived: dict[int, int] = {}
            for sent in _PROBED_DSCPS:
                # Linux answers one host once a second, after a burst of six.
                found = _arrived_dscp(listener, config.agent.ip, address, sent, tries=1 if silent else 2)
                if found is None:
                    silent.append(host)
                    break
                arrived[sent] = found
            else:
                if arrived[_UNCLASSED_DSCP] == _UNCLASSED_DSCP and set(arrived.values()) == _GUARDED:
                    guarded = True
                    continue
                changed += [
                    f"DSCP {dscp} arrives at {host} as {found}"
                    for dscp, found in arrived.items()
                    if dscp != found
                ]
    if changed:
        raise ProblemError(
            f"something on the way rewrites DSCPs: {listed(changed)}",
            "let every port on the way trust DSCP: on a switch its QoS map, on an NVIDIA NIC `mlnx_qos -i IF "
            "--trust dscp`",
        )
    if len(silent) == len(others):
        raise UncheckedError(f"no host answers datagrams for a closed port: {', '.join(silent[:5])}")
    return (
        f"DSCPs arrive unchanged at {len(others) - len(silent)} of {len(others)} hosts"
        + ("; the leaf sends these datagrams on as mice, because no plan has them" if guarded else "")
        + (f"; no answer from {', '.join(silent[:5])}" if silent else "")
    )


def _others(deployment: Deployment, most: int | None = MOST_PROBED) -> Iterator[tuple[str, str]]:
    config = agent_of(deployment)
    names = deployment.addresses or {}
    if deployment.fabric is not None:
        names = {h.name: h.ip for h in deployment.fabric.topology.hosts}
    others = [(name, address) for name, address in names.items() if address not in config.nics.values()]
    yield from others[:most]


def _interface(deployment: Deployment) -> str:
    """The RoCE interface: as told, or the one with the agent's address. Raises UncheckedError."""
    config = agent_of(deployment)
    name = deployment.interface or config.nic.interface or _interface_of(config)
    if name not in _interfaces():
        raise ProblemError(f"there is no interface {name}", f"one of {', '.join(_interfaces())}")
    return name


def _interface_of(config: Config) -> str:
    found = _interfaces()
    for name, address in _ipv6_interfaces() if is_ipv6(config.agent.ip) else found.items():
        if address == config.agent.ip:
            return name
    raise ProblemError(
        f"no interface has agent.ip, {config.agent.ip}",
        f"ip address add {config.agent.ip}/PREFIX dev INTERFACE; present: "
        + ", ".join(f"{name} {address}" for name, address in found.items()),
    )


def _interfaces() -> Mapping[str, str]:
    """The interfaces of this host with their first address."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                found[name] = "without address"
            else:
                found[name] = socket.inet_ntoa(answer[20:24])
    return found


def _ipv6_interfaces() -> Iterator[tuple[str, str]]:
    """The interfaces of this host with each of their IPv6 addresses."""
    # Of the thread: /proc/net is that of the first thread, which may be in another network namespace.
    table = Path("/proc/thread-self/net/if_inet6")
    for line in table.read_text(encoding="ascii").splitlines() if table.exists() else ():
        digits, *_, name = line.split()
        yield name, unpacked(bytes.fromhex(digits))


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if is_ipv6(address) else socket.AF_INET


def _ip_bytes(address: str) -> int:
    """Bytes of the IP header of packets to this address."""
    return 40 if is_ipv6(address) else 20


def _ethtool(name: str, command: int) -> bool:
    """Whether an offload of an interface is on. One that the driver does not know is off."""
    value = array.array("I", [command, 0])
    request = struct.pack("16sP", name.encode(), value.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            fcntl.ioctl(probe, _SIOCETHTOOL, request)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return False
            raise UncheckedError(f"{name}: {error.strerror}") from None
    return bool(value[1])


def _too_small(source: str, address: str, size: int) -> str:
    """Why packets of `size` bytes do not arrive at an address although small ones do; empty: they do."""
    if not _answers(source, address, 64):
        # A host that answers nothing says nothing about the MTU.
        return ""
    try:
        if _answers(source, address, size):
            return ""
    except OSError as error:
        if error.errno != errno.EMSGSIZE:
            raise
        return "a router on the way has a smaller MTU"
    return "small packets arrive, large ones are lost"


def _answers(source: str, address: str, size: int) -> bool:
    """Whether a host answers "port unreachable" to a packet of `size` bytes that may not be fragmented."""
    with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
        if is_ipv6(address):
            probe.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _IP_PMTUDISC_DO)
        else:
            probe.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
        probe.settimeout(ANSWER_S)
        try:
            probe.bind((source, 0))
            probe.connect((address, CLOSED_PORT))
            for _ in range(2):  # The first may only learn the path's MTU, or the neighbour's address.
                probe.send(bytes(size - _ip_bytes(address) - 8))
                try:
                    probe.recv(1)
                except ConnectionRefusedError:
                    return True
                except TimeoutError:
                    continue
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise
            return False
    return False


def _arrived_dscp(listener: socket.socket, source: str, address: str, dscp: int, *, tries: int) -> int | None:
    """The DSCP with which one of `tries` datagrams arrives at an address; None: no answer."""
    found = None
    for _ in range(tries):
        if found is None:
            found = _answered_dscp(listener, source, address, dscp)
    return found


def _answered_dscp(listener: socket.socket, source: str, address: str, dscp: int) -> int | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
        try:
            probe.bind((source, 0))
            port = probe.getsockname()[1]
            probe.sendto(bytes(16), (address, CLOSED_PORT))
        except OSError:
            return None
        deadline = time.monotonic() + ANSWER_S
        while (left_s := deadline - time.monotonic()) > 0:
            listener.settimeout(left_s)
            try:
                packet = listener.recv(2048)
            except TimeoutError:
                return None
            quoted = packet[(packet[0] & 15) * 4 + 8 :]
            if len(quoted) < 28 or packet[(packet[0] & 15) * 4 : (packet[0] & 15) * 4 + 2] != b"\x03\x03":
                continue
            inner = (quoted[0] & 15) * 4
            if quoted[inner : inner + 4] == struct.pack(">HH", port, CLOSED_PORT):
                return quoted[1] >> 2
    return None
