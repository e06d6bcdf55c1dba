# SPDX-License-Identifier: Apache-2.0
"""The whole loop on the embedded fabric: NICs that keep ports or DSCPs, and switches that make up for it."""

import pytest
from control_rig import eventually
from live_rig import live

# Two jobs on one cable that no shift reconciles: the second to arrive has more GPUs, and goes first.
TEXT = """
name: live
fabric: {{kind: leaf_spine, leaves: 2, spines: {spines}, hosts_per_leaf: 2, host_gbps: 50, fabric_gbps: 50}}
jobs:
  - {{name: dlrm, model: DLRM, gpus: 2, hosts: [h2, h4], period_ms: 170,
     phases: [{{start_ms: 0, end_ms: 130, gbps: 50}}]}}
  - {{name: gpt, model: GPT, gpus: 16, hosts: [h1, h3], period_ms: 210,
     phases: [{{start_ms: 0, end_ms: 110, gbps: 50}}]}}
{more}
"""


@pytest.mark.slow
def test_a_queue_pair_that_keeps_its_dscp_is_queued_by_the_plans(tmp_path, start_controller):
    more = "nics: {keeps_dscp: true, hosts: [h2]}"
    with live(tmp_path, start_controller, "crux", TEXT.format(spines=1, more=more)) as here:
        here.start("dlrm", 50)
        here.run(300)
        uplink = 3
        assert set(here.left["h2"]) == {30}
        assert here.queued("leaf1")[uplink, 6] >= here.left["h2"][30]
        assert here.flow("dlrm/h2>h4")["sent_dscp"] is None
        # A job that goes first arrives in mid-job.
        here.start("gpt", 320)
        here.run(500)
        planned = here.flow("dlrm/h2>h4")
        assert planned["sent_dscp"] == 30
        assert planned["dscp"] < 30
        assert here.flow("dlrm/h4>h2")["sent_dscp"] is None
        here.left.clear()
        before = here.queued("leaf1")
        here.run(900)
        after = here.queued("leaf1")
        # h2 says what it said before; h4, whose NIC can, says what it was told.
        assert set(here.left["h2"]) == {30}
        assert set(here.left["h4"]) == {planned["dscp"]}
        queue = {26: 5, 22: 4, 18: 3, 14: 2, 10: 1}[planned["dscp"]]
        gained = after.get((uplink, queue), 0) - before.get((uplink, queue), 0)
        assert gained == here.left["h2"][30] > 100
        # With its job the entry goes.
        switches = here.fabric.switches
        assert len(switches["leaf1"].table("remark_flow").entries()) == 1
        here.stop("dlrm")
        here.run(1000)
        assert [switches["leaf1"].table(t).entries() for t in ("remark", "remark_flow")] == [[], []]


@pytest.mark.slow
def test_ports_of_the_nics_own_choice_are_pinned_to_the_plans_paths(tmp_path, start_controller):
    more = "nics: {chooses_ports: true}"
    text = TEXT.format(spines=2, more=more)
    with live(tmp_path, start_controller, "routing", text, read_back_ms=100) as here:
        here.start("dlrm", 50)
        here.start("gpt", 50)
        here.run(400)
        flows = [here.flow(f) for f in ("dlrm/h2>h4", "dlrm/h4>h2", "gpt/h1>h3", "gpt/h3>h1")]
        assert len({tuple(f["path"][1:4]) for f in flows}) == 4
        for f in flows:
            host = here.fabric.hosts[f["path"][0]]
            (qp,) = [q for q in host.nic._requesters.values() if q.flow == f["flow"]]
            assert qp.source_port == f["source_port"]
        entries = {
            leaf: here.fabric.switches[leaf].table("pinned_flow").entries() for leaf in ("leaf1", "leaf2")
        }
        pinned = [f for f in flows if f["pinned_in"]]
        assert sum(map(len, entries.values())) == len(pinned)
        view = eventually(lambda: here.controller.api("fabric"), "the fabric")
        assert (view["verified_paths"], view["unverified_paths"]) == (4, 0)
        tables = {s["name"]: s["tables"] for s in view["switches"]}
        assert sum(t.get("pinned_flow", 0) for t in tables.values()) == len(pinned)
        # Reading back by fabric time has found nothing amiss.
        assert here.controller.says("switch leaf1: read back ")
        assert not here.controller.says("WARNING controller.southbound.fleet")
        # The entries go with their jobs.
        here.stop("dlrm")
        here.stop("gpt")
        here.run(450)
        assert [here.fabric.switches[leaf].table("pinned_flow").entries() for leaf in entries] == [[], []]


@pytest.mark.slow
def test_where_no_probe_may_be_sent_an_unknown_hash_leaves_no_flow_to_chance(tmp_path, start_controller):
    text = TEXT.format(spines=2, more="hash: unknown")
    with live(tmp_path, start_controller, "routing", text, verify=False) as here:
        here.start("dlrm", 50)
        here.start("gpt", 50)
        here.run(400)
        flows = [here.flow(f) for f in ("dlrm/h2>h4", "dlrm/h4>h2", "gpt/h1>h3", "gpt/h3>h1")]
        assert [f["pinned_in"] for f in flows] == [["leaf1"], ["leaf2"], ["leaf1"], ["leaf2"]]
        assert len({tuple(f["path"][1:4]) for f in flows}) == 4
        # Each uplink carries one job's data, and the other's acknowledgements.
        queue = {30: 6, 26: 5}[flows[0]["dscp"]]
        sent = {f["path"][2]: here.left[f["path"][0]][f["dscp"]] for f in (flows[0], flows[2])}
        admitted = here.queued("leaf1")
        assert {"spine1": admitted[3, queue], "spine2": admitted[4, queue]} == sent
