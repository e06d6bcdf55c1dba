# SPDX-License-Identifier: Apache-2.0
"""Who ends a communication phase together."""

from __future__ import annotations

from functools import partial

from training_rig import up

from hostagent.job import JobSpec, PhaseSpec
from hostagent.phase_barrier import PhaseBarrier, group_of

HOSTS = ("h0", "h1", "h2", "h3", "h4")
RING = (("h0", "h1"), ("h1", "h2"), ("h2", "h0"), ("h2", "h3"), ("h3", "h4"), ("h4", "h3"))


def test_the_workers_that_depend_on_each_other_in_a_phase() -> None:
    size = up(10)
    phases = tuple(PhaseSpec(0, sizes, 0, 1) for sizes in ((size,) * 6, (1, 1, 0, 1, 0, 1), 0))
    spec = JobSpec("a", "VGG19", 5, HOSTS, RING, phases, 1e12)
    rings, chain, none = ([sorted(group_of(spec, phase, r)) for r in range(5)] for phase in phases)
    # h2 sends to h3 as well, but nothing comes back.
    assert rings == [[0, 1, 2]] * 3 + [[3, 4]] * 2
    assert chain == none == [[r] for r in range(5)]


def test_all_of_a_group_go_on_with_its_last_worker() -> None:
    went: list[int] = []
    hosts = (*HOSTS, "h5")
    ring = (("h0", "h1"), ("h1", "h0"), ("h2", "h3"), ("h3", "h4"), ("h4", "h2"))
    phase = PhaseSpec(0, up(10), 0, 1)
    barrier = PhaseBarrier(JobSpec("a", "VGG19", 6, hosts, ring, (phase,), 1e12))
    for rank in (4, 1, 2, 0):
        barrier.wait(phase, rank, partial(went.append, rank))
    assert went == [0, 1]
    barrier.wait(phase, 3, partial(went.append, 3))
    assert went == [0, 1, 2, 3, 4]
    # The next phase begins with nobody.
    barrier.wait(phase, 0, partial(went.append, 0))
    assert len(went) == 5
    # A worker alone waits for nobody.
    barrier.wait(phase, 5, partial(went.append, 5))
    assert went[-1] == 5
