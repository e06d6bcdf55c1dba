# SPDX-License-Identifier: Apache-2.0
"""The names of senders: one canonical form, and each plain name with its MLTCP form."""

from __future__ import annotations

from typing import get_args

import pytest

from controller.wire.senders import (
    PLAIN,
    SENDERS,
    SYNONYMS,
    Sender,
    as_mltcp,
    canonical_sender,
    plain_sender,
    sender_in_force,
    uses_mltcp,
)


def test_each_plain_sender_has_one_mltcp_form() -> None:
    assert (*PLAIN, *map(as_mltcp, PLAIN)) == SENDERS
    for name in SENDERS:
        assert canonical_sender(name) == name
        assert plain_sender(name) in PLAIN
        assert uses_mltcp(name) == (name not in PLAIN)
        assert plain_sender(as_mltcp(name)) == plain_sender(name)
        assert as_mltcp(as_mltcp(name)) == as_mltcp(name)


def test_a_plan_overrules_the_job_if_it_names_a_sender() -> None:
    assert [sender_in_force(planned, "reno") for planned in ("", "job", "tcp")] == ["reno"] * 3
    assert [sender_in_force(planned, "reno") for planned in ("dctcp", "mltcp")] == ["dctcp", "mltcp-dcqcn"]


def test_a_file_may_say_the_names_and_synonyms_only() -> None:
    assert get_args(Sender) == (*SENDERS, *SYNONYMS)
    assert canonical_sender("mltcp") == "mltcp-dcqcn"
    for wrong in ("", "tcp", "MLTCP", "mltcp-", "mltcp-mltcp", "job"):
        with pytest.raises(ValueError, match=r"legal: dcqcn, reno, .*, mltcp-dctcp, mltcp$"):
            canonical_sender(wrong)
