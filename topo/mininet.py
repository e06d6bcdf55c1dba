# SPDX-License-Identifier: Apache-2.0
"""A fabric of network namespaces and veth pairs, built by Mininet. Each node is a namespace with processes.

Hosts and switches have network namespaces of their own, so the machine's network stays unchanged and
interface names cannot clash. When the process that built the network ends, for any reason, the kernel ends
the processes that it started, and the namespaces disappear.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from topo.addresses import host_prefix, is_ipv6
from topo.graph import Topology

Result = TypeVar("Result")
TOOLS = {
    "mnexec": "mininet",
    "ip": "iproute2",
    "ethtool": "ethtool",
    "setpriv": "util-linux",
    "ping": "iputils-ping",
}
"""The programs that are needed, each with its Debian package."""
HOST_INTERFACE = "eth0"
GATEWAY = "169.254.0.1"
GATEWAY_IPV6 = "fe80::1"
"""The next hops of every host. Their static neighbour entries have the leaf's MAC, so hosts need no ARP, no
neighbour discovery and no subnet."""
_QUIET_IPV6 = {
    "disable_ipv6": 0,
    "accept_ra": 0,
    "router_solicitations": 0,
    "addr_gen_mode": 1,
    "accept_dad": 0,
}
"""IPv6 with no more than the addresses that are given (Linux, ip-sysctl)."""
_HEADERS = 100
_CLONE_NEWNET = 0x40000000
_ETHERNET_MTU = 1500
_OFFLOADS = ("rx", "tx", "sg", "tso", "gso", "gro")


class MininetError(RuntimeError):
    """The network cannot be built. The message is one line and says what is missing or what failed."""


def check_host() -> None:
    """Check that this machine and this user can build such a network.

    Raises:
        MininetError: they cannot; the message says what is missing.
    """
    if os.geteuid() != 0:
        raise MininetError("network namespaces need root; run it as root, or leave out --fabric mininet")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        packages = " ".join(dict.fromkeys(TOOLS[tool] for tool in missing))
        raise MininetError(f"not on PATH: {', '.join(missing)}; on Debian: apt-get install {packages}")
    try:
        import mininet.net  # noqa: F401
    except ImportError:
        raise MininetError("Mininet is not installed; pip install 'polyrhythm[emulation]'") from None


def port_interface(port: int) -> str:
    """The name of a switch's interface, in the switch's namespace."""
    return f"p{port}"


def port_of(interface: str) -> int | None:
    """The port of a switch's interface. None if the name is not that of a port."""
    number = interface.removeprefix("p")
    return int(number) if interface.startswith("p") and number.isdecimal() else None


