# SPDX-License-Identifier: Apache-2.0
"""The programs of `polyrhythm bench conformance`: the project's own, and those of a folder."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from finsy.proto import p4i, p4r
from google.protobuf import text_format

from controller.southbound.artefacts import artefacts_dir

OWN = "polyrhythm.v1model"
# Chosen: p4c needs seconds for the largest of its own samples.
_COMPILE_S = 120


class ProgramsError(Exception):
    """A folder of programs cannot be used. The message is one line for a person."""


@dataclass(frozen=True)
class Program:
    """A compiled program. `entries` are those of its sources, None where p4c's file of them is not there."""

    name: str
    info: p4i.P4Info
    device_config: bytes
    entries: list[p4r.TableEntry] | None


def own_program() -> Program:
    """The project's own program, which has no entries in its sources."""
    return _load(artefacts_dir() / f"{OWN}.json", artefacts_dir() / f"{OWN}.p4info.txtpb")


def folder_programs(folder: Path, compiler: str | None) -> Iterator[Program]:
    """The programs of a folder, by name.

    It holds NAME.json, NAME.p4info.txtpb and, where p4c wrote it, NAME.entries.txtpb; or sources NAME.p4 of
    v1model, of which those are given that `compiler` (p4c-bm2-ss) compiles. Raises ProgramsError.
    """
    if not folder.is_dir():
        raise ProgramsError(f"{folder}: is no folder")
    compiled = sorted(folder.glob("*.json"))
    sources = sorted(path for path in folder.glob("*.p4") if b"v1model.p4" in path.read_bytes())
    if not compiled and not sources:
        raise ProgramsError(f"{folder}: has neither NAME.json with NAME.p4info.txtpb nor sources for v1model")
    if compiled:
        yield from _load_all(compiled)
        return
    if compiler is None:
        raise ProgramsError(f"{folder}: p4c-bm2-ss is needed to compile it; put it on PATH or set P4C")
    with tempfile.TemporaryDirectory(prefix="polyrhythm-conformance-") as made, ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda source: _compile(compiler, source, Path(made)), sources))
        yield from _load_all(sorted(Path(made).glob("*.json")))


def _compile(compiler: str, source: Path, folder: Path) -> None:
    """Compile one program; one that p4c refuses leaves no JSON."""
    target = folder / f"{source.stem}.json"
    command = [compiler, "--arch", "v1model", "-o", str(target)]
    command += ["--p4runtime-files", str(target.with_suffix(".p4info.txtpb"))]
    command += ["--p4runtime-entries-files", str(target.with_suffix(".entries.txtpb"))]
    try:
        done = subprocess.run(
            [*command, source.name], cwd=source.parent, capture_output=True, timeout=_COMPILE_S, check=False
        )
    except subprocess.TimeoutExpired:
        target.unlink(missing_ok=True)
        return
    if done.returncode != 0:
        target.unlink(missing_ok=True)


def _load_all(paths: list[Path]) -> Iterator[Program]:
    for path in paths:
        info = path.with_suffix(".p4info.txtpb")
        # p4c writes no P4Info for what P4Runtime cannot describe.
        if info.is_file() and info.stat().st_size:
            yield _load(path, info)


def _load(path: Path, info: Path) -> Program:
    entries = path.with_suffix(".entries.txtpb")
    try:
        return Program(
            path.stem,
            text_format.Parse(info.read_text(), p4i.P4Info()),
            path.read_bytes(),
            _initial_entries(entries) if entries.is_file() else None,
        )
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise ProgramsError(f"{path}: {error}") from None


def _initial_entries(path: Path) -> list[p4r.TableEntry]:
    request = text_format.Parse(path.read_text(), p4r.WriteRequest())
    return [update.entity.table_entry for update in request.updates]
