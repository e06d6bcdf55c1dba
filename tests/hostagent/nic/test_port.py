# SPDX-License-Identifier: Apache-2.0
"""NICs that choose ports themselves or keep a queue pair's DSCP: what they do, and what their agents tell."""

from __future__ import annotations

import pytest
from host_bench import MS
from training_rig import WELCOME, Cluster, job

from controller.wire import agent_pb2 as pb

FLOW = "a/h0>h1"


def assign(cluster: Cluster, port: int, dscp: int) -> None:
    said = pb.FlowAssignment(flow=FLOW, source_port=port, dscp=dscp)
    cluster.hosts["h0"].agent.on_message(pb.ControllerMessage(flow=said))


def sent(cluster: Cluster) -> list[tuple[int, int]]:
    """(source port, DSCP) of each data frame that h0 sends from now on."""
    seen: list[tuple[int, int]] = []
    inner = cluster.hosts["h0"].nic._transmit

    def watch(frame: bytes) -> None:
        if frame[42] in (0, 1, 2):
            seen.append((int.from_bytes(frame[34:36], "big"), frame[15] >> 2))
        inner(frame)

    cluster.hosts["h0"].nic._transmit = watch
    return seen


def opened(cluster: Cluster) -> list[tuple[str, int, int]]:
    return [
        (m.flow_opened.flow, m.flow_opened.source_port, m.flow_opened.dscp)
        for _, m in cluster.bodies("h0", "flow_opened")
    ]


@pytest.mark.parametrize(
    ("nic", "pinning", "dscp", "later"),
    [
        ({}, "emulated", "qp", (0xC043, 28)),
        ({"keeps_dscp": True}, "emulated", "fixed", (0xC043, 30)),
        ({"chooses_ports": True}, "none", "qp", (None, 28)),
        ({"chooses_ports": True, "keeps_dscp": True}, "none", "fixed", (None, 30)),
    ],
)
def test_what_a_nic_keeps_it_keeps(
    nic: dict[str, bool], pinning: str, dscp: str, later: tuple[int | None, int]
) -> None:
    cluster = Cluster(**nic)
    cluster.connect()
    (hello,) = [m.hello for _, m in cluster.bodies("h0", "hello")]
    assert (hello.pinning, hello.dscp) == (pinning, dscp)
    cluster.run_job(job(), 30, 3)
    cluster.heap.run(17 * MS)
    seen = sent(cluster)
    assign(cluster, 0xC042, 30)
    cluster.heap.run(60 * MS)
    ((port, first),) = set(seen)
    assert first == 30
    assert (port == 0xC042) is (pinning != "none")
    assert 0xC000 <= port <= 0xFFFF
    # What the plan does not decide alone, the agent tells as soon as the queue pair is open.
    assert opened(cluster) == ([] if nic == {} else [(FLOW, port, 30)])
    assign(cluster, 0xC043, 28)
    del seen[:]
    cluster.heap.run(1_000 * MS)
    assert set(seen[-200:]) == {(later[0] or port, later[1])}


def test_a_port_that_the_agent_draws_is_told_where_the_dscp_is_kept() -> None:
    cluster = Cluster(keeps_dscp=True)
    cluster.connect()
    cluster.run_job(job(), 30, 3)
    cluster.heap.run(17 * MS)
    assign(cluster, 0xC042, 30)
    assign(cluster, 0, 26)
    own = cluster.hosts["h0"].agent.source_port(FLOW)
    assert opened(cluster) == [(FLOW, 0xC042, 30), (FLOW, own, 30)]


def test_another_controller_is_told_of_what_is_open() -> None:
    cluster = Cluster(chooses_ports=True)
    cluster.connect()
    cluster.run_job(job(), 30, 3)
    cluster.heap.run(17 * MS)
    assign(cluster, 0xC042, 30)
    before = opened(cluster)
    cluster.hosts["h0"].agent.session_lost()
    cluster.hosts["h0"].agent.session_up()
    cluster.hosts["h0"].agent.on_message(WELCOME)
    assert opened(cluster) == before * 2
    kinds = [m.WhichOneof("body") for _, who, m in cluster.said if who == "h0"]
    assert kinds[-3:] == ["job_join", "flow_opened", "flow_request"]
