# SPDX-License-Identifier: Apache-2.0
"""Configuration of the documentation site: `make docs` builds it into `site/`, offline and strictly."""

import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

project = "Polyrhythm"
author = "the Polyrhythm authors"
version = release = installed_version("polyrhythm")
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["reference/_generated/*/*.inc"]
html_theme = "furo"
html_title = f"Polyrhythm {release}"
# Sphinx and furo bring all scripts and styles; the pages ask no other server for anything.
html_copy_source = False
highlight_language = "text"
# Every heading can be linked to as `page.md#its-words`.
myst_heading_anchors = 4
# An excerpt of JSON with dots in it is no valid JSON, and need not be.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
# Optional extras, which the API reference does not need.
autodoc_mock_imports = [
    "distributed",
    "highspy",
    "lightning",
    "matplotlib",
    "mininet",
    "pyarrow",
    "torch",
    "transformers",
]

REFERENCE = {
    "topo": "The fabric as a graph",
    "polyrhythm_files": "Reader of files that people write",
    "controller.model": "Values of the domain",
    "controller.measure": "Profiles from measurements",
    "controller.routing": "Routing",
    "controller.priority": "Priorities",
    "controller.interleave": "Time-shifts",
    "controller.placement": "Placement",
    "controller.planner": "The planner",
    "controller.live": "State of a live fabric",
    "controller.southbound": "Switches",
    "controller.agents": "Server for host agents",
    "controller.northbound": "REST API and page",
    "controller.store": "Durable state",
    "controller.process": "Controller process",
    "hostagent": "Host agent",
    "polyrhythm_job": "Library for training code",
    "sim": "Cluster simulator",
    "bmv2": "Embedded switch",
}
"""Package -> title of its page of the API reference."""
HOMES = {"polyrhythm_job": ROOT / "hostagent" / "job_library"}
"""The folders of packages that do not lie at the root."""

# Compiled kernels are documented by their plain references; generated code is not.
SKIPPED = re.compile(r"(^|\.)(kernels|kernel|fluid_kernel|job_library)(\.|$)|_pb2|codegen")


def modules_of(package: str) -> list[str]:
    """The modules of a package by dotted name, without kernels and generated code."""
    home = HOMES.get(package, ROOT)
    found = []
    for path in sorted((home / package.replace(".", "/")).rglob("*.py")):
        name = ".".join(path.relative_to(home).with_suffix("").parts).removesuffix(".__init__")
        if not SKIPPED.search(name):
            found.append(name)
    return found


def write_reference(app: Sphinx) -> None:
    """Write one page for each room, which autodoc fills from the docstrings."""
    folder = Path(app.srcdir) / "reference" / "_generated"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = set()
    for package, title in REFERENCE.items():
        text = [f"# {title}", f"The package `{package}`."]
        for module in modules_of(package):
            text += [
                f"## `{module}`",
                f"```{{eval-rst}}\n.. automodule:: {module}\n   :ignore-module-all:\n```",
            ]
        path = folder / f"{package}.md"
        wanted.add(path)
        content = "\n\n".join(text) + "\n"
        # An unchanged page keeps its time, so that Sphinx need not read it again.
        if not path.exists() or path.read_text() != content:
            path.write_text(content)
    for path in set(folder.glob("*.md")) - wanted:
        path.unlink()


def plain_docstring(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Turn a docstring into reStructuredText that says the same.

    Docstrings of this project are plain text with `code` between single backticks. Asterisks, bars and
    underscores in them mean themselves, and an indented block keeps its lines.
    """
    result: list[str] = []
    in_block = False
    for line in "\n".join(lines).split("\n"):
        indented = line.startswith("  ")
        if indented and not in_block:
            if result and result[-1]:
                result.append("")
            result += ["::", ""]
            in_block = True
        elif in_block and line and not indented:
            if result[-1]:
                result.append("")
            in_block = False
        result.append(f"    {line}" if in_block and line else line if in_block else as_text(line))
    lines[:] = result


def as_text(line: str) -> str:
    """One line with its `code` as literals, and every other special character escaped."""
    parts = re.split(r"(`+[^`]+`+)", line)
    done = []
    for part in parts:
        if part.startswith("`") and part.endswith("`") and len(part) > 2:
            done.append(f"``{part.strip('`').strip()}``")
        else:
            # No emphasis, substitutions, references or footnotes.
            done.append(re.sub(r"([*|`\\]|_(?=\W|$)|(?<=\s)\[)", r"\\\1", part))
    text = "".join(done)
    # Inline literals must be set apart from the word they touch.
    text = re.sub(r"(?<=\w)(``[^`]+``)", r"\\ \1", text)
    text = re.sub(r"(``[^`]+``)(?=\w)", r"\1\\ ", text)
    return re.sub(r"^(\s*)([-+:.]|\.\.|=+|-+)(?=\s*$)", r"\1\\\2", text)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", write_reference)
    app.connect("autodoc-process-docstring", plain_docstring)
