# SPDX-License-Identifier: Apache-2.0
"""The REST API over a real socket: the figures of the view come out, errors are for people."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest
from fake_source import CAPACITY, JOBS, MS, TOPOLOGY, Running, running, view
from hypothesis import given
from hypothesis import strategies as st

from controller.model.job import Confidence, Measurement, Phase, Profile
from controller.model.view import FallbackFlow, JobView, LinkLoad
from controller.northbound import render
from controller.northbound.paging import PageStart

DOC = Path(__file__).parents[3] / "docs" / "api.md"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(view(5)) as handle:
        yield handle


@pytest.fixture(scope="module")
def api(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url + "api/v1/", timeout=300) as client:
        yield client


def test_jobs_carry_times_levels_and_reasons(api: httpx.Client) -> None:
    body = api.get("jobs").raise_for_status().json()
    assert body["time_ns"] == view(5).time_ns
    assert [j["name"] for j in body["jobs"]] == ["resnet50", "vgg16", "vgg19"]
    vgg16 = body["jobs"][1]
    want = view(5).jobs[1]
    assert vgg16["recent_ms"] == list(want.recent_ms)
    assert vgg16["mean_ms"] == pytest.approx(want.mean_ms)
    assert (vgg16["level"], vgg16["dscp"], vgg16["shift_ms"], vgg16["period_ms"]) == (2, 36, 168, 336)
    assert vgg16["profile"] == {
        "period_ms": 336,
        "phases": [{"start_ms": 0, "end_ms": 112, "rate_bps": 21_000_000}],
    }
    assert vgg16["why"] == JOBS[1].why
    assert vgg16["intensity"] == 2.2e12


def test_flows_that_fell_back_are_told_with_their_reason() -> None:
    flow = next(iter(view(5).plan.flows))
    fell = FallbackFlow(flow, "h1", 50_000, 7, "9 % of packets sent again")
    shown = replace(view(5), fallback_flows=(fell,))
    flows = render.plan(shown.plan, shown.fallback_flows).flows
    assert [f.flow for f in flows if f.fallback_reason == fell.why] == [flow]
    assert sum(f.fallback_reason is None for f in flows) == len(shown.plan.flows) - 1
    with running(shown) as handle, httpx.Client(base_url=handle.url + "api/v1/", timeout=300) as api:
        for fallen in (True, False):
            body = api.get("flows", params={"fallback": fallen}).raise_for_status().json()
            assert {f["flow"] for f in body["flows"]} == (
                {flow} if fallen else shown.plan.flows.keys() - {flow}
            )
    owner = next(j for j in shown.jobs if j.name == flow.split("/")[0])
    detail = render.job_detail(owner, shown.plan, shown.fallback_flows)
    assert [f.fallback_reason for f in detail.flows if f.flow == flow] == [fell.why]


def test_a_job_tells_what_it_declares_from_what_was_measured() -> None:
    declared = JobView("a", "m", 8, ("h1",), 0, (), None, None, None, None, None, None)
    assert render.job(declared, None).measured is None
    measured = replace(
        declared,
        profile=Profile(260 * MS, (Phase(0, 120 * MS, 25),)),
        declared=Profile(300 * MS, (Phase(0, 150 * MS, 25),)),
        measured=Measurement(
            6, 121 * MS, 139 * MS, None, "iterations", Confidence(MS // 2, ((2 * MS, 3 * MS),))
        ),
        flops_per_iteration=1e15,
        changes=2,
    )
    shown = render.job(measured, None).model_dump()
    assert shown["profile"]["period_ms"] == 260
    assert shown["declared"]["period_ms"] == 300
    assert shown["measured"] == {
        "iterations": 6,
        "communication_ms": 121,
        "compute_ms": 139,
        "flops": None,
        "source": "iterations",
        "confidence": {"period_ms": 0.5, "edges_ms": ((2, 3),)},
    }
    assert (shown["pattern_changes"], shown["flops_per_iteration"]) == (2, 1e15)


def test_one_job_lists_its_own_flows_only(api: httpx.Client) -> None:
    body = api.get("jobs/resnet50").raise_for_status().json()
    assert [f["flow"] for f in body["flows"]] == ["resnet50/h3>h7", "resnet50/h7>h3"]
    assert body["flows"][0]["path"] == ["h3", "leaf1", "spine3", "leaf2", "h7"]
    assert {f["job"] for f in body["flows"]} == {"resnet50"}


def test_plan_has_policy_reasons_and_shared_links(api: httpx.Client) -> None:
    body = api.get("plan").raise_for_status().json()
    assert body["policy"] == {
        "name": "polyrhythm",
        "distribution": "polyrhythm",
        "version": version("polyrhythm"),
        "routing": "LeastCongested",
        "priority": "Crux",
        "timing": "Circles",
        "options": {
            "max_slowdown": 1.5,
            "priority.compress": True,
            "priority.levels": 6,
            "priority.loss_cap": None,
            "routing.balance": True,
            "routing.cap_epsilon": None,
            "routing.lookahead": False,
            "routing.max_moves": None,
            "routing.order": "intensity",
            "routing.spray": True,
            "timing.sender": "job",
        },
    }
    assert body["epoch_ns"] == 150 * MS
    assert [(j["job"], j["shift_ms"]) for j in body["jobs"]] == [
        ("resnet50", 21),
        ("vgg16", 168),
        ("vgg19", 0),
    ]
    assert len(body["flows"]) == 6
    assert all(f["why"] for f in body["flows"] + body["jobs"])
    assert body["links"][0] == {"src": "leaf1", "dst": "spine2", "jobs": ["vgg16", "vgg19"], "score": 1.0}
    assert body["next"] is None


def test_fabric_has_every_direction_of_every_cable(api: httpx.Client) -> None:
    body = api.get("fabric").raise_for_status().json()
    assert len(body["links"]) == 2 * (len(TOPOLOGY.links) + len(TOPOLOGY.hosts))
    by_ends = {(x["src"], x["dst"]): x for x in body["links"]}
    assert by_ends["spine2", "leaf1"]["src_port"] == 1
    assert by_ends["spine2", "leaf1"]["dst_port"] == 6
    assert by_ends["h1", "leaf1"]["src_port"] == 0
    assert {ends for ends, x in by_ends.items() if not x["up"]} == {("leaf1", "spine4"), ("spine4", "leaf1")}
    for load in view(5).links:
        assert by_ends[load.src, load.dst]["rate_bps"] == load.rate_bps
    assert {s["state"] for s in body["switches"]} == {"ready"}
    assert (body["verified_paths"], body["unverified_paths"]) == (6, 0)


def test_counters_are_filtered_by_switch(api: httpx.Client) -> None:
    every = api.get("counters").raise_for_status().json()["counters"]
    assert len(every) == len(view(5).counters)
    some = api.get("counters", params={"switch": ["leaf1", "spine2"]}).raise_for_status().json()["counters"]
    assert {c["switch"] for c in some} == {"leaf1", "spine2"}
    assert {(c["port"], c["peer"]) for c in some if c["switch"] == "spine2"} == {(1, "leaf1"), (2, "leaf2")}


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("jobs/gpt", "no job 'gpt'; present jobs: resnet50, vgg16, vgg19"),
        ("counters?switch=leaf9", "no switch 'leaf9'; present switches: leaf1, leaf2, spine1"),
        ("nothing", "no /nothing under /api/v1; legal: /healthz, /readyz, /plans, /plans/{version}, "),
        ("jobs/a/b", "no /jobs/a/b under /api/v1"),
        ("", "no / under /api/v1"),
    ],
)
def test_what_is_not_there_is_a_404_that_names_what_is(api: httpx.Client, path: str, says: str) -> None:
    answer = api.get(path)
    assert answer.status_code == 404
    assert answer.json()["detail"].startswith(says)


def test_other_methods_are_told_what_is_answered(api: httpx.Client) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        answer = api.request(method, "plan")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD"), method
        assert answer.json()["detail"] == f"{method} is not allowed here; legal: GET, HEAD"


def test_head_answers_as_get_does_without_a_body(api: httpx.Client) -> None:
    for path in ("healthz", "jobs", "jobs/vgg16", "openapi.json"):
        head, get = api.head(path), api.get(path)
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.content))
    assert api.head("jobs/gpt").status_code == 404


def test_counters_and_loads_are_read_for_whoever_asks() -> None:
    with running(view(0), reading_s=20) as handle, httpx.Client(base_url=handle.url, timeout=300) as api:
        for path, readings in (("counters", 1), ("fabric", 2)):
            handle.publish(view(0))
            with ThreadPoolExecutor(1) as pool:
                answer = pool.submit(api.get, f"api/v1/{path}")
                while not handle.watched:
                    assert not answer.done(), path
                    time.sleep(0.01)
                step = 0
                while not answer.done():
                    handle.publish(view(step := step + 1))
                    time.sleep(0.01)
            assert answer.result().json()["time_ns"] >= view(readings).time_ns, path
            assert not handle.watched


def test_before_the_first_view_and_the_first_plan() -> None:
    with running(None) as handle, httpx.Client(base_url=handle.url + "api/v1/", timeout=300) as api:
        for path in ("jobs", "jobs/vgg19", "plan", "fabric", "counters"):
            answer = api.get(path)
            assert answer.status_code == 503, path
            assert "not connected to its fabric yet" in answer.json()["detail"]
        handle.publish(replace(view(0), plan=None, jobs=(), switches=()))
        assert api.get("plan").status_code == 404
        assert "no plan yet" in api.get("plan").json()["detail"]
        assert api.get("jobs").json()["jobs"] == []
        assert {s["state"] for s in api.get("fabric").json()["switches"]} == {"connecting"}
        assert api.get("jobs/x").json()["detail"] == "no job 'x'; present jobs: none"


def test_openapi_describes_every_endpoint_and_its_errors(api: httpx.Client) -> None:
    document = api.get("openapi.json").raise_for_status().json()
    assert set(document["paths"]) == {
        f"/api/v1/{p}" for p in ("jobs", "jobs/{name}", "plan", "fabric", "counters", "healthz", "readyz")
    } | {
        f"/api/v1/{p}"
        for p in ("plans", "plans/{version}", "plans/{version}/rollback", "plan/dry-run", "placements")
    } | {
        f"/api/v1/{p}"
        for p in (
            "jobs/{name}/explain",
            "flows",
            "plans/{version}/diff",
            "jobs/{name}/declaration",
            "policy",
            "policies",
            "drains",
            "fabric/switches/{name}/drain",
            "fabric/links/{name}/drain",
            "stream",
            "fabric/switches",
            "fabric/switches/{name}",
            "fabric/switches/{name}/ports",
            "fabric/switches/{name}/queues",
            "fabric/switches/{name}/tables",
            "fabric/switches/{name}/tables/{table}",
            "fabric/links",
            "fabric/links/{name}",
            "fabric/links/{name}/circle",
            "fabric/hosts",
            "probes",
            "alarms",
            "history",
            "event-log",
            "audit",
            "fabric/cuts",
            "history/moment",
            "what-if",
            "fabric/links/{name}/cut",
            "jobs/{name}/blame",
        )
    }
    schemas = document["components"]["schemas"]
    for path, item in document["paths"].items():
        assert all(operation["summary"] for operation in item.values()), path
        for method, told in item.items():
            before = set() if path.endswith("z") else {"401", "429"} | ({"403"} if method != "get" else set())
            assert before <= told["responses"].keys(), (path, method)
            assert before or not {"401", "429"} & told["responses"].keys()
        operation = next(iter(item.values()))
        if path.endswith("z"):
            told = [operation["responses"][code]["content"]["application/json"] for code in ("200", "503")]
            assert told[0]["schema"] == told[1]["schema"]
        elif not path.endswith("/stream"):
            error = operation["responses"]["503"]["content"]
            problem = {"schema": {"$ref": "#/components/schemas/ProblemOut"}}
            assert error == {"application/problem+json": problem}, path
    events = document["paths"]["/api/v1/stream"]["get"]["responses"]["200"]["content"]
    assert list(events) == ["text/event-stream"]
    assert schemas["JobOut"]["description"] == "A live training job."


def test_answers_may_not_load_anything_from_elsewhere(server: Running, api: httpx.Client) -> None:
    for path in ("jobs", "docs", "../../"):
        assert "default-src 'self'" in api.get(path).headers["content-security-policy"]
    page = api.get("docs").text
    assert "swagger-ui" in page
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", page)
    for asset in re.findall(r"""(?:src|href)=["'](/[^"']+)""", page):
        assert httpx.get(server.url.rstrip("/") + asset).status_code == 200, asset


def test_every_endpoint_and_every_command_of_the_document_work(server: Running, api: httpx.Client) -> None:
    text = DOC.read_text()
    for path in api.get("openapi.json").json()["paths"]:
        assert f"`{path}`" in text, path
    commands = re.findall(r"^curl .*$", text, re.MULTILINE)
    assert len(commands) >= 3
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed: the document's commands cannot be run")
    for command in commands:
        words = shlex.split(command.replace("http://127.0.0.1:8080/", server.url))
        if command.endswith("/stream"):
            # It does not end by itself.
            words = ["sh", "-c", '"$@" | grep -m 1 time_ns', "sh", *words, "--max-time", "300"]
        out = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300).stdout
        assert "time_ns" in out or "version" in out, command


