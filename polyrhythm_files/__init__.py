# SPDX-License-Identifier: Apache-2.0
"""The one reader for every file that a person writes: scenarios, topologies, fabrics, agents, jobs.

A kind of file is a declared type (a `Section`); YAML, JSON and TOML are read alike, and every mistake is one
ConfigError: `file:line: path: what is wrong; legal: what would be right`. docs/files.md is the guide.
"""

from polyrhythm_files.convert import (
    MAX_WHOLE,
    Section,
    Whole,
    convert,
    described,
    finite,
    listed,
    unknown_key,
)
from polyrhythm_files.document import (
    LARGE,
    SUFFIXES,
    Document,
    Limits,
    is_text,
    parse_document,
    read_document,
    read_text,
    value_document,
)
from polyrhythm_files.errors import ConfigError, InvalidValueError, Loc, dotted, shown
from polyrhythm_files.schema import json_schema

__all__ = [
    "LARGE",
    "MAX_WHOLE",
    "SUFFIXES",
    "ConfigError",
    "Document",
    "InvalidValueError",
    "Limits",
    "Loc",
    "Section",
    "Whole",
    "convert",
    "described",
    "dotted",
    "finite",
    "is_text",
    "json_schema",
    "listed",
    "parse_document",
    "read_document",
    "read_text",
    "shown",
    "unknown_key",
    "value_document",
]
