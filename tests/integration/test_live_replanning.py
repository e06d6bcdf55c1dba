# SPDX-License-Identifier: Apache-2.0
"""Jobs that arrive, leave and are placed anew, on a live fabric: each time levels at agents and in switches
follow, and who need not move keeps its DSCP (CRUX, section 5)."""

import pytest
from live_rig import live

# Four jobs on one cable, one more intense than the next. Two NICs keep the DSCP that a queue pair began with.
TEXT = """
name: replanning
fabric: {kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 4, host_gbps: 50, fabric_gbps: 50}
nics: {keeps_dscp: true, hosts: [h2, h3]}
jobs:
""" + "".join(
    f"""  - {{name: {name}, model: any, gpus: {gpus}, hosts: [h{i}, h{i + 4}], period_ms: {period},
     phases: [{{start_ms: 0, end_ms: 90, gbps: 50}}]}}
"""
    for i, (name, gpus, period) in enumerate(
        (("a", 64, 210), ("b", 16, 190), ("c", 4, 170), ("d", 1, 150)), 1
    )
)


def planned(here):
    """The DSCP that agents were told for each job: one for all its flows."""
    found = {}
    for host in here.fabric.hosts.values():
        for flow, pin in host.agent.pins.items():
            found.setdefault(flow.partition("/")[0], set()).add(pin.dscp)
    assert all(len(dscps) == 1 for dscps in found.values())
    return {job: dscps.pop() for job, dscps in sorted(found.items())}


def remarked(here):
    """What leaf1 makes of the DSCPs that its hosts' NICs keep: (host's port, DSCP sent) -> DSCP."""
    found = here.fabric.switches["leaf1"].table("remark_flow").entries()
    return {(e.match[0].value, e.match[1].value): e.params[0] for e in found}


def sent(here, until_ms):
    """The DSCPs of the data that leaves each host from now on."""
    here.left.clear()
    here.run(until_ms)
    return {host: set(counts) for host, counts in sorted(here.left.items())}


@pytest.mark.slow
def test_levels_follow_arrivals_departures_and_new_placements(tmp_path, start_controller):
    with live(tmp_path, start_controller, "crux", TEXT) as here:
        here.start("b", 50)
        here.start("c", 80)
        here.run(400)
        first = planned(here)
        assert first["b"] > first["c"]
        assert remarked(here) == {}

        here.start("a", 420)
        here.run(600)
        three = planned(here)
        assert three["a"] > three["b"] > three["c"] == first["c"]
        # h6 says what it was told; h2 says what it said, and leaf1 gives it the plan's.
        said = sent(here, 800)
        assert said["h1"] == {three["a"]}
        assert (said["h2"], said["h6"]) == ({first["b"]}, {three["b"]})
        assert remarked(here) == {(2, first["b"]): three["b"]}

        # The least of all comes and goes: nobody else hears of it.
        here.start("d", 820)
        here.run(1000)
        four = planned(here)
        assert four.pop("d") <= four["c"]
        assert four == three
        here.stop("d")
        here.run(1040)
        assert planned(here) == three
        # Nor need those who stay move when the first of all is gone.
        here.stop("a")
        here.run(1080)
        assert planned(here) == {"b": three["b"], "c": three["c"]}
        assert remarked(here) == {(2, first["b"]): three["b"]}

        # A job that is placed anew leaves nothing behind, and takes its place in the order with it.
        here.stop("b")
        here.run(1100)
        assert remarked(here) == {}
        here.start("b", 1150, "h1", "h5")
        here.run(1250)
        last = planned(here)
        assert last["b"] > last["c"] == three["c"]
        said = sent(here, 1500)
        assert said["h1"] == said["h5"] == {last["b"]}
        assert "h2" not in said
        assert here.flow("b/h1>h5")["path"][:2] == ["h1", "leaf1"]
