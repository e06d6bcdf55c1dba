# SPDX-License-Identifier: Apache-2.0
"""Jobs that a request describes, instead of agents."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control_rig import job

from controller.live.job_registry import JoinError
from controller.model.job import Job
from controller.process.plan_operations import registry_of
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 1, 2, host_bps=10**8, fabric_bps=10**8)
GOOD = job("a", "h1", "h3")
FLOW = replace(GOOD.flows[0], name="a/\ud800")


@pytest.mark.parametrize(
    "wrong", [job("a\ud800", "h1", "h3"), replace(GOOD, model="\n"), replace(GOOD, flows=(FLOW,))]
)
def test_text_that_no_answer_can_say_is_refused(wrong: Job) -> None:
    assert registry_of(TOPOLOGY, (GOOD,)).jobs == (GOOD,)
    with pytest.raises(JoinError, match="legal: printable text"):
        registry_of(TOPOLOGY, (wrong,))
