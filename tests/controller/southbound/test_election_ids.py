# SPDX-License-Identifier: Apache-2.0
"""Election ids: each leader bids above all leaders before it, whatever it does."""

import pytest

from controller.southbound.election_ids import ALONE, DeposedError, ElectionIds


@pytest.mark.parametrize(
    ("earlier", "later"), [((1, 1), (1, 2)), ((1, 2**48 - 1), (2, 1)), ((1, 41), (1, 44))]
)
def test_the_range_of_a_later_leader_is_above(earlier, later):
    assert ElectionIds.of_leader(*earlier).last < ElectionIds.of_leader(*later).first


def test_a_leader_outbids_any_controller_that_began_alone():
    assert ElectionIds.of_leader(1, 1).first > ALONE + 2**32


def test_a_deposed_leader_cannot_outbid_its_successor():
    deposed, successor = ElectionIds.of_leader(1, 7), ElectionIds.of_leader(1, 9)
    for seen in (successor.first, successor.last):
        with pytest.raises(DeposedError, match=str(seen)):
            deposed.at_least(seen)
    for attempts in range(3):
        assert deposed.at_least(deposed.first + attempts) == deposed.first + attempts
    with pytest.raises(DeposedError):
        deposed.at_least(deposed.last + 1)


def test_a_bid_is_never_below_the_range():
    assert ElectionIds.of_leader(1, 7).at_least(ALONE) == ElectionIds.of_leader(1, 7).first


@pytest.mark.parametrize(("epoch", "revision"), [(0, 1), (1, 0), (1, 2**48), (2**63, 1)])
def test_what_does_not_fit_is_refused(epoch, revision):
    with pytest.raises(ValueError, match="legal"):
        ElectionIds.of_leader(epoch, revision)
