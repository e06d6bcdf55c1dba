# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench p4runtime` measures the controller's own code on what it says that it measures."""

from __future__ import annotations

import json

import pytest

from controller.routing.forwarding import pair
from polyrhythm.bench.p4runtime import reconcile_entries, reconcile_fabric
from polyrhythm.cli import main


def test_the_switches_that_are_read_back_hold_ten_thousand_entries_of_the_table() -> None:
    topology, names, condition = reconcile_fabric()
    assert len(names) == 64
    assert condition.down_links <= {pair(link.a, link.b) for link in topology.links}
    for name in (names[0], names[-1]):
        assert sum(entry.table == "ecmp" for entry in reconcile_entries(name)) >= 10_000


@pytest.mark.parametrize(
    ("option", "value", "legal"), [("batches", 61, "1 to 60"), ("switches", 65, "1 to 64")]
)
def test_bad_options_end_with_one_line(
    option: str, value: int, legal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "p4runtime", f"--{option}", str(value)]) == 2
    assert capsys.readouterr().err == f"polyrhythm bench p4runtime: --{option} {value}; legal: {legal}\n"


@pytest.mark.slow
def test_it_prints_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "p4runtime", "--json", "--batches", "2", "--rounds", "1", "--switches", "4"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["reconcile_switches"] == 4
    assert figures["reconcile_64x10k_s"] is None
    assert figures["reconcile_ecmp_entries"] >= 10_000
    assert figures["reconcile_writes"] == 0
    rates = ("server_entries_per_s", "encode_speedup", "end_to_end_speedup", "reconcile_s")
    assert all(figures[name] > 0 for name in rates)
