# SPDX-License-Identifier: Apache-2.0
"""Members and groups of action profiles against a plain model, in random orders."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmv2.entries import GroupMember, TableEntryError
from bmv2.ir import Calculation, ProfileDeclaration
from bmv2.profiles import MAX_PLACES, ActionProfile

NUMBERS = st.integers(1, 5)
PARTS = st.dictionaries(NUMBERS, st.integers(1, 3), max_size=4)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["add_member", "modify_member", "delete_member"]), NUMBERS),
    st.tuples(st.sampled_from(["add_group", "modify_group"]), NUMBERS, PARTS),
    st.tuples(st.just("delete_group"), NUMBERS),
    st.tuples(st.just("port"), st.integers(1, 3), st.booleans()),
)


class Model:
    """Handles are the lowest free numbers; a group's places are its members' by handle, with their weights."""

    def __init__(self):
        self.calls, self.handles, self.groups, self.down = {}, {}, {}, set()

    def apply(self, kind, number, *rest):
        """Whether the step is legal; if so it is carried out."""
        known = self.groups if kind.endswith("group") else self.calls
        if kind == "port":
            (self.down.discard if rest[0] else self.down.add)(number)
        elif (number in known) == kind.startswith("add"):
            return False
        elif kind == "delete_member":
            if any(number in parts for parts in self.groups.values()):
                return False
            del self.calls[number], self.handles[number]
        elif kind == "delete_group":
            del self.groups[number]
        elif kind.endswith("group"):
            if not set(rest[0]) <= set(self.calls):
                return False
            self.groups[number] = dict(rest[0])
        else:
            if kind == "add_member":
                self.handles[number] = min(set(range(9)) - set(self.handles.values()))
            self.calls[number] = rest[0]
        return True

    def places(self, group):
        parts = sorted(self.groups[group].items(), key=lambda part: self.handles[part[0]])
        return [self.calls[n] for n, weight in parts if n not in self.down for _ in range(weight)]


def selector_profile():
    calculation = Calculation("hash", "crc16", ())
    return ActionProfile(ProfileDeclaration("p", 0, calculation))


@given(st.lists(STEPS, max_size=30))
@settings(max_examples=150, deadline=None)
def test_groups_hold_what_the_model_holds(steps):
    profile, model, changed = selector_profile(), Model(), []
    places = profile.attach(lambda call: call, changed.append)
    for serial, (kind, number, *rest) in enumerate(steps):
        given_ = (("send", (serial,)),) if kind in ("add_member", "modify_member") else tuple(rest)
        legal = model.apply(kind, number, *given_)
        if kind == "port":
            profile.set_port_up(number, *rest)
            continue
        if kind.endswith("group") and rest:
            given_ = (tuple(GroupMember(n, weight, n) for n, weight in rest[0].items()),)
        if legal:
            getattr(profile, kind)(number, *given_)
        else:
            with pytest.raises(TableEntryError):
                getattr(profile, kind)(number, *given_)
        if kind == "modify_member" and legal:
            assert changed.pop() == number
        assert {group: places[group] for group in model.groups} == {
            group: model.places(group) for group in model.groups
        }
        assert profile.members() == model.calls


def test_a_group_has_so_many_places_at_most():
    profile = selector_profile()
    profile.add_member(1, ("send", (1,)))
    with pytest.raises(TableEntryError, match="65536 in all, got 65537"):
        profile.add_group(1, (GroupMember(1, MAX_PLACES + 1),))
    profile.add_group(1, (GroupMember(1, MAX_PLACES),))


def test_what_nothing_uses_is_not_remembered():
    profile = selector_profile()
    for number in range(1, 50):
        profile.add_member(number, ("send", (1,)))
        profile.use("member", number, 1)
        with pytest.raises(TableEntryError):
            profile.delete_member(number)
        profile.use("member", number, -1)
        profile.delete_member(number)
    profile.add_member(99, ("send", (2,)))
    profile.add_group(1, (GroupMember(99),))
    with pytest.raises(TableEntryError):
        profile.delete_member(99)
    profile.delete_group(1)
    profile.delete_member(99)
