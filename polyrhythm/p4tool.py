# SPDX-License-Identifier: Apache-2.0
"""Compile the P4 program with p4c, and check that the committed artefacts belong to their sources.

`python -m polyrhythm.p4tool build` is what `make p4` runs. `check` needs no compiler. `typecheck` checks the
TNA program against the types of TNA. `tests` generates packet tests with P4Testgen (p4testgen). If the Tofino
back end is installed (p4tofino), `build` also compiles the TNA program; otherwise it keeps the present
artefacts.

The compiler for BMv2 is `p4c-bm2-ss` on PATH, or the program in the environment variable P4C. The type
checker is `p4test`, or the program in P4TEST. Both read P4C_16_INCLUDE_PATH if p4c's folder `p4include` is
not next to them. TNA_INCLUDE_PATH is the folder with `tna.p4`.
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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from polyrhythm import p4testgen, p4tofino

P4C_VERSION = "1.2.5.16"
COMPILER = "p4c-bm2-ss"
TYPE_CHECKER = "p4test"
PROGRAM = "p4/v1model/polyrhythm.p4"
TNA_PROGRAM = "p4/tna/polyrhythm.p4"
TNA_PROFILES = ((), ("IPV6",), ("HOST_TRUST",), ("IPV6", "HOST_TRUST"))
"""What may be defined for the TNA program; the first is what p4/build/tofino was compiled from."""
SOURCE_FOLDERS = ("p4/shared", "p4/tna", "p4/v1model")
JSON_OUTPUT = "p4/build/polyrhythm.v1model.json"
P4INFO_OUTPUT = "p4/build/polyrhythm.v1model.p4info.txtpb"
OUTPUTS = (JSON_OUTPUT, P4INFO_OUTPUT)
MANIFEST = "p4/build/manifest.json"

REPOSITORY = Path(__file__).resolve().parent.parent

# Exit codes: 1 the sources do not compile or the artefacts are stale, 2 the tool cannot do its work.
STALE = 1
UNABLE = 2


class ToolError(Exception):
    """The tool cannot continue. The text is one line for a person."""

    def __init__(self, message: str, exit_code: int = UNABLE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def sources(root: Path) -> list[str]:
    """The P4 sources under `root`, as sorted paths relative to it."""
    found = (path for folder in SOURCE_FOLDERS for path in (root / folder).rglob("*.p4"))
    return sorted(path.relative_to(root).as_posix() for path in found)


def find_compiler() -> str:
    """The path of p4c's BMv2 back end.

    Raises:
        ToolError: there is none.
    """
    return _find("P4C", COMPILER)


def compiler_version(compiler: str) -> str:
    """The version that `compiler --version` reports, without its commit and build type."""
    try:
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ToolError(f"{compiler} does not run: {error.strerror}") from error
    match = re.search(r"^Version (\S+)", done.stdout + done.stderr, re.MULTILINE)
    if match is None:
        raise ToolError(f"{compiler} --version names no version: is it p4c's {COMPILER}?")
    return match[1]


def normalise(text: str) -> str:
    """p4c's JSON without what depends on the machine: absolute paths of p4c's own files become bare names."""
    return re.sub(r'("filename" : ")/(?:[^"/]*/)*([^"/]*")', r"\1\2", text)


def compile_program(compiler: str, root: Path) -> dict[str, bytes]:
    """Compile from `root`, because p4c writes the path of the source as it is given.

    Returns the content of each output by its path. p4c's messages go to standard error.

    Raises:
        ToolError: p4c refuses the program.
    """
    with tempfile.TemporaryDirectory(prefix="polyrhythm-p4c-") as folder:
        built = {output: Path(folder, Path(output).name) for output in OUTPUTS}
        command = [compiler, "--arch", "v1model", "-o", str(built[JSON_OUTPUT])]
        command += ["--p4runtime-files", str(built[P4INFO_OUTPUT]), PROGRAM]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        sys.stderr.write(done.stderr)
        if done.returncode != 0 or not all(path.is_file() for path in built.values()):
            raise ToolError(f"{PROGRAM} does not compile (see above)", STALE)
        return {output: normalise(path.read_text()).encode() for output, path in built.items()}


def typecheck(root: Path) -> None:
    """Check each profile of the TNA program against the types and constraints of p4c's front and mid ends.
    Warnings count.

    This does not compile for Tofino: it says nothing about stages, memories and PHV. The messages of p4test
    go to standard error.

    Raises:
        ToolError: p4test refuses the program.
    """
    command = [_find("P4TEST", TYPE_CHECKER), "-D__TARGET_TOFINO__=1", "--Werror"]
    folder = os.environ.get("TNA_INCLUDE_PATH")
    if folder is not None:
        command += ["-I", folder]
    for profile in TNA_PROFILES:
        flags = [f"-D{name}" for name in profile]
        done = subprocess.run(
            [*command, *flags, TNA_PROGRAM], cwd=root, capture_output=True, text=True, check=False
        )
        if re.search(r"\btna\.p4: No such file", done.stderr):
            raise ToolError(
                "tna.p4 is not found: set TNA_INCLUDE_PATH to its folder in p4c's Tofino back end"
            )
        sys.stderr.write(done.stderr)
        name = " ".join((TNA_PROGRAM, *flags))
        if done.returncode != 0:
            raise ToolError(f"{name} does not pass {TYPE_CHECKER} (see above)", STALE)
        print(f"{name} passes {TYPE_CHECKER}")


def digests(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """SHA-256 in hex of each file, by path relative to `root`."""
    return {path: hashlib.sha256((root / path).read_bytes()).hexdigest() for path in paths}


def manifest(root: Path, version: str, tofino: Any) -> str:
    """The text of the manifest for the sources and outputs under `root`. `tofino` is its last part."""
    content = {"p4c": version, "sources": digests(root, sources(root)), "outputs": digests(root, OUTPUTS)}
    return json.dumps({**content, "tofino": tofino}, indent=2) + "\n"


def tofino_manifest(root: Path, version: str, program: str) -> dict[str, Any]:
    """The manifest's part for Tofino. It has its own sources, because not every machine compiles it.

    `program` is the digest of what the back end read of them (p4tofino.program_text).
    """
    outputs = digests(root, p4tofino.OUTPUTS)
    return {
        "p4c-barefoot": version,
        "program": program,
        "sources": digests(root, _tofino_sources(root)),
        "outputs": outputs,
    }


def _tofino_sources(root: Path) -> list[str]:
    return [name for name in sources(root) if name.startswith(p4tofino.SOURCE_FOLDERS)]


def same_program(root: Path, recorded: Any, program: str | None) -> Any:
    """The manifest's part for Tofino where the back end did not run.

    Sources that changed without changing what the back end reads (comments, what TNA does not define) still
    belong to the outputs, so their digests are renewed. Otherwise `recorded` stays as it is.
    """
    if program is None or not isinstance(recorded, dict) or recorded.get("program") != program:
        return recorded
    return {**recorded, "sources": digests(root, _tofino_sources(root))}


def build(root: Path, force: bool) -> None:
    """Compile, and write the artefacts and the manifest. Files that do not change are not written."""
    if not (root / PROGRAM).is_file():
        raise ToolError(f"{root / PROGRAM} is missing: `build` needs a checkout of the repository")
    compiler = find_compiler()
    version = compiler_version(compiler)
    if version != P4C_VERSION and not force:
        raise ToolError(f"{compiler} is p4c {version}; the artefacts need {P4C_VERSION} (or --force)")
    try:
        back_end = p4tofino.find_compiler()
        on_tofino = p4tofino.compile_program(back_end, root, force) if back_end else None
    except p4tofino.CompileError as error:
        raise ToolError(str(error), STALE) from error
    for output, content in compile_program(compiler, root).items():
        _write_changed(root / output, content)
    if on_tofino is None:
        recorded = _recorded(root).get("tofino") if (root / MANIFEST).is_file() else None
        recorded = same_program(root, recorded, _program_digest(compiler, root))
        print(f"{p4tofino.COMPILER} is not on PATH: {p4tofino.FOLDER} stays as it is")
    else:
        for output, content in on_tofino[1].items():
            _write_changed(root / output, content)
        recorded = tofino_manifest(root, on_tofino[0], _program_digest(compiler, root) or "")
        print(f"{p4tofino.COMPILER} {on_tofino[0]}: {p4tofino.PROGRAM} -> {p4tofino.FOLDER}")
    _write_changed(root / MANIFEST, manifest(root, version, recorded).encode())
    print(f"p4c {version}: {len(sources(root))} sources -> {', '.join(OUTPUTS)}")


def differences(root: Path) -> list[str]:
    """The differences between the manifest and the files, one line each; empty if there are none."""
    recorded = _recorded(root)
    try:
        built = [({**recorded["sources"], **recorded["outputs"]}, (*sources(root), *OUTPUTS), "")]
        tofino = recorded["tofino"]
        if tofino is not None:
            recorded_files = {**tofino["sources"], **tofino["outputs"]}
            built.append((recorded_files, (*_tofino_sources(root), *p4tofino.OUTPUTS), " for Tofino"))
    except (KeyError, TypeError) as error:
        raise ToolError(f"{root / MANIFEST} is not a manifest of this tool: run `make p4`") from error
    lines: list[str] = []
    for expected, names, target in built:
        actual = digests(root, [path for path in names if (root / path).is_file()])
        lines += [f"{path}: missing{target}" for path in sorted(expected.keys() - actual.keys())]
        lines += [f"{path}: not in the manifest{target}" for path in sorted(actual.keys() - expected.keys())]
        common = sorted(expected.keys() & actual.keys())
        changed = [path for path in common if expected[path] != actual[path]]
        lines += [f"{path}: changed since the build{target}" for path in changed]
    return lines


def check(root: Path) -> None:
    """Check that the committed artefacts belong to the sources.

    Raises:
        ToolError: they do not.
    """
    lines = differences(root)
    if lines:
        raise ToolError("p4/build is stale, run `make p4`: " + "; ".join(lines), STALE)
    print(f"p4/build matches its {len(sources(root))} sources")
    if p4testgen.is_older(root):
        print(
            f"{p4testgen.FOLDER} was generated from an earlier program: `python -m polyrhythm.p4tool tests`"
        )


def generate_tests(root: Path, seconds: float) -> None:
    """Generate packet tests with P4Testgen, and print what they cover.

    Raises:
        ToolError: there are none.
    """
    try:
        made = p4testgen.generate(root, seconds)
    except p4testgen.GeneratorError as error:
        raise ToolError(str(error)) from error
    print(f"{made['tests']} tests reach {made['reached']} of {made['statements']} statements")
    for item in made["unreached"]:
        print(f"not reached: {item['statement']} ({item['reason']})")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m polyrhythm.p4tool", description="Build or check p4/build."
    )
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="the checkout (default: this one)")
    commands = parser.add_subparsers(dest="command", required=True)
    builder = commands.add_parser("build", help="compile p4/ into p4/build")
    builder.add_argument("--force", action="store_true", help=f"accept a p4c other than {P4C_VERSION}")
    commands.add_parser("check", help="compare p4/build with the sources")
    commands.add_parser("typecheck", help=f"run {TYPE_CHECKER} on the TNA program")
    generator = commands.add_parser("tests", help=f"generate {p4testgen.FOLDER} with P4Testgen")
    generator.add_argument(
        "--seconds", type=float, default=300.0, help="stop the search after so long (default: %(default)g)"
    )
    options = parser.parse_args(arguments)
    try:
        if options.command == "build":
            build(options.root, options.force)
        elif options.command == "check":
            check(options.root)
        elif options.command == "tests":
            generate_tests(options.root, options.seconds)
        else:
            typecheck(options.root)
    except ToolError as error:
        print(f"p4tool: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _recorded(root: Path) -> dict[str, Any]:
    try:
        recorded = json.loads((root / MANIFEST).read_text())
    except FileNotFoundError as error:
        raise ToolError(f"{root / MANIFEST} is missing: run `make p4`") from error
    except json.JSONDecodeError as error:
        raise ToolError(f"{root / MANIFEST} is not a manifest of this tool: run `make p4`") from error
    if not isinstance(recorded, dict):
        raise ToolError(f"{root / MANIFEST} is not a manifest of this tool: run `make p4`")
    return recorded


def _program_digest(compiler: str, root: Path) -> str | None:
    text = p4tofino.program_text(compiler, root)
    return hashlib.sha256(text.encode()).hexdigest() if text is not None else None


def _find(variable: str, program: str) -> str:
    named = os.environ.get(variable)
    found = shutil.which(named or program)
    if found is None:
        wanted = f"{named}, which {variable} names, is not an executable"
        missing = wanted if named else f"{program} is not on PATH"
        raise ToolError(f"{missing}: install p4c {P4C_VERSION} or set {variable} to its {program}")
    return found


def _write_changed(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_bytes() != content:
        path.write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
