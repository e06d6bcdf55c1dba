# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas (2020-12) from the types that read the files, for editors and for checks elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from polyrhythm_files.convert import LARGEST


def json_schema(kinds: Sequence[type], title: str) -> dict[str, Any]:
    """The schema of files that are of one of these declared types."""
    (*roots,), components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    top = roots[0] if len(roots) == 1 else {"anyOf": roots}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **top,
        "$defs": components,
    }
    found: dict[str, Any] = _without_bounds_of_float(schema)
    return found


def _without_bounds_of_float(value: Any) -> Any:
    """Leave out bounds that say only that a number is finite, which every number of JSON is."""
    if isinstance(value, dict):
        return {
            key: _without_bounds_of_float(item)
            for key, item in value.items()
            if not (key in ("minimum", "maximum") and abs(item) == LARGEST)
        }
    if isinstance(value, list):
        return [_without_bounds_of_float(item) for item in value]
    return value
