# SPDX-License-Identifier: Apache-2.0
"""The agent's state as its socket tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hostagent.new_flows import NewFlows
from hostagent.rails import Rails


def agent_status(host: str, rails: Rails, flows: Iterable[NewFlows]) -> Mapping[str, Any]:
    """The state of the agents of a host's NICs together. `flows`: the new flows of each NIC."""
    agents = rails.agents.values()
    first = next(iter(agents))
    answers: Counter[str] = Counter()
    for each in flows:
        answers.update(each.counts)
    return {
        "event": "status",
        "host": host,
        "rails": list(rails.agents),
        "connected": rails.welcomed,
        "policy": first.settings.policy,
        "equal_dscp": first.settings.equal_dscp,
        "workers": [
            {"job": job, "rank": rank, "accepted": accepted}
            for (job, rank), accepted in sorted(w for agent in agents for w in agent.workers.items())
        ],
        "flows": {
            flow: {"source_port": qp.source_port, "dscp": qp.dscp, "fallen": flow in agent.fallen}
            for agent in agents
            for flow, qp in sorted(agent.queue_pairs().items())
        },
        "answers": dict(sorted(answers.items())),
        "clock_error_ns": max(agent.fabric_time()[1] for agent in agents),
        "refusals": [why for agent in agents for why in agent.refusals],
    }
