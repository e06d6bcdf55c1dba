# SPDX-License-Identifier: Apache-2.0
"""What the architecture page, the glossary, the decisions and CONTRIBUTING name exists in the sources."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / "docs" / name for name in ("architecture.md", "glossary.md", "data-plane.md", "tofino.md")),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
]
ROOMS = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".")} - {"out", "site"}
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"^(?P<path>[A-Za-z0-9_]+(?:/[A-Za-z0-9_.-]+)*/?)(?:: (?P<name>[A-Za-z_][\w.]*))?$")
DOTTED = re.compile(r"^[a-z_][a-z0-9_]*(\.[A-Za-z_]\w*)+$")


def spans(page: Path) -> list[str]:
    """The words in `code`, without fenced blocks."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S)
    return SPAN.findall(text)


@cache
def names_in(module: Path) -> frozenset[str]:
    """Top-level names of a module, and `Class.member` for what its classes define."""
    found = set()

    def take(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    take(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(prefix + node.target.id)
            elif isinstance(node, ast.Assign):
                found.update(
                    prefix + n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)
                )
            elif isinstance(node, ast.ImportFrom) and module.name == "__init__.py":
                found.update(prefix + (a.asname or a.name) for a in node.names)

    take(ast.parse(module.read_text()).body, "")
    return frozenset(found)


def missing_path(path: str, name: str | None) -> bool:
    target = ROOT / path
    if not target.exists():
        return True
    if name is None:
        return False
    if target.suffix == ".py":
        return name not in names_in(target)
    return name not in target.read_text()


def missing_dotted(dotted: str) -> bool:
    parts = dotted.split(".")
    if (ROOT / dotted).exists():
        return False
    for n in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:n])
        rest = ".".join(parts[n:])
        for module in (base.with_suffix(".py"), base / "__init__.py"):
            if module.is_file() and (not rest or rest in names_in(module)):
                return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    wrong = []
    for span in spans(page):
        path = PATH.match(span)
        if "a/b/" in span:
            # An example of a place.
            continue
        if path and "/" in span and path["path"].split("/")[0] in ROOMS:
            if missing_path(path["path"], path["name"]):
                wrong.append(span)
        elif DOTTED.match(span) and span.split(".")[0] in ROOMS and missing_dotted(span):
            wrong.append(span)
    assert wrong == [], "renamed or removed: change the page"


def test_a_reader_finds_the_three_places() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for question in (
        "Where is a flow's source port chosen?",
        "Where is a job held to its slot?",
        "Where is a switch entry written?",
    ):
        line = next(line for line in text.splitlines() if question in line)
        assert SPAN.search(line), f"name module and function: {question}"
