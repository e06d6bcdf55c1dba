# SPDX-License-Identifier: Apache-2.0
"""Failures by name: a switch, the cables between two switches, or one cable."""

from __future__ import annotations

import pytest
from bundles_rig import bundled

from polyrhythm.scenario.failures import FailureError, parse_failure
from topo.generate import leaf_spine

FABRIC = bundled(leaf_spine(2, 1, 2, host_bps=10, fabric_bps=10), 2)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("leaf1:spine1@5", {("leaf1", 3), ("spine1", 1), ("leaf1", 4), ("spine1", 3)}),
        ("leaf1:4@5-9", {("leaf1", 4), ("spine1", 3)}),
        ("spine1:1@5", {("leaf1", 3), ("spine1", 1)}),
    ],
)
def test_the_ports_that_go_down(text: str, ends: set[tuple[str, int]]) -> None:
    failure = parse_failure(text, FABRIC)
    assert set(failure.ends) == ends
    assert len(failure.ends) == len(ends)
    assert failure.switch is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("leaf1:9@5", "leaf1:9@5: no cable to a switch at port 9 of leaf1"),
        ("leaf1:1@5", "leaf1:1@5: no cable to a switch at port 1 of leaf1"),
        ("leaf7:3@5", "leaf7:3@5: 'leaf7' is no switch of leaf_spine; legal: leaf1, leaf2, spine1"),
        ("leaf1:@5", "leaf1:@5: '' is no switch of leaf_spine; legal: leaf1, leaf2, spine1"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(FailureError) as error:
        parse_failure(text, FABRIC)
    assert str(error.value) == words