@given(
    load=st.floats(allow_nan=True, allow_infinity=True),
    rate=st.integers(0, 10**13),
    marks=st.integers(0, 10**9),
    up=st.booleans(),
)
def test_any_load_becomes_valid_json(load: float, rate: int, marks: int, up: bool) -> None:
    value = replace(view(0), links=(LinkLoad("leaf1", 5, "spine1", 1, rate, load, marks, up),))

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    body = json.loads(
        render.fabric(value, PageStart("fabric"), 1_000).model_dump_json(), parse_constant=refuse
    )
    links = {(x["src"], x["dst"]): x for x in body["links"]}
    measured = links["leaf1", "spine1"]
    assert (measured["rate_bps"], measured["marks"], measured["up"]) == (rate, marks, up)
    assert measured["load"] == (load if math.isfinite(load) else None)
    assert measured["capacity_bps"] == CAPACITY
    assert links["spine1", "leaf1"]["load"] is None


def test_a_job_that_no_plan_contains_says_why() -> None:
    shown = view(5)
    jobs = (replace(shown.jobs[0], left_out="it broke"), *shown.jobs[1:])
    first, second = (render.job(job, shown.plan) for job in jobs[:2])
    assert (first.left_out, second.left_out) == ("it broke", None)
    assert first.why == "left out of all plans, and its flows go by ECMP: it broke"
    assert second.why == JOBS[1].why


def test_a_job_that_no_longer_reports_says_so() -> None:
    shown = view(5)
    words = "no worker has reported an iteration for 3.0 s"
    jobs = (replace(shown.jobs[0], silence=words), *shown.jobs[1:])
    first, second = (render.job(job, shown.plan) for job in jobs[:2])
    assert (first.silence, second.silence) == (words, None)
    assert first.why == f"{JOBS[0].why}; {words}"
