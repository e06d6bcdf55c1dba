# SPDX-License-Identifier: Apache-2.0
"""What goes to the worker process and back is the same there."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model.job import Flow
from controller.model.plan import FlowPlan, QueuePair

WORDS = st.text(max_size=8)
VALUES = st.one_of(
    st.builds(Flow, WORDS, WORDS, WORDS, WORDS, st.integers(0)),
    st.builds(
        FlowPlan, WORDS, st.none() | st.lists(WORDS).map(tuple), st.none() | st.integers(0, 65535),
        st.integers(0, 63), WORDS, st.integers(0),
    ),
    st.builds(QueuePair, st.integers(0, 65535), st.booleans(), st.none() | st.integers(0, 63)),
)  # fmt: skip


@given(st.lists(VALUES))
def test_values_come_back_as_they_were(values):
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        back = pickle.loads(pickle.dumps(values, protocol))
        assert back == values
        assert [type(v) for v in back] == [type(v) for v in values]
    assert copy.deepcopy(values) == values


def test_they_are_as_frozen_there():
    back = pickle.loads(pickle.dumps(QueuePair(3)))
    with pytest.raises(AttributeError):
        back.source_port = 4
