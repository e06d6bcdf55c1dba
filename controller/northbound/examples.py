# SPDX-License-Identifier: Apache-2.0
"""Examples of requests and answers in the OpenAPI document, from `examples.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("examples.json")


def add_examples(document: dict[str, Any], prefix: str) -> None:
    """Give each operation of the document its example: parameters, request and answer.

    The file has them by method and path below `prefix`. An operation without one stays as it is.
    """
    examples: dict[str, dict[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))
    for path, item in document["paths"].items():
        for method, operation in item.items():
            found = examples.get(f"{method} {path.removeprefix(prefix)}", {})
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in found.get("parameters", {}):
                    parameter["example"] = found["parameters"][parameter["name"]]
            if "request" in found:
                _give(operation["requestBody"], found["request"])
            for status, answer in operation["responses"].items():
                if status.startswith("2") and "answer" in found:
                    _give(answer, found["answer"])


def _give(described: dict[str, Any], example: object) -> None:
    for content in described.get("content", {}).values():
        content["example"] = example
