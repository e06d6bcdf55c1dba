# SPDX-License-Identifier: Apache-2.0
"""A pinned flow that goes bad falls back to ECMP, and is pinned again with hysteresis."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_rig import (
    MS,
    AgentProcess,
    Hub,
    assignment,
    config_text,
    eventually,
    job_text,
    serve_hub,
    status,
    welcome_and_pin,
)
from hypothesis import given
from hypothesis import strategies as st
from one_link import OneLink, TrainingJob

from hostagent.config import SafetySettings
from hostagent.safety import FlowCounters, FlowHealth, port_counters

WINDOW = 100 * MS


class Flow:
    """Feeds a guard one window after another."""

    def __init__(self, **settings: float) -> None:
        self.guard = FlowHealth(SafetySettings(**settings))  # type: ignore[arg-type]
        self.now = self.packets = self.again = 0

    def windows(self, count: int, *, packets: int = 100, lost: int = 0, latency_ms: float = 1.0) -> list[int]:
        """The windows, from 0, at whose end the guard changed its mind."""
        turned = []
        for index in range(count):
            self.now += WINDOW
            self.packets += packets
            self.again += lost
            if self.guard.judge(self.now, FlowCounters(self.packets, self.again, int(latency_ms * MS))):
                turned.append(index)
        return turned


def test_loss_beyond_the_threshold_for_three_windows_ends_the_pin() -> None:
    flow = Flow(loss_percent=2.0, windows=3)
    assert flow.windows(50, lost=2) == []
    assert flow.windows(2, lost=3) == []
    assert flow.windows(1) == []
    assert flow.windows(3, lost=3) == [2]
    assert flow.guard.fallen
    assert flow.guard.why == "3.0 % of packets retransmitted"


def test_a_dead_path_is_seen_by_single_packets_that_are_sent_again() -> None:
    """Time-outs double, so most windows are quiet. Quiet windows say nothing, and one new packet acquits."""
    flow = Flow(loss_percent=2.0, windows=3)
    for _ in range(2):
        assert flow.windows(1, packets=1, lost=1) == []
        assert flow.windows(5, packets=0) == []
    assert flow.windows(1, packets=1, lost=1) == [0]
    assert flow.guard.why == "100.0 % of packets retransmitted"
    waiting = Flow(loss_percent=2.0, windows=3)
    for _ in range(9):
        assert waiting.windows(2, packets=1, lost=1) == []
        assert waiting.windows(1, packets=2, lost=1) == []


def test_latency_by_factor_and_by_limit() -> None:
    flow = Flow(latency_factor=10.0, windows=2)
    flow.windows(5, latency_ms=0.5)
    assert flow.windows(3, latency_ms=4.9) == []
    assert flow.windows(2, latency_ms=5.1) == [1]
    assert "10 times the shortest" in flow.guard.why
    limit = Flow(latency_factor=0.0, latency_ms=3.0, windows=1)
    assert limit.windows(3, latency_ms=2.9) == []
    assert limit.windows(1, latency_ms=3.1) == [0]


def test_flows_that_share_a_full_link_stay_on_their_paths() -> None:
    """Their queue lengthens the round trip to more than 20 times the shortest: no other path would help."""
    link = OneLink(4)
    jobs = [TrainingJob(link, f"j{i}", i, ((120, 1, 140),), start_ms=7 * i) for i in range(4)]
    flows = [qp for job in jobs for qp in job.senders]
    guards = [FlowHealth(SafetySettings()) for _ in flows]
    strict = [FlowHealth(SafetySettings(latency_factor=20.0)) for _ in flows]

    def look() -> None:
        for qp, *pair in zip(flows, guards, strict, strict=True):
            for guard in pair:
                guard.judge(link.heap.now, FlowCounters(qp.packets, qp.retransmits, qp.latency_ns))
        link.heap.call_at(link.heap.now + WINDOW, look)

    link.heap.call_at(WINDOW, look)
    link.run(4_000 * MS)
    assert any(guard.fallen for guard in strict)
    assert not any(guard.fallen for guard in guards)


def test_a_window_without_traffic_says_nothing() -> None:
    flow = Flow(windows=1)
    assert flow.windows(20, packets=10, lost=9) == []
    assert flow.windows(20, packets=0, latency_ms=500) == []


def test_the_hold_doubles_with_each_fall_and_shrinks_after_a_long_good_time() -> None:
    flow = Flow(windows=1, hold_s=1.0, longest_hold_s=4.0, good_s=10.0)
    lengths = []
    for _ in range(4):
        assert flow.windows(1, lost=50) == [0]
        lengths.append(next(i for i in itertools.count(1) if flow.windows(1) == [0]))
        flow.windows(5)
    assert lengths == [10, 20, 40, 40]
    flow.windows(100)
    flow.windows(1, lost=50)
    assert flow.windows(11) == [9]


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60), st.floats(0, 100)), max_size=80))
def test_a_guard_never_swings_faster_than_its_hold(windows: list[tuple[int, int, float]]) -> None:
    flow = Flow(windows=2, hold_s=0.5, longest_hold_s=5.0)
    turns = []
    for packets, lost, latency in windows:
        if flow.windows(1, packets=packets, lost=min(packets, lost), latency_ms=latency):
            turns.append((flow.now, flow.guard.fallen))
    assert [fallen for _, fallen in turns] == [n % 2 == 0 for n in range(len(turns))]
    for (fell, fallen), (rose, _) in itertools.pairwise(turns):
        if fallen:
            assert rose - fell >= 500 * MS


def test_port_counters_of_a_recorded_device(tmp_path: Path) -> None:
    port = tmp_path / "mlx5_0" / "ports" / "1"
    for name, value in (
        ("counters/port_xmit_packets", 123456),
        ("hw_counters/local_ack_timeout_err", 3),
        ("hw_counters/packet_seq_err", 40),
        ("hw_counters/out_of_sequence", 999),
    ):
        (port / name).parent.mkdir(parents=True, exist_ok=True)
        (port / name).write_text(f"{value}\n")
    assert port_counters(port)() == (123456, 43)
    with pytest.raises(OSError, match="port_xmit_packets"):
        port_counters(tmp_path)()


def test_a_flow_into_a_dead_path_falls_back_and_is_tried_again(
    start_agent: Callable[..., AgentProcess], tmp_path: Path, addresses: dict[str, str], hub: tuple[Hub, str]
) -> None:
    """The far host is not there: everything is sent again. The flow goes by ECMP, then by its pin again."""
    path = str(tmp_path / "agent.sock")
    text = config_text(
        "h2", addresses["h2"], controller=hub[1], addresses=addresses, agent=f'socket = "{path}"',
        nic='driver = "udp"\nrate_mbps = 25.0\nretransmit_ms = 1.0',
        more=job_text(("h2", "h3"), tmp_path / "r", size=1_000_000)
        + "[safety]\nwindow_ms = 50.0\nwindows = 2\nhold_s = 0.3\n",
    )  # fmt: skip
    agent = start_agent(text)

    def fallen() -> set[tuple[bool, bool]]:
        flow = status(path)["flows"].get("a/h2>h3")
        return set() if flow is None else {(flow["fallen"], flow["source_port"] == 0xC777)}

    eventually(lambda: (False, True) in fallen(), "a pinned flow")
    eventually(lambda: (True, False) in fallen(), "the fall to another port")
    eventually(lambda: (False, True) in fallen(), "the pin again")
    assert agent.says("a/h2>h3 falls back to ECMP")
    assert agent.says("is pinned again")
    # The controller has heard of both, with the pin that went bad.
    made, _ = hub
    told = eventually(lambda: made.bodies("flow_fallback")[1:] and made.bodies("flow_fallback")[:2], "both")
    assert [(f.flow, f.on_ecmp, f.source_port) for f in told] == [
        ("a/h2>h3", True, 0xC777),
        ("a/h2>h3", False, 0xC777),
    ]
    assert "retransmitted" in told[0].why or "round trip" in told[0].why
    assert not told[1].why


def test_a_new_session_hears_of_open_and_fallen_flows(
    start_agent: Callable[..., AgentProcess], tmp_path: Path, addresses: dict[str, str]
) -> None:
    """A controller that has started again knows nothing: the agent asks for its open flows anew, and tells which
    of them it has taken off their pins."""
    where = f"unix:{tmp_path}/hub.sock"
    first, second = Hub(), Hub()
    server, _ = serve_hub(first, where)
    path = str(tmp_path / "agent.sock")
    text = config_text(
        "h2", addresses["h2"], controller=where, addresses=addresses, agent=f'socket = "{path}"',
        nic='driver = "udp"\nrate_mbps = 25.0\nretransmit_ms = 1.0',
        more=job_text(("h2", "h3"), tmp_path / "r", size=1_000_000)
        + "[safety]\nwindow_ms = 50.0\nwindows = 2\nhold_s = 600.0\nlongest_hold_s = 600.0\n",
    )  # fmt: skip
    start_agent(text)
    try:
        eventually(lambda: first.bodies("flow_fallback"), "the fall")
        server.stop(grace=0).wait()
        server, _ = serve_hub(second, where)
        eventually(lambda: second.bodies("flow_request"), "the question")
        kinds = [m.WhichOneof("body") for m in second.kept]
        order = [kinds.index(k) for k in ("hello", "job_join", "flow_fallback", "flow_request")]
        assert order == sorted(order)
        assert [f.on_ecmp for f in second.bodies("flow_fallback")] == [True]
        # The same pin again is no news: the flow stays where it is.
        eventually(lambda: status(path)["connected"], "the session")
        assert status(path)["flows"]["a/h2>h3"]["fallen"]
        # The session ends; the next controller has another path for the flow, and that counts at once.
        server.stop(grace=0).wait()
        third = Hub()
        third.answer = lambda m: (
            [assignment(m.flow_request.flow, 0xD123)] if m.HasField("flow_request") else welcome_and_pin(m)
        )
        server, _ = serve_hub(third, where)
        eventually(lambda: status(path)["flows"]["a/h2>h3"]["source_port"] == 0xD123, "the new path")
        assert [f.on_ecmp for f in eventually(lambda: third.bodies("flow_fallback")[1:], "the news")] == [
            False
        ]
    finally:
        server.stop(grace=0).wait()
