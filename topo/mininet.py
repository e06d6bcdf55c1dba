# SPDX-License-Identifier: Apache-2.0
"""A fabric as network namespaces and veth pairs, by Mininet: each node a namespace, processes started in it.

Everything lives in namespaces of its own, switches too, so nothing of the machine's network is touched and
names cannot clash. When the process that built the network ends in whatever way, the kernel ends what it
started and the namespaces go with it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from topo.graph import Topology

TOOLS = {
    "mnexec": "mininet",
    "ip": "iproute2",
    "ethtool": "ethtool",
    "setpriv": "util-linux",
    "ping": "iputils-ping",
}
"""Programs that are needed, and Debian's packages of them."""
HOST_INTERFACE = "eth0"
GATEWAY = "169.254.0.1"
"""Every host's next hop, whose neighbour entry is its leaf: hosts need no ARP and no subnet."""
_HEADERS = 100
_CLONE_NEWNET = 0x40000000
_ETHERNET_MTU = 1500
_OFFLOADS = ("rx", "tx", "sg", "tso", "gso", "gro")


class MininetError(RuntimeError):
    """The network cannot be built; one line says what is missing or went wrong."""


def check_host() -> None:
    """Whether this machine and user can have such a network. Raises MininetError, in one line."""
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
    """The port of a switch's interface; None for another one."""
    number = interface.removeprefix("p")
    return int(number) if interface.startswith("p") and number.isdecimal() else None


class MininetFabric:
    """The network of a topology, up and wired; `net` is the Mininet network, for its command line.

    `payload_bytes` is the largest UDP payload that is to pass. Raises MininetError.
    """

    def __init__(self, topology: Topology, payload_bytes: int = 1024) -> None:
        check_host()
        from mininet.link import Link
        from mininet.log import setLogLevel
        from mininet.net import Mininet
        from mininet.node import Host, Switch

        setLogLevel("warning")
        # What Mininet does once is to raise limits of the whole machine: a fabric of this size needs none.
        Mininet.inited = True
        self.topology = topology
        self._processes: list[subprocess.Popen[Any]] = []
        self.net = Mininet(controller=None, build=False, autoSetMacs=False)
        try:
            for host in topology.hosts:
                self._quiet(self.net.addHost(host.name, cls=Host, ip=None))
            for switch in topology.switches:
                # P4Runtime by a UNIX socket, which namespaces share: no management network is needed.
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
        """Start a process in a node's namespace; it dies with this process. `options` are Popen's.

        Call it from the main thread: the kernel counts the death of the thread that started a process.
        """
        inside = ["mnexec", "-a", str(self._node(node).pid), "setpriv", "--pdeathsig", "KILL", "--", *argv]
        process: subprocess.Popen[Any] = subprocess.Popen(inside, **options)
        self._processes.append(process)
        return process

    def run(self, node: str, argv: Sequence[str], text: str = "") -> str:
        """Run a command in a node's namespace to its end, `text` its input; what it prints.

        Raises MininetError if it fails, with its last line.
        """
        done = subprocess.run(
            ["mnexec", "-a", str(self._node(node).pid), *argv],
            input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
            raise MininetError(f"{node}: {' '.join(argv)}: {said}")
        return done.stdout

    def inside(self, node: str, make: Callable[[], socket.socket]) -> socket.socket:
        """A socket that `make` opens in a node's namespace, where it stays. Raises MininetError."""
        # A namespace belongs to a thread: one of its own does not lead this one astray.
        with ThreadPoolExecutor(1) as thread:
            try:
                return thread.submit(_enter_and, self._node(node).pid, make).result()
            except OSError as error:
                raise MininetError(f"{node}: no socket in its namespace: {error.strerror}") from None

    def stop(self) -> None:
        """End every process that was started here, then the namespaces and cables."""
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
        """No IPv6: its router solicitations would be traffic of nobody's."""
        self.run(
            node.name, ["sysctl", "-qw", *(f"net.ipv6.conf.{w}.disable_ipv6=1" for w in ("all", "default"))]
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
                f"addr add {host.ip}/32 dev {device}",
                f"neigh replace {GATEWAY} lladdr {leaf.mac} dev {device} nud permanent",
                f"route add default via {GATEWAY} dev {device} onlink",
            ],
        )
        self._no_offloads(name, [device])
        # Mininet's own idea of the address, for `pingall`.
        self._node(name).intf(device).ip = host.ip

    def _batch(self, node: str, commands: Sequence[str]) -> None:
        self.run(node, ["ip", "-batch", "-"], "\n".join(commands) + "\n")

    def _no_offloads(self, node: str, interfaces: Sequence[str]) -> None:
        """A switch reads whole frames from the wire: the kernel must not leave checksums to a NIC that is
        not there."""
        flags = [word for offload in _OFFLOADS for word in (offload, "off")]
        for interface in interfaces:
            self.run(node, ["ethtool", "-K", interface, *flags])


def _enter_and(pid: int, make: Callable[[], socket.socket]) -> socket.socket:
    with Path(f"/proc/{pid}/ns/net").open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    return make()


def port_interfaces(topology: Topology) -> Mapping[str, Mapping[int, str]]:
    """For each switch, its ports' interfaces."""
    return {name: {port: port_interface(port) for port in ports} for name, ports in topology.ports.items()}
