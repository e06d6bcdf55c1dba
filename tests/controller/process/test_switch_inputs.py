# SPDX-License-Identifier: Apache-2.0
"""What switches report reaches the control loop in order, and all of them are awaited."""

from __future__ import annotations

from controller.agents.channels import ChannelCounts
from controller.live.messages import Input, PortsSeen, SwitchLost, SwitchReady
from controller.process.switch_inputs import SwitchInputs


def test_all_switches_are_ready_once_each_has_been_in_service() -> None:
    seen: list[tuple[str, str, Input]] = []
    switches = SwitchInputs(lambda *item: seen.append(item), ChannelCounts())
    switches.expect(["leaf1", "leaf2"])
    switches.switch_ready("leaf1", {1: True})
    switches.switch_lost("leaf1", "gone")
    switches.switch_ready("leaf1", None)
    assert not switches.all_ready.is_set()
    assert switches.missing == ["leaf2"]
    switches.switch_ready("leaf2", None)
    switches.port_states("leaf2", {1: False})
    assert switches.all_ready.is_set()
    assert switches.missing == []
    assert seen == [
        ("leaf1", "session:leaf1", SwitchReady("leaf1", {1: True})),
        ("leaf1", "session:leaf1", SwitchLost("leaf1", "gone")),
        ("leaf1", "session:leaf1", SwitchReady("leaf1", None)),
        ("leaf2", "session:leaf2", SwitchReady("leaf2", None)),
        ("leaf2", "gnmi:leaf2", PortsSeen("leaf2", {1: False})),
    ]
