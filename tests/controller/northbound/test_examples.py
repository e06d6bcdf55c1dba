# SPDX-License-Identifier: Apache-2.0
"""Every operation of the OpenAPI document has an example of each thing that it takes and answers, and the
examples are legal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from fake_source import running, view
from operated_core import operated_core


@pytest.fixture(scope="module")
def api() -> Iterator[httpx.Client]:
    _, operations = operated_core()
    with (
        running(view(5), operations=operations) as server,
        httpx.Client(base_url=server.url, timeout=300) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def document(api: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = api.get("api/v1/openapi.json").raise_for_status().json()
    # An example has no field that its schema does not know.
    for schema in found["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method, path, operation


def test_every_operation_has_legal_examples(document: dict[str, Any]) -> None:
    checked = 0
    for method, path, operation in operations(document):
        bodies = [operation["requestBody"]] if "requestBody" in operation else []
        bodies += [answer for status, answer in operation["responses"].items() if status.startswith("2")]
        shown = [content for body in bodies for content in body.get("content", {}).values()]
        shown += [p for p in operation.get("parameters", ()) if p["required"] or "example" in p]
        for one in shown:
            assert "example" in one, f"{method} {path} lacks an example: {one}"
            schema = {**one["schema"], "components": document["components"]}
            jsonschema.Draft202012Validator(schema).validate(one["example"])
            checked += 1
    assert checked > 75


def test_requests_of_examples_are_understood(api: httpx.Client, document: dict[str, Any]) -> None:
    sent = 0
    for method, path, operation in operations(document):
        if "requestBody" not in operation:
            continue
        (content,) = operation["requestBody"]["content"].values()
        given = {p["name"]: p["example"] for p in operation.get("parameters", ()) if "example" in p}
        answer = api.request(method, path.format(**given), json=content["example"])
        # 409 and 404: the operation does not fit what is there now; 503: these servers keep no plans.
        assert answer.status_code in (200, 201, 404, 409, 503), (method, path, answer.text)
        sent += 1
    assert sent >= 9
