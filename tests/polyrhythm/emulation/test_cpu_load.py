# SPDX-License-Identifier: Apache-2.0
import time

import pytest

from polyrhythm.emulation.cpu_load import cpu_ticks, load_between, load_together


@pytest.mark.parametrize(("before", "after", "load"), [
    ((100, 400), (150, 600), 0.25),
    ((100, 400), (100, 600), 0.0),
    ((100, 400), (300, 600), 1.0),
    ((100, 400), (100, 400), 1.0),
], ids=["a quarter", "idle", "busy", "no time"])  # fmt: skip
def test_the_load_is_the_busy_part_of_the_time(
    before: tuple[int, int], after: tuple[int, int], load: float
) -> None:
    assert load_between(before, after) == load


def test_the_work_of_a_process_counts() -> None:
    before, began = cpu_ticks(), time.process_time()
    while time.process_time() - began < 0.5:
        pass
    busy, every = (b - a for a, b in zip(before, cpu_ticks(), strict=True))
    # A tick is 10 ms. The kernel counts whole ones, by what runs when one ends.
    assert 25 < busy <= every


def test_what_runs_without_any_job_counts_once() -> None:
    assert load_together([0.1, 0.2, 0.15], [0.3, 0.3, 0.1]) == pytest.approx(0.15 + 0.2 + 0.1)
