# SPDX-License-Identifier: Apache-2.0
"""The compiled fluid model works piece by piece, with the same result."""

import random
from dataclasses import replace

import numpy as np
import pytest
from instance_rig import random_choice, random_instance

from controller.interleave.joint.fluid import plain_lengths, salt_of, start_of
from controller.interleave.joint.fluid_arrays import fluid_arrays
from controller.interleave.joint.sharing_groups import sharing_groups_of

pytest.importorskip("numba")
kernel = pytest.importorskip("controller.interleave.joint.kernel")

SEEDS = (1, 2)


def group_arrays(seed: int):
    """Arguments of the kernel for a random group of jobs that share links, and the reference's result. Groups
    of odd seeds are without MLTCP, whose rates the kernel finds in another way.
    """
    rng = random.Random(seed)
    while True:
        instance = random_instance(rng, rng.randint(2, 8))
        choice = random_choice(rng, instance)
        if seed % 2:
            choice = replace(choice, mltcp=(False,) * len(instance.jobs))
        for part in sharing_groups_of(instance, choice):
            if part.undisturbed:
                continue
            alone = [float(instance.jobs[j].alone_ns) for j in part.jobs]
            arrays, horizon = fluid_arrays(instance, part), 12 * max(alone)
            salts = np.array([[salt_of(seed, j) for j in part.jobs] for seed in SEEDS])
            starts = np.array(
                [[start_of(s, j, t) for j, t in zip(part.jobs, alone, strict=True)] for s in SEEDS]
            )
            return (arrays, salts, starts, horizon), plain_lengths(arrays, part.jobs, SEEDS, alone, horizon)


@pytest.mark.parametrize("seed", range(8))
def test_pieces_of_any_size_give_the_reference_to_the_last_bit(seed: int) -> None:
    given, expected = group_arrays(seed)
    for piece in (1, 97, kernel.PIECE):
        assert np.array_equal(kernel.fast_lengths(*given, piece=piece), expected)


def test_between_two_pieces_the_caller_is_asked_and_may_end_the_work() -> None:
    given, _ = group_arrays(1)
    asked: list[int] = []
    kernel.fast_lengths(*given, lambda: asked.append(1), piece=50)
    assert len(asked) > 20

    def end() -> None:
        asked.append(1)
        raise InterruptedError

    asked.clear()
    with pytest.raises(InterruptedError):
        kernel.fast_lengths(*given, end, piece=50)
    assert len(asked) == 1
