# SPDX-License-Identifier: Apache-2.0
"""A moment of the past, in the order of the event stream."""

import asyncio

import numpy as np
import pytest
from fake_source import TOPOLOGY
from operated_core import operated_core

from controller.live.past_states import PastState
from controller.live.plan_reasons import PlanReasons
from controller.live.recorder import Recorder
from controller.model.view import Alarm
from controller.northbound.problems import OperationError
from controller.northbound.stream_state import StreamFabric
from controller.process.measured_past import RunningHistory

S = 1_000_000_000


def test_a_moment_has_what_was_measured_and_what_was_in_force() -> None:
    core, _ = operated_core()
    recorder = Recorder(TOPOLOGY)
    past = RunningHistory(core, recorder, PlanReasons(core))
    loads = np.full(len(recorder.directions), np.nan)
    link = TOPOLOGY.links[0]
    loads[recorder.directions[f"{link.a}>{link.b}"]] = 0.25
    host = TOPOLOGY.hosts[-1]
    loads[recorder.directions[f"{host.leaf}>{host.name}"]] = 0.5
    recorder.history.add_links(5 * S, loads, 8 * loads)
    recorder.history.add_iteration(5 * S, "x", 200.0)
    alarm = Alarm("silent_switch", "leaf1", 3 * S, "it is silent")
    recorder.states.add(PastState(4 * S, 3, "crux", ("x",), ("leaf1-spine2",), (alarm,)))
    recorder.states.add(PastState(6 * S, 4, "ecmp", (), (), ()))
    core.now_ns = 9 * S

    moment = asyncio.run(past.moment(5 * S + 10))
    assert (moment.time_ns, moment.step_ns) == (5 * S, S)
    assert {job: row.mean_ms for job, row in moment.jobs.items()} == {"x": 200.0}
    assert (moment.plan.version, moment.plan.policy, moment.plan.made_ns) == (3, "crux", None)
    assert (moment.present, moment.down) == (("x",), ("leaf1-spine2",))
    assert [a.name for a in moment.alarms] == ["silent_switch/leaf1"]
    columns = StreamFabric(TOPOLOGY)
    measured = {columns.ends[n]: value for n, value in enumerate(moment.links.load) if value is not None}
    assert measured == {(link.a, link.a_port): 25, (host.leaf, host.leaf_port): 50}
    marked = {columns.ends[n]: value for n, value in enumerate(moment.links.marks) if value is not None}
    assert marked == {(link.a, link.a_port): 2, (host.leaf, host.leaf_port): 4}


@pytest.mark.parametrize("time_ns", [0, 4 * S, 6 * S, 1 << 61])
def test_a_time_without_a_point_is_refused(time_ns: int) -> None:
    core, _ = operated_core()
    recorder = Recorder(TOPOLOGY)
    recorder.history.add_iteration(5 * S, "x", 200.0)
    core.now_ns = 9 * S
    with pytest.raises(OperationError) as error:
        asyncio.run(RunningHistory(core, recorder, PlanReasons(core)).moment(time_ns))
    assert error.value.code == 404
