# SPDX-License-Identifier: Apache-2.0
"""Exposed communication by placement: Table I of Dally for 8 GPUs, and rules for other sizes."""

from __future__ import annotations

import pytest

from controller.placement.latency import RULES, TABLE_I, Sensitivity, exposed, table_row
from controller.placement.machines import Allocation, Machines

RACKS = Machines.uniform(16, 8, 8)
ONE_MACHINE: Allocation = ((0, 8),)
ONE_RACK: Allocation = tuple((m, 1) for m in range(8))
EIGHT_RACKS: Allocation = tuple((8 * r, 1) for r in range(8))
MOBILENET = TABLE_I["mobilenetv3"].sensitivity


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("model", sorted(TABLE_I))
def test_eight_gpus_have_the_figures_of_table_1(model: str, rule: str) -> None:
    row = TABLE_I[model].sensitivity
    placed = [exposed(row, RACKS, a, rule) for a in (ONE_MACHINE, ONE_RACK, EIGHT_RACKS)]
    assert placed == pytest.approx([row.machine, row.rack, row.network])


def test_parts_of_a_nested_collective_add_up() -> None:
    two_machines: Allocation = ((0, 8), (1, 8))
    assert exposed(MOBILENET, RACKS, two_machines, "flat") == pytest.approx(0.42 + 9.40)
    assert exposed(MOBILENET, RACKS, two_machines, "ring") == pytest.approx(0.42 + 9.40 / 7)
    assert exposed(MOBILENET, RACKS, two_machines, "tree") == pytest.approx(0.42 + 9.40 / 3)
    assert exposed(MOBILENET, RACKS, two_machines, "gpus") == pytest.approx(9.40 * 15 / 7)


def test_a_placement_that_does_not_nest_uses_the_slowest_tier_for_all() -> None:
    uneven: Allocation = ((0, 8), (1, 7), (8, 1))
    assert exposed(MOBILENET, RACKS, uneven, "ring") == pytest.approx(195.92 * 15 / 7)
    # The machines hold alike, the racks do not.
    racks: Allocation = ((0, 2), (1, 2), (8, 2))
    assert exposed(MOBILENET, RACKS, racks, "ring") == pytest.approx(195.92 * 5 / 7)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_one_gpu_sends_nothing(rule: str) -> None:
    assert exposed(MOBILENET, RACKS, ((3, 1),), rule) == 0


def test_models_by_name() -> None:
    assert table_row("VGG") is TABLE_I["vgg11"]
    assert table_row("BERT-large") is TABLE_I["bert"]
    assert table_row("llama") is None


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf")])
def test_bad_sensitivity(bad: float) -> None:
    with pytest.raises(ValueError, match="legal: finite numbers from 0"):
        Sensitivity(0.1, bad, 0.2)