class MininetFabric:
    """The running network of a topology. `net` is the Mininet network, for Mininet's command line.

    `payload_bytes` is the largest UDP payload that the links must carry.

    Raises:
        MininetError: the network cannot be built.
    """

    def __init__(self, topology: Topology, payload_bytes: int = 1024) -> None:
        check_host()
        from mininet.link import Link
        from mininet.log import setLogLevel
        from mininet.net import Mininet
        from mininet.node import Host, Switch

        setLogLevel("warning")
        # Mininet's first network raises limits of the whole machine. A fabric of this size needs no such
        # limits.
        Mininet.inited = True
        self.topology = topology
        self._processes: list[subprocess.Popen[Any]] = []
        self.net = Mininet(controller=None, build=False, autoSetMacs=False)
        try:
            for host in topology.hosts:
                self._quiet(self.net.addHost(host.name, cls=Host, ip=None))
            for switch in topology.switches:
                # P4Runtime uses a UNIX socket, which all namespaces share: no management network is needed.
                self._quiet(self.net.addSwitch(switch.name, cls=Switch, inNamespace=True, dpid="1"))
            for host in topology.hosts:
                self._cable(Link, host.name, HOST_INTERFACE, host.leaf, port_interface(host.leaf_port))
            for link in topology.links:
                self._cable(Link, link.a, port_interface(link.a_port), link.b, port_interface(link.b_port))
            mtu = max(_ETHERNET_MTU, payload_bytes + _HEADERS)
            for host in topology.hosts:
                self._configure_host(host.name, mtu)
            for name, ports in topology.ports.items():
                interfaces = [port_interface(port) for port in ports]
                self._batch(name, [f"link set dev {i} mtu {mtu} up" for i in ("lo", *interfaces)])
                self._no_offloads(name, interfaces)
        except BaseException:
            self.stop()
            raise

    def spawn(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a process in a node's namespace. The kernel kills it when this process ends. `options` are
        those of Popen.

        Call it from the main thread: the kernel kills the process when the thread that started it ends.
        """
        inside = ["mnexec", "-a", str(self.pid(node)), "setpriv", "--pdeathsig", "KILL", "--", *argv]
        process: subprocess.Popen[Any] = subprocess.Popen(inside, **options)
        self._processes.append(process)
        return process

    def run(self, node: str, argv: Sequence[str], text: str = "") -> str:
        """Run a command in a node's namespace with the input `text`, wait for its end, and return its output.

        Raises:
            MininetError: the command failed; the message has its last line.
        """
        done = subprocess.run(
            ["mnexec", "-a", str(self.pid(node)), *argv],
            input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
            raise MininetError(f"{node}: {' '.join(argv)}: {said}")
        return done.stdout

    def pid(self, node: str) -> int:
        """A process that lives in a node's namespace for as long as the network does."""
        return int(self._node(node).pid)

    def inside(self, node: str, call: Callable[[], Result]) -> Result:
        """What `call` returns in a node's namespace. A socket that it opens stays in that namespace.

        Raises:
            MininetError: it raises OSError; a socket cannot be opened.
        """
        # A thread enters a namespace, not a process. With its own thread this one stays where it is.
        with ThreadPoolExecutor(1) as thread:
            try:
                return thread.submit(_enter_and, self.pid(node), call).result()
            except OSError as error:
                raise MininetError(f"{node}: no socket in its namespace: {error.strerror}") from None

    def stop(self) -> None:
        """End every process that `spawn` started, then remove the namespaces and cables."""
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        for process in self._processes:
            try:
                process.wait(timeout=3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        self.net.stop()

    def _node(self, name: str) -> Any:
        return self.net.nameToNode[name]

    def _quiet(self, node: Any) -> None:
        """Turn IPv6 off, or for a host with an IPv6 address only what it sends by itself: its router
        solicitations, link-local addresses and their checks would be traffic of no job."""
        host = self.topology.host.get(node.name)
        used = host is not None and any(map(is_ipv6, (host.ip, *host.other_ips)))
        settings = _QUIET_IPV6 if used else {"disable_ipv6": 1}
        self.run(
            node.name,
            [
                *("sysctl", "-qw"),
                *(f"net.ipv6.conf.{w}.{k}={v}" for w in ("all", "default") for k, v in settings.items()),
            ],
        )

    def _cable(self, kind: Any, a: str, a_interface: str, b: str, b_interface: str) -> None:
        self.net.addLink(self._node(a), self._node(b), cls=kind, intfName1=a_interface, intfName2=b_interface)

    def _configure_host(self, name: str, mtu: int) -> None:
        host = self.topology.host[name]
        leaf = self.topology.switch[host.leaf]
        device = HOST_INTERFACE
        self._batch(
            name,
            [
                "link set dev lo up",
                f"link set dev {device} address {host.mac} mtu {mtu} up",
                *(
                    line
                    for ip in (host.ip, *host.other_ips)
                    for gateway in (GATEWAY_IPV6 if is_ipv6(ip) else GATEWAY,)
                    for line in (
                        f"addr add {host_prefix(ip)} dev {device}{' nodad' if is_ipv6(ip) else ''}",
                        f"neigh replace {gateway} lladdr {leaf.mac} dev {device} nud permanent",
                        f"route replace default via {gateway} dev {device} onlink",
                    )
                ),
            ],
        )
        self._no_offloads(name, [device])
        # Mininet keeps a copy of the address, which `pingall` uses.
        self._node(name).intf(device).ip = host.ip

    def _batch(self, node: str, commands: Sequence[str]) -> None:
        self.run(node, ["ip", "-batch", "-"], "\n".join(commands) + "\n")

    def _no_offloads(self, node: str, interfaces: Sequence[str]) -> None:
        """Turn offloads off. A switch reads whole frames from the wire, so the kernel must compute checksums
        itself: a veth pair has no NIC that could."""
        flags = [word for offload in _OFFLOADS for word in (offload, "off")]
        for interface in interfaces:
            self.run(node, ["ethtool", "-K", interface, *flags])


def _enter_and(pid: int, call: Callable[[], Result]) -> Result:
    with Path(f"/proc/{pid}/ns/net").open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    return call()


def port_interfaces(topology: Topology) -> Mapping[str, Mapping[int, str]]:
    """The interface name of each port, by switch."""
    return {name: {port: port_interface(port) for port in ports} for name, ports in topology.ports.items()}
