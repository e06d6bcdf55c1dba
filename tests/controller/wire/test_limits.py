# SPDX-License-Identifier: Apache-2.0
"""The table of limits in SECURITY.md is that of the sources, and each limit is used."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

from controller.wire import limits

ROOT = Path(__file__).parents[3]


def declared() -> dict[str, tuple[float, str]]:
    """Name -> value and description of each limit."""
    body = ast.parse(Path(limits.__file__).read_text()).body
    found = {}
    for node, text in pairwise(body):
        if isinstance(node, ast.AnnAssign):
            assert isinstance(node.target, ast.Name)
            assert isinstance(text, ast.Expr), f"{node.target.id} has no description"
            assert isinstance(text.value, ast.Constant)
            found[node.target.id] = getattr(limits, node.target.id), " ".join(str(text.value.value).split())
    return found


def test_the_documented_table_is_that_of_the_sources() -> None:
    section = (ROOT / "SECURITY.md").read_text().partition("## Limits\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{name}` | {value:,} | {what} |" for name, (value, what) in declared().items()]
    assert len(rows) > 10


def test_each_limit_is_used() -> None:
    tops = ("controller", "hostagent", "bmv2", "polyrhythm")
    sources = [p for top in tops for p in (ROOT / top).rglob("*.py") if p != Path(limits.__file__)]
    text = "\n".join(p.read_text() for p in sources)
    assert [name for name in declared() if name not in text] == []
