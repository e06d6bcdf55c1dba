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


@pytest.mark.parametrize("kind", ["flow_request", "flow_opened", "flow_fallback", "probe_request"])
def test_a_long_name_of_a_flow_is_refused(kind: str) -> None:
    message = wire.AgentMessage()
    getattr(message, kind).flow = "f" * 1000
    (item,) = from_agent("h1", message)
    assert item.flow == "f" * 1000  # type: ignore[union-attr]
    getattr(message, kind).flow += "f"
    with pytest.raises(MessageError, match="its name has 1,001 characters; legal: at most 1,000"):
        tuple(from_agent("h1", message))


def test_a_job_with_a_long_name_of_a_flow_is_refused() -> None:
    join = wire.JobJoin(job="a", gpus=1, hosts=["h1"], flows=[wire.FlowSpec(name="f" * 1001)])
    with pytest.raises(MessageError, match="its name has 1,001 characters"):
        tuple(from_agent("h1", wire.AgentMessage(job_join=join)))


def test_a_message_carries_a_bounded_number_of_reports() -> None:
    report = wire.IterationReport(job="a")
    message = wire.AgentMessage(earlier=[report] * 1024, iteration=report)
    assert len(tuple(from_agent("h1", message))) == 1025
    message.earlier.append(report)
    with pytest.raises(MessageError, match="earlier: 1,025 reports; legal: at most 1,024 in a message"):
        tuple(from_agent("h1", message))
