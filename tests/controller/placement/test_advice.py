# SPDX-License-Identifier: Apache-2.0
"""What Dally says of the hosts that a job could get."""

from __future__ import annotations

import pytest

from controller.placement.advice import advise, job_place
from controller.placement.latency import Sensitivity
from controller.placement.machines import NetworkTier
from topo.generate import leaf_spine, rail

FABRIC = leaf_spine(2, 2, 4, host_bps=10**10, fabric_bps=10**10)
HOUR = 3600.0
SENSITIVE = Sensitivity(0.42, 9.40, 195.92)


@pytest.mark.parametrize(
    ("hosts", "tier", "wait_h"),
    [
        (["h1"], NetworkTier.MACHINE, 0),
        # Two hosts never fit a machine here: a rack is the closest.
        (["h1", "h3"], NetworkTier.RACK, 0),
        (["h1", "h6"], NetworkTier.NETWORK, 20),
        # Nor do five hosts fit a leaf.
        (["h1", "h2", "h3", "h4", "h5"], NetworkTier.NETWORK, 0),
    ],
)
def test_tier_and_wait(hosts: list[str], tier: NetworkTier, wait_h: float) -> None:
    place = job_place(FABRIC, hosts, len(hosts))
    found = advise(place, None, 4 * HOUR)
    assert (found.tier, found.wait_s, found.communication) == (tier, wait_h * HOUR, None)
    assert advise(place, None, 24 * HOUR).wait_s == 0


def test_rails_of_one_machine_are_one_machine() -> None:
    fabric = rail(2, 2, 2, 2, host_bps=10**10, fabric_bps=10**10)
    first, second, *_ = fabric.machines.values()
    one = job_place(fabric, [h.name for h in first], 8)
    assert (one.tier, one.machines.gpus) == (NetworkTier.MACHINE, (8,))
    spread = job_place(fabric, [first[0].name, second[0].name], 8)
    assert spread.closest == NetworkTier.MACHINE
    assert advise(spread, None, 0).wait_s == (12 if spread.tier == NetworkTier.RACK else 24) * HOUR


def test_communication_follows_table_1() -> None:
    near = advise(job_place(FABRIC, ["h1", "h2"], 2), SENSITIVE, 0).communication
    far = advise(job_place(FABRIC, ["h1", "h6"], 2), SENSITIVE, 0).communication
    assert near == pytest.approx(9.40 / 7)
    assert far == pytest.approx(195.92 / 7)
    assert job_place(FABRIC, ["h1", "h2"], 5).machines.gpus == (3, 2)
    assert job_place(FABRIC, ["h1", "h2"], 1).machines.gpus == (1, 1)
