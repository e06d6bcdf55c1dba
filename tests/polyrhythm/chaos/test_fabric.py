# SPDX-License-Identifier: Apache-2.0
"""The probes see black holes and loops: on switches that are programmed by hand to have them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from bmv2.entries import Exact, Lpm, TableEntry
from bmv2.program import load_program
from controller.southbound.artefacts import load_artefacts
from polyrhythm.chaos.fabric import ChaosFabric

FLOWS = {"a/h1>h3": ("h1", "h3", 0xC000, 26)}


@pytest.fixture
def fabric() -> Iterator[ChaosFabric]:
    found = ChaosFabric()
    thread = threading.Thread(target=found.loop.run, daemon=True)
    thread.start()
    yield found
    for server in found.servers.values():
        server.stop()
    found.loop.stop()
    thread.join()
    found.loop.close()


def program(fabric: ChaosFabric, name: str, towards: str) -> None:
    """A switch sends everything to one neighbour."""
    switch = fabric.switches[name]
    port = next(p for p, peer in fabric.topology.ports[name].items() if peer.node == towards)

    def load() -> None:
        switch.load(load_program(load_artefacts().device_config))
        switch.insert("next_hop", TableEntry((Exact(1),), 0, "forward", (port, 1, 2)))
        switch.insert("routing", TableEntry((Lpm(0, 0),), 0, "set_next_hop", (1,)))

    fabric.loop.call("test", load)


def report(fabric: ChaosFabric, until: str) -> dict[str, object]:
    """The first report that has something under `until`."""
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        time.sleep(0.1)
        found = fabric.command({"do": "flows", "flows": FLOWS})
        if found[until] if until != "delivered" else found["delivered"]["a/h1>h3"]:
            return found
    raise AssertionError(f"never: {until}")


def test_a_path_a_black_hole_and_a_loop_are_told_apart(fabric: ChaosFabric) -> None:
    for name, towards in (("leaf1", "spine1"), ("spine1", "leaf2"), ("leaf2", "h3")):
        program(fabric, name, towards)
    assert report(fabric, "delivered")["loops"] == []
    # The other spine has no entries.
    program(fabric, "leaf1", "spine2")
    assert report(fabric, "lost")["lost"] == ["a/h1>h3"]
    program(fabric, "spine2", "leaf1")
    assert "a/h1>h3: leaf1 spine2 leaf1" in report(fabric, "loops")["loops"]
    # While no path exists, or a leaf is dead, lost probes are nobody's fault.
    fabric.command({"do": "stop", "switch": "leaf2"})
    assert fabric.command({"do": "flows", "flows": FLOWS})["addresses"].keys() == {
        "leaf1",
        "spine1",
        "spine2",
    }
    time.sleep(0.3)
    assert fabric.command({"do": "flows", "flows": FLOWS})["lost"] == []
    fabric.command({"do": "start", "switch": "leaf2"})
    fabric.command({"do": "link", "link": ["leaf2", "spine1"], "up": False})
    fabric.command({"do": "link", "link": ["spine2", "leaf2"], "up": False})
    time.sleep(0.3)
    assert fabric.command({"do": "flows", "flows": FLOWS})["lost"] == []
