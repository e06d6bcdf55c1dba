# SPDX-License-Identifier: Apache-2.0
"""What an agent says of its job reaches the controller: the congestion control that the job chose."""

from __future__ import annotations

import pytest

from controller.agents.translate import MessageError, from_agent
from controller.wire import agent_pb2 as wire
from controller.wire.senders import SENDERS


def joined(sender: str) -> str:
    message = wire.AgentMessage(job_join=wire.JobJoin(job="a", gpus=1, hosts=["h1"], sender=sender))
    (joins,) = from_agent("h1", message)
    return joins.job.sender  # type: ignore[union-attr]


def test_a_job_joins_with_its_sender() -> None:
    assert [joined(name) for name in SENDERS] == list(SENDERS)
    # Agents of a time without this field, and files' synonyms.
    assert joined("") == "dcqcn"
    assert joined("mltcp") == "mltcp-dcqcn"


def test_an_unknown_sender_is_refused() -> None:
    with pytest.raises(MessageError, match="job a: sender 'tcp'; legal: dcqcn, reno"):
        joined("tcp")
