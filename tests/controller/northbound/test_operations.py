# SPDX-License-Identifier: Apache-2.0
"""The routes that change something, over a socket: statuses, tags, keys, roles, and two callers at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fake_source import plan, running, view
from operated_core import operated_core

from controller.model.plan import Plan
from controller.northbound.access_rules import AccessRules
from controller.northbound.operations import Operations
from controller.northbound.plan_routes import PastPlanOut
from controller.northbound.tokens import Tokens, token_hash
from controller.wire.job_name import LEGAL_JOB_NAME

JOB = {
    "name": "new",
    "gpus": 2,
    "hosts": ["h1", "h5"],
    "flows": [{"src": "h1", "dst": "h5", "bytes_per_iteration": 1_000_000}],
}


CANDIDATE = {
    "name": "new",
    "model": "",
    "gpus": 2,
    "hosts": ["h1", "h5"],
    "profile": {"period_ns": 0, "phases": []},
    "flops_per_iteration": 0.0,
    "flows": [],
}


@pytest.fixture
def api() -> Iterator[httpx.Client]:
    _, operations = operated_core()
    with (
        running(view(5), operations=operations) as server,
        httpx.Client(base_url=server.url + "api/v1/", timeout=300) as client,
    ):
        yield client


def test_a_job_is_declared_changed_and_ended(api: httpx.Client) -> None:
    made = api.post("jobs", json=JOB)
    assert (made.status_code, made.headers["location"]) == (201, "/api/v1/jobs/new")
    tag = made.headers["etag"]
    assert api.get("jobs/new/declaration").headers["etag"] == tag
    assert api.patch("jobs/new", json={"gpus": 4}, headers={"If-Match": '"other"'}).status_code == 412
    changed = api.patch("jobs/new", json={"gpus": 4}, headers={"If-Match": f'"x", {tag}'})
    assert (changed.status_code, changed.json()["gpus"]) == (200, 4)
    assert api.delete("jobs/new", headers={"If-Match": tag}).status_code == 412
    ended = api.delete("jobs/new", headers={"If-Match": changed.headers["etag"]})
    assert (ended.status_code, ended.content) == (204, b"")
    assert api.get("jobs/new/declaration").status_code == 404


def test_a_repeated_request_declares_one_job(api: httpx.Client) -> None:
    key = {"Idempotency-Key": "k1"}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: api.post("jobs", json=JOB, headers=key), range(4)))
    assert {(a.status_code, a.text) for a in answers} == {(201, answers[0].text)}
    assert api.post("jobs", json={**JOB, "gpus": 8}, headers=key).status_code == 409
    assert api.post("jobs", json=JOB).status_code == 409


WRONG_NAMES = ("", ".", "a/b", "a\n", "\u200b", "x" * 201, f"x@{JOB['hosts'][0]}", "{fault}\t")


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_a_wrong_name_is_told_in_one_sentence(api: httpx.Client, name: str) -> None:
    """The same for an odd character, a length and the end that only the controller gives."""
    said = api.post("jobs", json={**JOB, "name": name}).json()["detail"]
    assert said == f"{name!r} is wrong for a job's name; {LEGAL_JOB_NAME}"


def test_two_operators_do_not_undo_each_other(api: httpx.Client) -> None:
    seen = {"If-Match": api.get("drains").headers["etag"]}
    with ThreadPoolExecutor(2) as pool:
        codes = pool.map(
            lambda n: api.put(f"fabric/switches/spine{n}/drain", headers=seen).status_code, (1, 2)
        )
        assert sorted(codes) == [200, 412]
    assert len(api.get("drains").json()["drains"]) == 1
    seen = {"If-Match": api.get("policy").headers["etag"]}
    assert api.put("policy", json={"name": "crux"}, headers=seen).json()["policy"]["name"] == "crux"
    assert api.put("policy", json={"name": "ecmp"}, headers=seen).status_code == 412
    assert api.delete("policy", headers=seen).status_code == 412
    assert api.delete("policy", headers={"If-Match": "*"}).json()["chosen"] is False


def test_of_changes_that_come_at_once_with_one_tag_one_is_made(api: httpx.Client) -> None:
    """Each waits for another thread between the look at the tag and the change."""

    def codes(method: str, path: str, tag: str, bodies: list[dict[str, object]]) -> list[int]:
        with ThreadPoolExecutor(len(bodies)) as pool:
            answers = [
                pool.submit(api.request, method, path, json=body, headers={"If-Match": tag})
                for body in bodies
            ]
        return sorted(answer.result().status_code for answer in answers)

    tag = api.post("jobs", json=JOB).headers["etag"]
    assert codes("PATCH", "jobs/new", tag, [{"gpus": n} for n in range(3, 7)]) == [200, 412, 412, 412]
    tag = api.get("policy").headers["etag"]
    assert codes("PUT", "policy", tag, [{"name": name} for name in ("crux", "ecmp", "spray")]) == [
        200,
        412,
        412,
    ]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "jobs", "[]", 422),
        ("POST", "jobs", "{", 422),
        ("POST", "jobs", json.dumps({**JOB, "gpus": "9" * 5_000}), 422),
        ("POST", "jobs", '{"gpus": ' + "9" * 5_000 + "}", 400),
        ("POST", "jobs", json.dumps({**JOB, "period_ms": float("nan")}), 422),
        ("POST", "jobs", json.dumps({**JOB, "name": "\ud800"}), 409),
        ("POST", "jobs", json.dumps({**JOB, "model": "\ud800"}), 422),
        ("POST", "jobs", json.dumps({**JOB, "sender": "x"}), 422),
        *[("POST", "jobs", json.dumps({**JOB, "name": name}), 409) for name in WRONG_NAMES],
        ("POST", "jobs", json.dumps({**JOB, "flows": None, "traffic": {"data_bytes": 1e400}}), 409),
        ("POST", "jobs", json.dumps({**JOB, "flows": None, "traffic": {"queue_pairs": 2**70}}), 409),
        ("PATCH", "jobs/x", "{}", 404),
        ("DELETE", "jobs/%00", None, 404),
        ("PUT", "policy", json.dumps({"name": "crux", "options": {"priority.levels": 1 << 60}}), 409),
        ("PUT", "policy", json.dumps({"name": "crux", "options": {"priority.levels": []}}), 422),
        ("PUT", "policy", json.dumps({"name": "os:system"}), 409),
        ("PUT", "policy", json.dumps({"name": "../x", "options": {"__class__": 1}}), 409),
        ("PUT", "policy", json.dumps({"name": "crux", "options": {"priority.__class__": 1}}), 409),
        ("PUT", "fabric/switches/x%20y/drain", None, 404),
        ("PUT", "fabric/links/-/drain", None, 404),
        ("PUT", "fabric/links/leaf1-spine1/drain", '{"cut_off": "perhaps"}', 422),
        ("PUT", "fabric/links/leaf1-spine1/drain", '{"cut_off": 1}', 422),
        ("POST", "jobs", json.dumps({**JOB, "gpus": True}), 422),
        ("POST", "jobs", json.dumps({**JOB, "gpus": "2"}), 422),
        ("POST", "jobs", json.dumps({**JOB, "period_ms": False}), 422),
        ("POST", "placements", json.dumps({"candidates": [CANDIDATE | {"gpu": 2}]}), 409),
        ("POST", "placements", json.dumps({"candidates": [CANDIDATE | {"gpus": True}]}), 409),
        ("DELETE", "fabric/switches/spine1/drain", None, 404),
    ],
)
def test_bad_requests_are_refused_in_words(
    api: httpx.Client, method: str, path: str, body: str | None, status: int
) -> None:
    answer = api.request(method, path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert (said["status"], bool(said["detail"]), bool(said["title"])) == (status, True, True)


def test_roles_decide_who_may_change_what(tmp_path: Path) -> None:
    roles = ("read", "job", "operate")
    tokens = tmp_path / "tokens.json"
    rows = [{"name": role, "role": role, "sha256": token_hash(role)} for role in roles]
    tokens.write_text(json.dumps({"tokens": rows}))
    _, operations = operated_core()
    with running(view(5), rules=AccessRules(Tokens(tokens)), operations=operations) as server:

        def codes(method: str, path: str, body: object = None) -> list[int]:
            return [
                httpx.request(
                    method,
                    f"{server.url}api/v1/{path}",
                    json=body,
                    headers={"Authorization": f"Bearer {role}"},
                    timeout=60,
                ).status_code
                for role in roles
            ]

        assert codes("POST", "jobs", JOB) == [403, 201, 409]
        assert codes("PATCH", "jobs/new", {}) == [403, 200, 200]
        assert codes("DELETE", "jobs/new") == [403, 204, 404]
        assert codes("PUT", "policy", {"name": "crux"}) == [403, 403, 200]
        assert codes("DELETE", "policy") == [403, 403, 200]
        assert codes("PUT", "fabric/switches/spine1/drain") == [403, 403, 200]
        assert codes("DELETE", "fabric/switches/spine1/drain") == [403, 403, 204]
        assert codes("GET", "drains") == codes("GET", "policy") == codes("GET", "policies") == [200] * 3


def test_a_key_that_no_request_has_is_refused_with_the_legal_ones(api: httpx.Client) -> None:
    document = api.get("openapi.json").json()
    bodies = 0
    for path, item in document["paths"].items():
        for method, told in item.items():
            if "requestBody" not in told:
                continue
            given = {p["name"]: p["example"] for p in told.get("parameters", ()) if "example" in p}
            (content,) = told["requestBody"]["content"].values()
            body = {**content["example"], "no_such_key": 1}
            answer = api.request(method, f"../..{path.format(**given)}", json=body)
            assert answer.status_code == 422, path
            assert answer.json()["detail"].startswith("body: unknown key 'no_such_key'; legal: "), path
            assert all(key in answer.json()["detail"] for key in content["example"]), path
            bodies += 1
    assert bodies >= 9
    inner = api.post("jobs", json={**JOB, "flows": [{**JOB["flows"][0], "byte": 1}]}).json()["detail"]
    assert inner == "body.flows.0: unknown key 'byte'; legal: src, dst, bytes_per_iteration"


def test_a_candidate_placement_with_an_unknown_key_is_refused_with_its_place(api: httpx.Client) -> None:
    profile = {"period_ns": 9, "phases": [{"start_ns": 0, "end_ns": 4, "rate_bps": 1, "rate": 2}]}
    for changed, place in (
        ({"gpu": 2}, "candidates[1]: unknown key 'gpu'; legal: name, model, gpus"),
        (
            {"profile": profile},
            "candidates[1].profile.phases[0]: unknown key 'rate'; legal: start_ns, end_ns",
        ),
    ):
        answer = api.post("placements", json={"candidates": [CANDIDATE, CANDIDATE | changed]})
        assert (answer.status_code, answer.json()["detail"][: len(place)]) == (409, place)
    assert api.post("placements", json={"candidates": [CANDIDATE]}).status_code == 200


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ('"gpus": 0', "candidates[1].gpus: 0; legal: 1 to 1,000,000"),
        ('"gpus": -1', "candidates[1].gpus: -1; legal: 1 to 1,000,000"),
        (f'"gpus": {10**30}', "candidates[1].gpus: 1e+30; legal: 1 to 1,000,000"),
        ('"hosts": []', "candidates[1].hosts: ''; legal: a host or more, each once"),
        ('"hosts": ["h1", "h1"]', "candidates[1].hosts: 'h1, h1'; legal: a host or more, each once"),
        ('"hosts": ["h1", "h99"]', "job new: the fabric has no host named h99"),
        ('"name": ""', "candidates[1].name: '' is wrong for a job's name; legal: 1 to "),
        (
            '"flops_per_iteration": -1',
            "candidates[1].flops_per_iteration: -1; legal: a number from 0",
        ),
        (
            '"flops_per_iteration": 1e999',
            "candidates[1].flops_per_iteration: inf; legal: a number from 0",
        ),
        (
            '"profile": {"period_ns": -5, "phases": []}',
            "candidates[1].profile.period_ns: -5; legal: a whole number from 0",
        ),
    ],
)
def test_a_candidate_that_no_scheduler_can_place_is_refused(
    api: httpx.Client, changed: str, says: str
) -> None:
    good = json.dumps(CANDIDATE)
    body = f'{{"candidates": [{good}, {good[:-1]}, {changed}}}]}}'
    answer = api.post("placements", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (409, "application/problem+json")
    assert answer.json()["detail"].startswith(says)


def test_a_cut_that_another_operator_does_not_know_of_is_not_lost(api: httpx.Client) -> None:
    seen = {"If-Match": api.get("fabric/cuts").headers["etag"]}
    made = api.put("fabric/links/leaf1-spine1/cut", headers=seen)
    assert made.status_code == 200
    assert api.put("fabric/links/leaf1-spine2/cut", headers=seen).status_code == 412
    assert api.delete("fabric/links/leaf1-spine1/cut", headers=seen).status_code == 412
    listed = api.get("fabric/cuts")
    assert made.headers["etag"] == listed.headers["etag"] != seen["If-Match"]
    assert listed.json()["cuts"] == [{"name": "leaf1-spine1"}]
    now = {"If-Match": made.headers["etag"]}
    assert api.delete("fabric/links/leaf1-spine1/cut", headers=now).status_code == 204
    assert api.get("fabric/cuts").headers["etag"] == seen["If-Match"]


def test_a_whole_number_may_have_a_decimal_point(api: httpx.Client) -> None:
    made = api.post("jobs", json={**JOB, "gpus": 8.0, "period_ms": 2.0})
    assert (made.status_code, made.json()["gpus"], made.json()["period_ms"]) == (201, 8, 2)
    assert api.patch("jobs/new", json={"gpus": 8.5}).status_code == 422


class ThreePlans:
    """Plan 3 is in force, until an earlier one is again."""

    version = 3

    def in_force(self) -> Plan:
        return plan(self.version)

    async def history(self, most: int, before: int | None) -> tuple[PastPlanOut, ...]:
        versions = [n for n in (3, 2, 1) if before is None or n < before][:most]
        return tuple(
            PastPlanOut(version=n, time_ns=n, policy="ecmp", in_force=n == 3, reason="") for n in versions
        )

    async def roll_back(self, version: int) -> int:
        self.version += 1
        return self.version


def test_the_history_comes_in_pages() -> None:
    with (
        running(view(5), operations=Operations(plans=ThreePlans())) as server,
        httpx.Client(base_url=server.url + "api/v1/", timeout=300) as client,
    ):
        first = client.get("plans?most=2").json()
        last = client.get(f"plans?most=2&cursor={first['next']}").json()
        assert [p["version"] for p in first["plans"] + last["plans"]] == [3, 2, 1]
        assert last["next"] is client.get("plans").json()["next"] is None
        assert client.get("plans?cursor=YQ==").status_code == 404


def test_a_rollback_is_refused_if_another_plan_came_into_force() -> None:
    shown = view(5)
    with (
        running(shown, operations=Operations(plans=ThreePlans())) as server,
        httpx.Client(base_url=server.url + "api/v1/", timeout=300) as client,
    ):
        tag = client.get("plan").headers["etag"]
        assert client.get("plan?most=1").headers["etag"] == tag
        first, second = (client.post("plans/2/rollback", headers={"If-Match": tag}) for _ in range(2))
        assert (first.status_code, first.json()["version"], second.status_code) == (200, 4, 412)
        assert client.post("plans/2/rollback").status_code == 200
