# SPDX-License-Identifier: Apache-2.0
"""Schemathesis calls every route of the OpenAPI document, with legal and illegal input.

Every answer has a documented code, type and schema, and none is a 500.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_source import running, view
from hypothesis import HealthCheck, given, settings
from operated_core import operated_core

from controller.northbound.access_rules import AccessRules
from controller.northbound.tokens import Tokens, token_hash

# The stream does not end; test_event_feed.py reads it.
ENDLESS = "/stream"
KNOWN = {"Authorization": "Bearer sesame"}


@pytest.mark.slow
def test_every_route_answers_as_the_document_says(tmp_path: Path) -> None:
    # It takes seconds to import.
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis.checks import not_a_server_error

    routes = 0
    _, operations = operated_core()
    tokens = tmp_path / "tokens.json"
    tokens.write_text(
        json.dumps({"tokens": [{"name": "bob", "role": "operate", "sha256": token_hash("sesame")}]})
    )
    with running(view(5), operations=operations, rules=AccessRules(Tokens(tokens))) as server:
        document = schemathesis.openapi.from_url(
            server.url + "api/v1/openapi.json", headers=KNOWN, timeout=300
        )
        for result in document.get_all_operations():
            operation = result.ok()
            if operation.path.endswith(ENDLESS):
                continue
            routes += 1

            @given(operation.as_strategy())
            @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
            def call(case: object) -> None:
                # A made-up tag is refused with 412, as tests/controller/northbound/test_operations.py shows.
                (case.headers or {}).pop("If-Match", None)  # type: ignore[attr-defined]
                answer = case.call(headers=KNOWN, timeout=300)  # type: ignore[attr-defined]
                # 503 is documented: without a store there are no plans of the past.
                assert answer.status_code < 500 or answer.status_code == 503
                case.validate_response(answer, excluded_checks=[not_a_server_error])  # type: ignore[attr-defined]

            call()
    assert routes >= 25
