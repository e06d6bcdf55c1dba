# SPDX-License-Identifier: Apache-2.0
"""The parts of the fabric over HTTP: switches, ports, cables, tables, circles, probes, alarms, the past."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from control_rig import job
from fake_source import TOPOLOGY, running, view
from operated_core import operated_core

from controller.live.messages import WorkerJoined
from controller.model.view import Alarm, LinkLoad, ProbeHop, ProbeView
from controller.planner import plan

FLOW = "vgg19/h1>h5"


@pytest.fixture(scope="module")
def api() -> Iterator[httpx.Client]:
    core, operations = operated_core()
    for member in (job("a", "h1", "h5"), job("b", "h2", "h6")):
        for rank, host in enumerate(member.hosts):
            core.handle(WorkerJoined(host, rank, member))
    core.adopt(plan(core.plan_input()))
    hop = ProbeHop("leaf1", 1, 5, 12, 6, 3)
    shown = replace(
        view(3),
        links=(LinkLoad("leaf1", 5, "spine1", 1, 12, 0.5, 4, True, 7),),
        probes={FLOW: ProbeView(9, (hop,))},
        unverified_flows=frozenset({"vgg16/h2>h6"}),
        alarms=(Alarm("silent_switch", "leaf2", 5, "it is silent"), Alarm("history_off", "", 6, "no store")),
        measured_ns=77,
        drained_switches=frozenset({"spine3"}),
        down_switches=frozenset({"spine3", "spine4"}),
    )
    with (
        running(shown, operations=operations) as server,
        httpx.Client(base_url=server.url + "api/v1/", timeout=300) as client,
    ):
        yield client


def answer(api: httpx.Client, path: str) -> Any:
    return api.get(path).raise_for_status().json()


def test_the_fabric_is_paged_over_all_its_lists(api: httpx.Client) -> None:
    whole, found, cursor = answer(api, "fabric?most=1000"), {"switches": [], "hosts": [], "links": []}, ""
    assert whole["next"] is None
    while cursor is not None:
        page = answer(api, f"fabric?most=7{cursor and f'&cursor={cursor}'}")
        assert sum(len(page[key]) for key in found) <= 7
        for key, rows in found.items():
            rows.extend(page[key])
        cursor = page["next"]
    assert found == {key: whole[key] for key in found}
    other = answer(api, "fabric/switches?most=2")["next"]
    assert api.get(f"fabric?cursor={other}").status_code == 404


def test_lists_are_pages_and_every_item_comes_once(api: httpx.Client) -> None:
    sizes = {t["name"]: t["desired"] for t in answer(api, "fabric/switches/leaf1/tables")["tables"]}
    for path, key, count in (
        ("fabric/switches", "switches", len(TOPOLOGY.switches)),
        ("fabric/links", "links", 2 * (len(TOPOLOGY.links) + len(TOPOLOGY.hosts))),
        ("fabric/hosts", "hosts", len(TOPOLOGY.hosts)),
        ("fabric/switches/leaf1/ports", "ports", len(TOPOLOGY.ports["leaf1"])),
        ("fabric/switches/leaf1/queues", "queues", 8 * len(TOPOLOGY.ports["leaf1"])),
        ("fabric/switches/leaf1/tables/queue", "entries", sizes["queue"]),
        ("probes", "probes", 6),
        ("history?kind=loads", "series", 2 * (len(TOPOLOGY.links) + len(TOPOLOGY.hosts))),
    ):
        found, cursor = [], ""
        while True:
            more = answer(api, f"{path}{'&' if '?' in path else '?'}most=5{cursor}")
            found += [str(item) for item in more[key]]
            if more["next"] is None:
                break
            cursor = f"&cursor={more['next']}"
        assert len(found) == count, path
        assert len(set(found)) == count, path
        assert api.get(f"{path.partition('?')[0]}?kind=loads&cursor=%FF").status_code == 404, path


def test_unknown_is_null_and_down_is_not_drained(api: httpx.Client) -> None:
    links = {(k["name"], k["src"]): k for k in answer(api, "fabric/links?most=1000")["links"]}
    known = links["leaf1-spine1", "leaf1"]
    assert (known["load"], known["marks"], known["queue_packets"]) == (0.5, 4, 7)
    other = links["leaf1-spine1", "spine1"]
    assert (other["load"], other["marks"], other["rate_bps"], other["queue_packets"]) == (None,) * 4
    ports = {p["peer"]: p for p in answer(api, "fabric/switches/leaf1/ports")["ports"]}
    assert (ports["spine1"]["cable"], ports["spine1"]["load"]) == ("leaf1-spine1", 0.5)
    assert (ports["h1"]["cable"], ports["h1"]["load"]) == ("h1-leaf1", None)
    assert [k["src"] for k in answer(api, "fabric/links/leaf1-spine1")["links"]] == ["leaf1", "spine1"]
    switches = {
        s["name"]: (s["drained"], s["down"]) for s in answer(api, "fabric/switches?tier=spine")["switches"]
    }
    assert switches == {
        "spine1": (False, False),
        "spine2": (False, False),
        "spine3": (True, False),
        "spine4": (False, True),
    }
    assert answer(api, "fabric/switches/spine3")["drained"]
    assert answer(api, "fabric/links")["measured_ns"] == 77


def test_probes_and_alarms(api: httpx.Client) -> None:
    probes = {p["flow"]: p for p in answer(api, "probes")["probes"]}
    assert probes[FLOW]["state"] == "verified"
    assert probes[FLOW]["hops"][0]["queue_packets"] == 3
    assert probes["vgg16/h2>h6"]["state"] == "unverified"
    assert probes["vgg16/h6>h2"]["state"] == "pending"
    assert {p["job"] for p in answer(api, "probes?job=vgg16")["probes"]} == {"vgg16"}
    other, alarm = answer(api, "alarms")["alarms"]
    assert (other["name"], other["subject"]) == ("history_off", "")
    assert (alarm["name"], alarm["since_ns"]) == ("silent_switch/leaf2", 5)


def test_tables_show_what_should_be_there_when_the_switch_is_silent(api: httpx.Client) -> None:
    tables = {t["name"]: t for t in answer(api, "fabric/switches/leaf1/tables")["tables"]}
    assert tables["next_hop"]["desired"] > 0
    assert tables["next_hop"]["actual"] is None
    (entry, *_) = answer(api, "fabric/switches/leaf1/tables/next_hop")["entries"]
    assert entry["missing"] is None
    assert entry["params"]["dst_mac"].count(":") == 5
    assert api.get("fabric/switches/leaf1/tables/next_hop?state=actual").status_code == 503
    for path in (
        "fabric/switches/leaf9/tables",
        "fabric/switches/leaf1/tables/none",
        "fabric/links/x",
        "fabric/switches/x",
    ):
        wrong = api.get(path)
        assert wrong.status_code == 404, path
        assert "legal" in wrong.json()["detail"], path


def test_a_circle_shows_the_jobs_of_a_direction_and_tries_shifts(api: httpx.Client) -> None:
    shared = answer(api, "fabric/links/h1-leaf1/circle?src=h1")
    assert [arc["job"] for arc in shared["jobs"]] == ["a"]
    assert (shared["src"], shared["dst"], shared["score"]) == ("h1", "leaf1", 1.0)
    assert shared["jobs"][0]["phases"][0]["end_ms"] == 120.0
    assert answer(api, "fabric/links/h1-leaf1/circle?src=leaf1")["dst"] == "h1"
    assert api.get("fabric/links/h1-leaf1/circle?src=leaf2").status_code == 404
    refused = api.post("fabric/links/h1-leaf1/circle", json={"shifts_ms": {"none": 1}})
    assert refused.status_code == 409
    assert "not held to slots" in refused.json()["detail"]
    assert api.post("fabric/links/h1-leaf1/circle", json={"shifts_ms": {}}).status_code == 422


def test_the_past_of_what_is_not_there_is_a_404_or_empty(api: httpx.Client) -> None:
    assert answer(api, "history?kind=iterations")["times_ns"] == []
    assert [s["subject"] for s in answer(api, "history?kind=iterations")["series"]] == ["a", "b"]
    assert api.get("history?kind=iterations&subject=x").status_code == 404
    assert answer(api, "event-log")["events"] == []
    assert answer(api, "jobs/a/blame")["iterations"] == []
    assert api.get("jobs/x/blame").status_code == 404
