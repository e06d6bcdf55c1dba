# SPDX-License-Identifier: Apache-2.0
"""Compile the TNA program with p4c's Tofino back end, and report the resources of the chip that it uses.

The back end is `p4c-barefoot` on PATH, or the program in the environment variable P4C_TOFINO. Its assembler
`bfas` and `p4c-gen-conf` are in the same folder. They are called one after another, because the driver `p4c`
of the pinned version stops before the assembler if it was found by a path.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

VERSION = "9.13.4 (34b86e9bac)"
COMPILER, ASSEMBLER, CONFIGURER = "p4c-barefoot", "bfas", "p4c-gen-conf"
PROGRAM = "p4/tna/polyrhythm.p4"
SOURCE_FOLDERS = ("p4/shared", "p4/tna")
FOLDER = "p4/build/tofino"
P4INFO_OUTPUT = f"{FOLDER}/polyrhythm.p4info.txtpb"
RESOURCES_OUTPUT = f"{FOLDER}/resources.json"
OUTPUTS = (
    f"{FOLDER}/bfrt.json",
    f"{FOLDER}/pipe/context.json",
    f"{FOLDER}/pipe/tofino.bin",
    f"{FOLDER}/polyrhythm.conf",
    P4INFO_OUTPUT,
    RESOURCES_OUTPUT,
)

# Of one run and no other: replaced, in the two files that have to agree, by what is the same for all.
_BUILD_DATE = "Thu Jan  1 00:00:00 1970"
_RUN_ID = "0" * 16


class CompileError(Exception):
    """The back end cannot compile the program. The text is one line for a person."""


def find_compiler() -> str | None:
    """The path of the Tofino back end, or None.

    Raises:
        CompileError: P4C_TOFINO names no program.
    """
    named = os.environ.get("P4C_TOFINO")
    found = shutil.which(named or COMPILER)
    if found is None and named:
        raise CompileError(f"{named}, which P4C_TOFINO names, is not an executable")
    return found


def version_of(compiler: str) -> str:
    """The release of the back end, such as 9.13.4. The files that it compiles also have its commit."""
    done = _run([compiler, "--version"], Path.cwd())
    match = re.search(r"^Version (\S+)", done.stdout + done.stderr, re.MULTILINE)
    if match is None:
        raise CompileError(f"{compiler} --version names no version: is it p4c's {COMPILER}?")
    return match[1]


def program_text(preprocessor: str, root: Path) -> str | None:
    """What the back end reads of our sources: preprocessed, without comments, spaces as single ones.

    `preprocessor` is any front end of p4c. None if it cannot find the architecture (TNA_INCLUDE_PATH).
    """
    include = os.environ.get("TNA_INCLUDE_PATH")
    command = [preprocessor, "-E", *(["-I", include] if include else []), "-D__TARGET_TOFINO__=1", PROGRAM]
    done = _run(command, root)
    # The exit code says nothing: p4c-bm2-ss ends with 1 after -E.
    if done.stderr.strip() or not done.stdout:
        return None
    kept: list[str] = []
    ours = False
    for line in done.stdout.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker is not None:
            ours = os.path.normpath(marker[1]).startswith(SOURCE_FOLDERS)
        elif ours:
            kept.append(line)
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", "\n".join(kept), flags=re.DOTALL)
    return " ".join(bare.split())


def compile_program(compiler: str, root: Path, force: bool = False) -> tuple[str, dict[str, bytes]]:
    """Compile from `root` by relative paths; returns the back end's version, and each output by its path.

    Raises:
        CompileError: the program does not compile or fit (the tools' messages go to standard error), or the
            back end is not the pinned version and `force` is not set.
    """
    release = version_of(compiler)
    if not force and release != VERSION.split(maxsplit=1)[0]:
        raise CompileError(f"{compiler} is release {release}; the artefacts need {VERSION} (or --force)")
    beside = Path(compiler).absolute().parent
    with tempfile.TemporaryDirectory(prefix="polyrhythm-tofino-") as name:
        folder = Path(name)
        pipe = folder / "out/pipe"
        include = os.environ.get("TNA_INCLUDE_PATH")
        command = [compiler, *(["-I", include] if include else []), "-D__TARGET_TOFINO__=1"]
        command += ["--target", "tofino", "--arch", "tna", "-g", "--verbose", "-o", str(folder / "out")]
        command += ["--bf-rt-schema", str(folder / "bfrt.json"), "--p4runtime-force-std-externs"]
        command += ["--p4runtime-files", str(folder / "polyrhythm.p4info.txtpb"), PROGRAM]
        # The order of tables in bfrt.json, and ids with it, follow addresses: they are the same in every run.
        setarch = shutil.which("setarch")
        _must([setarch, "-R", *command] if setarch else command, root)
        assembler = _tool(beside, ASSEMBLER)
        source = next(pipe.glob("*.bfa"), pipe / "polyrhythm.bfa")
        command = [assembler, "--no-warn", "--target", "tofino", "--table-handle-offset0"]
        _must([*command, "-o", str(pipe), str(source)], root)
        command = [_tool(beside, CONFIGURER), "--conf-type", "BF-RT", "--device", "tofino"]
        command += ["--name", "polyrhythm", "--outputdir", ".", "--bfrt-name", "bfrt.json"]
        _must([*command, "--p4-version", "p4-16", "--pipe", "pipe", "--max-pipe", "4"], folder)
        try:
            return _outputs(folder, pipe, force)
        except FileNotFoundError as error:
            raise CompileError(f"the Tofino back end did not write {Path(error.filename).name}") from None


def resources(mau: Mapping[str, Any], phv: Mapping[str, Any]) -> dict[str, Any]:
    """The resources of the chip that the program uses, from the back end's resources.json (`mau`) and
    phv.json.

    For each stage: SRAMs of 16 KiB, map RAMs, TCAMs of 512 x 44 bits, logical tables, and what uses them.
    Then the PHV containers by kind and width.
    """
    stages = []
    for stage in mau["mau_stages"]:
        rams, maps, tcams = stage["rams"], stage["map_rams"], stage["tcams"]
        tables = [entry["table_name"] for entry in stage["logical_tables"]["ids"]]
        stages.append(
            {
                "stage": stage["stage_number"],
                "sram": len(rams["srams"]),
                "map_ram": len(maps["maprams"]),
                "tcam": len(tcams["tcams"]),
                "logical_tables": len(tables),
                "tables": sorted(table for table in tables if not re.match(r"tbl_|cond-", table)),
            }
        )
    first = mau["mau_stages"][0]
    per_stage = {
        "sram": first["rams"]["nRows"] * first["rams"]["nColumns"],
        "map_ram": first["map_rams"]["nRows"] * first["map_rams"]["nUnits"],
        "tcam": first["tcams"]["nRows"] * first["tcams"]["nColumns"],
        "logical_tables": first["logical_tables"]["size"],
    }
    return {
        "stages": {"used": len(stages), "available": mau["nStages"]},
        "available_per_stage": per_stage,
        "totals": {kind: sum(stage[kind] for stage in stages) for kind in per_stage},
        "by_stage": stages,
        "phv": _containers(phv["containers"]),
    }


def _containers(containers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, int], tuple[int, int]] = {}
    for container in containers:
        key = (container["gress"], container["container_type"], container["bit_width"])
        taken: set[int] = set()
        for piece in container["slices"]:
            bits = piece["slice_info"]
            taken.update(range(bits["lsb"], bits["msb"] + 1))
        count, total = found.get(key, (0, 0))
        found[key] = (count + 1, total + len(taken))
    return [
        {"gress": gress, "kind": kind, "width": width, "containers": count, "bits": bits}
        for (gress, kind, width), (count, bits) in sorted(found.items())
    ]


def _outputs(folder: Path, pipe: Path, force: bool) -> tuple[str, dict[str, bytes]]:
    context = json.loads((pipe / "context.json").read_text())
    version = context["compiler_version"]
    if not force and version != VERSION:
        raise CompileError(f"the Tofino back end is {version}; the artefacts need {VERSION} (or --force)")
    run_id = context["run_id"]
    binary = (pipe / "tofino.bin").read_bytes()
    if len(run_id) != len(_RUN_ID) or binary.count(run_id.encode()) != 1:
        raise CompileError(f"tofino.bin does not name the run {run_id} of its context.json once")
    context |= {"build_date": _BUILD_DATE, "run_id": _RUN_ID}
    mau = json.loads((pipe / "logs/resources.json").read_text())["resources"]["mau"]
    phv = json.loads((pipe / "logs/phv.json").read_text())
    bfrt = json.loads((folder / "bfrt.json").read_text())
    content = {
        "bfrt.json": _compact(bfrt),
        "context.json": _compact(context),
        "tofino.bin": binary.replace(run_id.encode(), _RUN_ID.encode()),
        "polyrhythm.conf": (folder / "polyrhythm.conf").read_bytes().rstrip() + b"\n",
        "polyrhythm.p4info.txtpb": (folder / "polyrhythm.p4info.txtpb").read_bytes(),
        "resources.json": (json.dumps(resources(mau, phv), indent=2) + "\n").encode(),
    }
    return version, {path: content[Path(path).name] for path in OUTPUTS}


def _compact(document: object) -> bytes:
    """JSON without white space. The indented files of the back end are twice as large."""
    return (json.dumps(document, separators=(",", ":")) + "\n").encode()


def _tool(beside: Path, name: str) -> str:
    found = shutil.which(name, path=str(beside)) or shutil.which(name)
    if found is None:
        raise CompileError(f"{name} is neither beside {COMPILER} nor on PATH")
    return found


def _must(command: list[str], folder: Path) -> None:
    done = _run(command, folder)
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        raise CompileError(f"{PROGRAM} does not pass {Path(command[0]).name} (see above)")


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompileError(f"{command[0]} does not run: {error.strerror}") from error
