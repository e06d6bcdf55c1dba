# SPDX-License-Identifier: Apache-2.0
"""Messages of a little more than a window, in the evaluator and its kernel."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from instance_rig import random_choice, random_instance

from controller.interleave.joint.fluid import plain_lengths, salt_of, start_of
from controller.interleave.joint.fluid_arrays import fluid_arrays
from controller.interleave.joint.instance import Instance
from controller.interleave.joint.sharing_groups import sharing_groups_of
from controller.interleave.joint.windows import WINDOW_BITS, rest_wait

CAP = 0.025


@pytest.mark.parametrize("windows", [0.5, 1.0, 1.005, 2.0, 2.5])
def test_whole_windows_and_long_messages_wait_once(windows: float) -> None:
    assert rest_wait(windows * WINDOW_BITS, WINDOW_BITS, CAP / 10, CAP) == 0


def test_few_flows_do_not_fill_the_queue() -> None:
    assert rest_wait(1.1 * WINDOW_BITS, WINDOW_BITS, CAP / 4, CAP) == 0
    assert rest_wait(1.1 * WINDOW_BITS, WINDOW_BITS, 0.0, CAP) == 0


def test_a_rest_waits_as_long_as_a_whole_window() -> None:
    """Of ten flows each gets a tenth, so their windows take 400 frames, and those of six of them 240."""
    frame = WINDOW_BITS / 40 / CAP
    assert rest_wait(1.5 * WINDOW_BITS, WINDOW_BITS, CAP / 10, CAP) == pytest.approx(0.5 * 240 * frame)


def test_a_flow_that_is_stopped_just_before_its_end_waits_for_a_full_queue_at_most() -> None:
    full = rest_wait(1.5 * WINDOW_BITS, WINDOW_BITS, CAP / 25, CAP)
    assert rest_wait(1.5 * WINDOW_BITS, WINDOW_BITS, 1e-18, CAP) == full


def slow(instance: Instance) -> Instance:
    """The same at a rate at which a window takes 14 ms."""
    jobs = tuple(
        replace(j, steps=tuple(replace(s, rate_bps=s.rate_bps // 2000) for s in j.steps))
        for j in instance.jobs
    )
    return replace(instance, jobs=jobs, capacity_bps=(25_000_000,) * len(instance.capacity_bps))


def test_the_kernel_gives_the_reference_to_the_last_bit() -> None:
    pytest.importorskip("numba")
    kernel = pytest.importorskip("controller.interleave.joint.kernel")
    waited = 0
    for seed in range(12):
        rng = random.Random(seed)
        instance = slow(random_instance(rng, 7 + 3 * (seed % 2)))
        choice = replace(random_choice(rng, instance), level=(0,) * len(instance.jobs))
        for part in sharing_groups_of(instance, choice):
            if part.undisturbed:
                continue
            alone = [float(instance.jobs[j].alone_ns) for j in part.jobs]
            arrays, horizon = fluid_arrays(instance, part), 12 * max(alone)
            salts = np.array([[salt_of(seed, j) for j in part.jobs]])
            starts = np.array([[start_of(seed, j, t) for j, t in zip(part.jobs, alone, strict=True)]])
            found = plain_lengths(arrays, part.jobs, (seed,), alone, horizon)
            assert np.array_equal(kernel.fast_lengths(arrays, salts, starts, horizon), found)
            none = arrays._replace(window=np.zeros_like(arrays.window))
            waited += not np.array_equal(plain_lengths(none, part.jobs, (seed,), alone, horizon), found)
    assert waited >= 3
