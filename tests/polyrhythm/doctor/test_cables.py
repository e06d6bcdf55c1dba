# SPDX-License-Identifier: Apache-2.0
"""Cables by LLDP, against gNMI servers that answer in OpenConfig's form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import grpc
import pytest
from finsy.gnmipath import GNMIPath
from finsy.proto import gnmi, gnmi_grpc

from controller.process.config import FabricDescription
from controller.southbound.desired import EcnProfile
from controller.southbound.fleet import Target
from polyrhythm.doctor.cables import check_cables
from polyrhythm.doctor.finding import Deployment, ProblemError, UncheckedError
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 1, host_bps=10**11, fabric_bps=10**11)
# leaf1: 1 h1, 2 spine1, 3 spine2; spine1: 1 leaf1, 2 leaf2.
Neighbours = Mapping[int, tuple[str, str]]
CORRECT: Mapping[str, Neighbours] = {
    "leaf1": {
        1: ("h1.example.org", "aa:bb:cc:00:00:01"),
        2: ("spine1", "Ethernet1/1"),
        3: ("spine2", "Ethernet1/1"),
    },
    "leaf2": {2: ("spine1", "Ethernet1/2"), 3: ("spine2", "Ethernet1/2")},
    "spine1": {1: ("leaf1", "Ethernet1/2"), 2: ("leaf2", "Ethernet1/2")},
    "spine2": {1: ("leaf1", "Ethernet1/3"), 2: ("leaf2", "Ethernet1/3")},
}


@contextmanager
def served(neighbours: Neighbours) -> Iterator[str]:
    """A gNMI server with interfaces Ethernet1/1 to Ethernet1/4, and these LLDP neighbours by port."""

    class Server(gnmi_grpc.gNMIServicer):
        def Get(self, request: gnmi.GetRequest, context: grpc.ServicerContext) -> gnmi.GetResponse:
            asked = str(GNMIPath(request.path[0]))
            notification = gnmi.Notification()

            def add(path: str, **value: str | int) -> None:
                notification.update.add(path=GNMIPath(path).path, val=gnmi.TypedValue(**value))

            for port in range(1, 5):
                name = f"Ethernet1/{port}"
                path = GNMIPath("interfaces/interface[name=*]/state/ifindex").set(name=name)
                if asked.startswith("interfaces"):
                    notification.update.add(path=path.path, val=gnmi.TypedValue(uint_val=port))
                elif port in neighbours:
                    near = GNMIPath("lldp/interfaces/interface[name=*]/neighbors/neighbor[id=*]/state/x")
                    for last, text in zip(("system-name", "port-id"), neighbours[port], strict=True):
                        whole = near.set("interface", name=name).set("neighbor", id="1").path
                        whole.elem[-1].name = last
                        notification.update.add(path=whole, val=gnmi.TypedValue(string_val=text))
            return gnmi.GetResponse(notification=[notification])

    server = grpc.server(ThreadPoolExecutor(2))
    gnmi_grpc.add_gNMIServicer_to_server(Server(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def checked(changes: Mapping[str, Neighbours]) -> str:
    """The check on the fabric, where some switches tell something else than what is correct."""
    with ExitStack() as stack:
        told = {**CORRECT, **changes}
        targets = {
            name: Target(stack.enter_context(served(neighbours)), i)
            for i, (name, neighbours) in enumerate(told.items(), start=1)
        }
        fabric = FabricDescription(
            name="x", clock="host", topology=TOPOLOGY, targets=targets, ecn=EcnProfile(5, 50, 0.1), verify=True,
            scenario="", poll_ns=10**8, elephant_bytes=1,
        )  # fmt: skip
        return check_cables(Deployment(fabric=fabric))


def test_cables_as_described_are_in_order() -> None:
    # A host without LLDP (h2) is no problem, and one may have a domain.
    assert checked({}) == "LLDP sees 9 ends of cables as they are described"
    assert checked({"spine2": {}}).endswith("; 1 of 4 switches do not tell their neighbours")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # Two cables of a leaf are swapped.
        (
            {"leaf1": {2: ("spine2", "Ethernet1/1"), 3: ("spine1", "Ethernet1/1")}},
            [
                "leaf1:2 should lead to spine1:1, LLDP says spine2:Ethernet1/1",
                "leaf1:3 should lead to spine2:1, LLDP says spine1:Ethernet1/1",
            ],
        ),
        # The right switch, and a wrong port of it.
        ({"leaf2": {2: ("spine1", "Ethernet1/3"), 3: ("spine2", "Ethernet1/2")}}, ["leaf2:2 should lead to spine1:2, LLDP says spine1:Ethernet1/3"]),
        ({"spine1": {1: ("leaf1", "Ethernet1/2")}}, ["spine1:2 should lead to leaf2:2, LLDP sees nothing there"]),
        ({"leaf1": {**CORRECT["leaf1"], 1: ("h2", "x")}}, ["leaf1:1 should lead to h1, LLDP says h2:x"]),
        ({"leaf2": {**CORRECT["leaf2"], 4: ("leaf1", "Ethernet1/4")}}, ["leaf2:4 is not described, LLDP says leaf1:Ethernet1/4"]),
    ],
    ids=["swapped", "port", "unplugged", "host", "extra"],
)  # fmt: skip
def test_cables_that_differ_are_named(changes: Mapping[str, Neighbours], said: list[str]) -> None:
    with pytest.raises(ProblemError) as caught:
        checked(changes)
    assert str(caught.value) == f"{len(said)} cables are not as described: {'; '.join(said)}"


def test_switches_without_lldp_are_not_judged() -> None:
    with pytest.raises(
        UncheckedError, match=r"no switch tells its neighbours by gNMI and LLDP \(no neighbours\)"
    ):
        checked({key: {} for key in CORRECT})
