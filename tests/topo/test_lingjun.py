# SPDX-License-Identifier: Apache-2.0
"""Lingjun's topo.csv as a fabric, and its mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyrhythm_files import ConfigError
from sim.workload import check_connected
from topo.files import load_topology

TABLE = "ip,DSW,PSW,ASW\na,G1,P1,S1\nb,G1,P1,S2\nc,G2,P9,S1\n"


def test_labels_become_switches(tmp_path: Path) -> None:
    path = tmp_path / "topo.csv"
    path.write_text(TABLE)
    topology = load_topology(path, default_bps=2 * 10**11, fabric_bps=4 * 10**11)
    assert [h.leaf for h in topology.hosts] == ["leaf-G1-P1-S1", "leaf-G1-P1-S2", "leaf-G2-P9-S1"]
    assert {h.rate_bps for h in topology.hosts} == {2 * 10**11}
    assert {k.rate_bps for k in topology.links} == {4 * 10**11}
    check_connected(topology)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TABLE + "a,G1,P1,S1\n", ":5: ip: 'a' is in line 2 too; legal: once"),
        (TABLE + "d,G1,,S1\n", ":5: PSW: is empty; legal: a cell for each column"),
        (TABLE + "d,G1,P1,S1,x\n", ":5: 5 cells; legal: a cell for each column"),
        ("ip,DSW,PSW\n", ":1: no column ASW, or more than one; legal: the columns ip, DSW, PSW, ASW"),
        ("ip,DSW,PSW,ASW\n", ":1: it holds no hosts; legal: a row ip,DSW,PSW,ASW for each"),
        (TABLE + 'd,"G1,P1,S1\n', ":5: not CSV: "),
        (TABLE + "d,x-y,z,S1\ne,x,y-z,S1\n", ":6: the name 'agg-x-y-z' is that of other labels too; legal: "),
        (TABLE + "d,all,P1,S1\n", ": DSW: 'all' names the core above all groups; legal: another label"),
        (
            "ip,DSW,PSW,ASW\n" + "".join(f"{i},a,b,c\n" for i in range(254)),
            ":255: ASW: 'c' has more hosts; legal",
        ),
    ],
)
def test_mistakes_have_a_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "topo.csv"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_topology(path)
    assert str(caught.value).startswith(f"{path}{said}"), caught.value
