# SPDX-License-Identifier: Apache-2.0
"""Compare the cables of the fabric's description with what switches know of their neighbours by LLDP.

The switches are asked by gNMI for OpenConfig's lists of interfaces (`ifindex` is the port) and of LLDP
neighbours (openconfig-lldp: `system-name`, `port-id`). P4Runtime knows no neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
from finsy.gnmipath import GNMIPath
from finsy.proto import gnmi, gnmi_grpc

from controller.southbound.fleet import Target
from polyrhythm.doctor.finding import Deployment, ProblemError, UncheckedError, fabric_of, listed
from polyrhythm.doctor.sessions import channel_to
from topo.graph import Topology

ANSWER_S = 10.0
"""Chosen: a switch lists some hundred interfaces in less."""
_IFINDEX = GNMIPath("interfaces/interface[name=*]/state/ifindex")
_NEIGHBOUR = GNMIPath("lldp/interfaces/interface[name=*]/neighbors/neighbor[id=*]/state")
_WANTED = ("system-name", "port-id")


@dataclass(frozen=True, slots=True)
class LldpView:
    """What one switch tells: the port of each interface, and (system name, port id) of each interface's
    neighbours."""

    ports: Mapping[str, int]
    neighbours: Mapping[str, tuple[tuple[str, str], ...]]


def check_cables(deployment: Deployment) -> str:
    """Every cable joins the ports that the fabric's description says, as LLDP sees it."""
    fabric = fabric_of(deployment)
    with ThreadPoolExecutor(16) as pool:
        found = dict(zip(fabric.targets, pool.map(_asked, fabric.targets.values()), strict=True))
    views = {name: view for name, view in found.items() if isinstance(view, LldpView)}
    if not any(view.neighbours for view in views.values()):
        why = next((view for view in found.values() if isinstance(view, str)), "no neighbours")
        raise UncheckedError(f"no switch tells its neighbours by gNMI and LLDP ({why})")
    wrong, seen = differences(fabric.topology, views)
    if wrong:
        raise ProblemError(
            f"{len(wrong)} cables are not as described: {listed(wrong)}",
            "plug the cable where the description says, or correct the description",
        )
    silent = len(found) - len([view for view in views.values() if view.neighbours])
    rest = f"; {silent} of {len(found)} switches do not tell their neighbours" if silent else ""
    return f"LLDP sees {seen} ends of cables as they are described{rest}"


def differences(topology: Topology, views: Mapping[str, LldpView]) -> tuple[list[str], int]:
    """What is not as described, a line each, and how many ends of cables are.

    A switch that tells no neighbours is not judged, nor a host that sends no LLDP. A host may send its
    machine's name or that of the NIC.
    """
    machine = {host.name: host.machine for host in topology.hosts}
    wrong: list[str] = []
    right = 0
    for switch, view in views.items():
        if switch not in topology.ports or not view.neighbours:
            continue
        of_port = {
            view.ports[name]: heard for name, heard in view.neighbours.items() if heard and name in view.ports
        }
        for port, peer in topology.ports[switch].items():
            expected = f"{peer.node}:{peer.port}" if peer.port else peer.node
            heard = of_port.pop(port, ())
            names = {peer.node, machine.get(peer.node, peer.node)}
            if any(
                _is(name, names) and _port_fits(views, peer.node, peer.port, told) for name, told in heard
            ):
                right += 1
            elif heard:
                wrong.append(f"{switch}:{port} should lead to {expected}, LLDP says {_words(heard)}")
            elif peer.port:
                wrong.append(f"{switch}:{port} should lead to {expected}, LLDP sees nothing there")
        wrong += [
            f"{switch}:{port} is not described, LLDP says {_words(heard)}"
            for port, heard in sorted(of_port.items())
            if any(_is(name, topology.ports) for name, _ in heard)
        ]
    return wrong, right


def _is(name: str, names: Iterable[str]) -> bool:
    """Whether a system name, which may have a domain, is one of these."""
    return name in names or name.partition(".")[0] in names


def _port_fits(views: Mapping[str, LldpView], node: str, port: int, told: str) -> bool:
    """Whether a port id may be this port. It is an interface's name where the neighbour tells its interfaces;
    otherwise nothing is known about it."""
    if not port or node not in views or told not in views[node].ports:
        return True
    return views[node].ports[told] == port


def _words(heard: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name}:{port}" if port else name for name, port in heard)


def _asked(target: Target) -> LldpView | str:
    """What a switch tells; or why it does not."""
    with channel_to(target) as channel:
        stub = gnmi_grpc.gNMIStub(channel)
        try:
            interfaces, neighbours = (
                stub.Get(gnmi.GetRequest(path=[path.path], encoding=gnmi.Encoding.PROTO), timeout=ANSWER_S)
                for path in (_IFINDEX, _NEIGHBOUR)
            )
        except grpc.RpcError as error:
            return str(error.code().name)
    return view_of(interfaces, neighbours)


def view_of(interfaces: gnmi.GetResponse, neighbours: gnmi.GetResponse) -> LldpView:
    """A switch's answers as values."""
    ports: dict[str, int] = {}
    for path, value in _leaves(interfaces):
        if path.last == _IFINDEX.last:
            ports[path["interface", "name"]] = int(value.uint_val or value.int_val)
    told: dict[tuple[str, str], dict[str, str]] = {}
    for path, value in _leaves(neighbours):
        if path.last in _WANTED:
            key = path["interface", "name"], path["neighbor", "id"]
            told.setdefault(key, {})[path.last] = value.string_val
    heard: dict[str, list[tuple[str, str]]] = {}
    for (interface, _), values in sorted(told.items()):
        if values.get("system-name"):
            heard.setdefault(interface, []).append((values["system-name"], values.get("port-id", "")))
    return LldpView(ports, {name: tuple(found) for name, found in heard.items()})


def _leaves(response: gnmi.GetResponse) -> Iterable[tuple[GNMIPath, gnmi.TypedValue]]:
    for notification in response.notification:
        for update in notification.update:
            whole = gnmi.Path(elem=[*notification.prefix.elem, *update.path.elem])
            yield GNMIPath(whole), update.val
