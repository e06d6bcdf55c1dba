# SPDX-License-Identifier: Apache-2.0
"""Which user asked for which flow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostagent import flow_owners
from hostagent.flow_owners import FlowOwners
from polyrhythm_files import ConfigError


def test_a_user_ends_no_flow_of_another_and_keeps_nobody_from_a_name() -> None:
    owners: FlowOwners[str] = FlowOwners()
    owners.ask("a/x", "alice's", 1000)
    with pytest.raises(ConfigError, match="a/x is another user's"):
        owners.end("a/x", 2000)
    owners.ask("a/x", "bob's", 2000)
    assert not owners.end("a/x", 2000)
    assert owners.end("a/x", 1000)
    # A flow that nobody has may be ended by all, as before.
    assert owners.end("a/x", 2000)
    owners.ask("a/y", "alice's", 1000)
    assert owners.end("a/y", 0)


def test_a_user_has_a_bounded_number_of_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_owners, "MAX_FLOWS_OF_USER", 2)
    owners: FlowOwners[str] = FlowOwners()
    for flow in ("a", "b", "b"):
        owners.ask(flow, "alice's", 1000)
    with pytest.raises(ConfigError, match="user 1000 has 2 open flows"):
        owners.ask("c", "alice's other", 1000)
    owners.ask("c", "bob's", 2000)
    assert owners.closed("alice's") == {"a", "b"}
    owners.ask("c", "alice's other", 1000)
    assert owners.closed("bob's") == frozenset()
    assert owners.closed("alice's other") == {"c"}


@given(
    st.lists(
        st.tuples(st.sampled_from("aec"), st.sampled_from("xyz"), st.integers(0, 2), st.sampled_from("KLM"))
    )
)
def test_nothing_is_left_when_all_connections_have_closed(steps: list[tuple[str, str, int, str]]) -> None:
    owners: FlowOwners[tuple[str, int]] = FlowOwners()
    for what, flow, user, connection in steps:
        if what == "a":
            owners.ask(flow, (connection, user), user)
        elif what == "e":
            try:
                owners.end(flow, user)
            except ConfigError:
                assert user != 0
        else:
            owners.closed((connection, user))
    for connection in "KLM":
        for user in range(3):
            owners.closed((connection, user))
    assert (owners._claims, owners._flows, owners._count) == ({}, {}, {})
