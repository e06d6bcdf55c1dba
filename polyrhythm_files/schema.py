# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas (2020-12) from the types that read the files, for editors and for checks elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import cleandoc
from typing import Any

import msgspec

from polyrhythm_files.convert import LARGEST, MAX_WHOLE


def json_schema(kinds: Sequence[type], title: str) -> dict[str, Any]:
    """The schema of files that are of one of these declared types."""
    (*roots,), components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    top = components.pop(kinds[0].__name__) if len(kinds) == 1 else {"anyOf": roots}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **top,
        "title": title,
        "$defs": components,
    }
    found: dict[str, Any] = _for_readers(schema)
    return found


def _for_readers(value: Any) -> Any:
    """Leave out the indentation of docstrings, which some releases of msgspec keep, and bounds that only keep
    infinity and numbers of more than 63 bits away.
    """
    if isinstance(value, dict):
        return {
            key: cleandoc(item) if key == "description" and isinstance(item, str) else _for_readers(item)
            for key, item in value.items()
            if not (key in ("minimum", "maximum") and abs(item) in (LARGEST, MAX_WHOLE))
        }
    if isinstance(value, list):
        return [_for_readers(item) for item in value]
    return value
