# SPDX-License-Identifier: Apache-2.0
"""Queue pairs of other processes: the shim's port map follows the flows."""

from __future__ import annotations

from pathlib import Path

import pytest
from port_map_reader import parse_port_map

from hostagent.nic.external import ExternalNic
from hostagent.nic.port_map import PortMapFile


class Heap:
    """A clock that runs what is due when told."""

    def __init__(self) -> None:
        self.now = 0
        self.due: list[object] = []

    def call_at(self, time_ns: int, callback: object, *args: object) -> None:
        self.due.append(callback)

    def run(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()  # type: ignore[operator]


def test_the_shims_map_follows_the_flows(tmp_path: Path) -> None:
    heap = Heap()
    nic = ExternalNic("shim", "10.0.0.1", PortMapFile(tmp_path / "ports", heap))  # type: ignore[arg-type]
    a = nic.open_qp("a/h1>h2", "10.0.0.2", 50001, 26)
    b = nic.open_qp("b/h1>h2", "10.0.0.2", 50002, 26)
    nic.open_qp("a/h1>h3", "10.0.0.3", 50003, 26)
    heap.run()
    assert len(heap.due) == 0

    def ports() -> dict[tuple[str, str], tuple[int, ...]]:
        return dict(parse_port_map((tmp_path / "ports").read_text()))

    pairs = (("10.0.0.1", "10.0.0.2"), ("10.0.0.1", "10.0.0.3"))
    assert ports() == {pairs[0]: (50001, 50002), pairs[1]: (50003,)}
    a.repin(50009, 26)
    b.close()
    heap.run()
    assert ports() == {pairs[0]: (50009,), pairs[1]: (50003,)}
    with pytest.raises(ValueError, match="outside 49152-65535"):
        a.repin(80, 26)
    with pytest.raises(ValueError, match="is open already"):
        nic.open_qp("a/h1>h2", "10.0.0.2", 50001, 26)


def test_the_nics_of_a_host_share_one_map(tmp_path: Path) -> None:
    heap = Heap()
    port_map = PortMapFile(tmp_path / "ports", heap)  # type: ignore[arg-type]
    rails = [ExternalNic("shim", f"10.0.{rail}.1", port_map) for rail in (1, 2)]
    first = [nic.open_qp(f"a/h1.{n}>h2.{n}", f"10.0.{n}.2", 50000 + n, 26) for n, nic in enumerate(rails, 1)]
    heap.run()
    assert len(heap.due) == 0
    first[0].close()
    rails[1].open_qp("b/h1.2>h3.2", "10.0.2.3", 50009, 26)
    heap.run()
    assert dict(parse_port_map((tmp_path / "ports").read_text())) == {
        ("10.0.2.1", "10.0.2.2"): (50002,),
        ("10.0.2.1", "10.0.2.3"): (50009,),
    }
