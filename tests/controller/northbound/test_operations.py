# SPDX-License-Identifier: Apache-2.0
"""The routes that change something, over a socket: statuses, tags, keys, roles, and two callers at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fake_source import running, view
from operated_core import operated_core

from controller.northbound.access import AccessRules
from controller.northbound.tokens import Tokens, token_hash

JOB = {
    "name": "new",
    "gpus": 2,
    "hosts": ["h1", "h5"],
    "flows": [{"src": "h1", "dst": "h5", "bytes_per_iteration": 1_000_000}],
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


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "jobs", "[]", 422),
        ("POST", "jobs", "{", 422),
        ("POST", "jobs", json.dumps({**JOB, "gpus": "9" * 5_000}), 422),
        ("POST", "jobs", '{"gpus": ' + "9" * 5_000 + "}", 400),
        ("POST", "jobs", json.dumps({**JOB, "period_ms": float("nan")}), 422),
        ("POST", "jobs", json.dumps({**JOB, "name": "\ud800"}), 422),
        ("POST", "jobs", json.dumps({**JOB, "sender": "x"}), 422),
        ("POST", "jobs", json.dumps({**JOB, "name": "a/b"}), 409),
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
