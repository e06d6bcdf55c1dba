# SPDX-License-Identifier: Apache-2.0
"""Rules of style that hold for every source file: names, length, licence."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(p.parent.name for p in ROOT.glob("*/__init__.py"))
LONGEST_MODULE = 420
"""Lines. Chosen: what one still reads as one subject; see the style rules in docs/."""

WIRE_FORMS: dict[str, str] = {}
"""Public class names that may occur twice, each with the reason: one is the wire form of the other."""

PRIVATE_WORDS = {
    *(
        "ahead",
        "behind",
        "copying",
        "crowd",
        "declared",
        "door",
        "following",
        "forecast",
        "foresight",
        "guest",
    ),
    *("hold", "keep", "kept", "prompt", "rhythm", "rivals", "showing", "singles", "told", "turns", "worth"),
}
"""Words that earlier modules were named by and that no reader from outside understands."""


def sources() -> list[Path]:
    found = [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]
    return [p for p in found if "_pb2" not in p.name]


def test_every_package_is_looked_at() -> None:
    assert {"bmv2", "controller", "hostagent", "polyrhythm", "sim", "topo"} <= set(PACKAGES)


def test_no_public_class_name_occurs_twice() -> None:
    places = defaultdict(list)
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: where for name, where in places.items() if len(where) > 1}
    new = {name: where for name, where in twice.items() if name not in WIRE_FORMS}
    assert new == {}, "give the class of the higher floor a more precise name"
    assert set(WIRE_FORMS) <= set(twice), "take names that occur once out of WIRE_FORMS"


def test_no_module_is_long() -> None:
    long = {
        str(p.relative_to(ROOT)): n for p in sources() if (n := p.read_text().count("\n")) > LONGEST_MODULE
    }
    assert long == {}, f"split modules of more than {LONGEST_MODULE} lines by subject"


def test_no_file_is_named_by_a_private_word() -> None:
    tops = [*(ROOT / package for package in PACKAGES), ROOT / "dashboard", ROOT / "docs"]
    files = [
        p
        for top in tops
        for p in top.rglob("*")
        if p.is_file() and not {"__pycache__", "node_modules"} & set(p.parts)
    ]
    named = [str(p.relative_to(ROOT)) for p in files if PRIVATE_WORDS & set(re.split(r"[^a-z]+", p.stem))]
    assert named == [], "name files by the field's terms (docs/glossary.md)"


def test_every_source_names_its_licence() -> None:
    suffixes = {
        ".c",
        ".css",
        ".h",
        ".html",
        ".js",
        ".p4",
        ".proto",
        ".py",
        ".service",
        ".toml",
        ".ts",
        ".tsx",
        ".yaml",
        ".yml",
    }
    tops = [*PACKAGES, "p4", "tests", "dashboard", "deploy", "docs"]
    files = [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / ".ci" / "run"]
    files += [p for top in tops for p in (ROOT / top).rglob("*") if p.suffix in suffixes]
    files = [p for p in files if "node_modules" not in p.parts]
    missing = [
        str(p.relative_to(ROOT))
        for p in files
        if "_pb2" not in p.name and "SPDX-License-Identifier: Apache-2.0" not in p.read_text()[:400]
    ]
    assert len(files) > 500
    assert missing == []


def test_no_test_asserts_how_long_something_took() -> None:
    clock = re.compile(r"assert .*\b(perf_counter|monotonic|process_time|time\.time)(_ns)?\(\)")
    # Deadlines of loops that wait for something name the deadline.
    found = [
        f"{p.relative_to(ROOT)}:{number}"
        for p in sorted((ROOT / "tests").rglob("test_*.py"))
        for number, line in enumerate(p.read_text().splitlines(), 1)
        if clock.search(line) and "deadline" not in line and "until" not in line
    ]
    assert found == [], "a slow machine must not fail a test: assert what happened, not how fast"


def test_no_source_uses_wait_for() -> None:
    """Before Python 3.12 it swallows the cancellation of a task whose awaitable ends at the same moment."""
    users = [str(p.relative_to(ROOT)) for p in sources() if "asyncio.wait_for(" in p.read_text()]
    assert users == [], "use asyncio.timeout"
