# SPDX-License-Identifier: Apache-2.0
"""Generate packet tests from the P4 program with p4c's test generator, P4Testgen, and say what they cover.

P4Testgen walks the paths of the program symbolically (Ruffy et al., SIGCOMM 2023) and writes, for each path,
the table entries, a packet, and what must leave the switch: tests by nobody who wrote the program. It is
`p4testgen` on PATH, or the program in the environment variable P4TESTGEN.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

PROGRAM = "p4/v1model/polyrhythm.p4"
JSON_OUTPUT = "p4/build/polyrhythm.v1model.json"
FOLDER = "tests/data/p4testgen"
COVERAGE = f"{FOLDER}/coverage.json"
COMPILER = "p4testgen"
SEED = 1
# P4Testgen knows no range keys, so these tables keep their default actions.
LEFT_OUT = ("ecn", "ecn_tcp")
# Chosen: enough for every header of the program and one hop of INT, and no long payload.
PACKET_BITS = 1600
UNKNOWN = "no reason given yet"

_STATEMENT = re.compile(r"^\t(\S+)\\(\d+): (.*)$")
_TEST = re.compile(r"^=+ Test (\d+): Nodes covered: \S+ \((\d+)/(\d+)\) =+$")


class GeneratorError(Exception):
    """There are no tests. The text is one line for a person."""


def generate(root: Path, seconds: float) -> dict[str, Any]:
    """Generate tests for `seconds` at most, write them to FOLDER and what they cover to COVERAGE.

    Returns the content of COVERAGE: how many statements of the program the tests reach, and each statement
    that none reaches, with the reason. A reason is a person's: it is kept from the COVERAGE of before, and
    new statements get UNKNOWN.

    Raises:
        GeneratorError: P4Testgen is missing, or gives no test.
    """
    named = os.environ.get("P4TESTGEN")
    generator = shutil.which(named or COMPILER)
    if generator is None:
        raise GeneratorError(f"{named or COMPILER} is no program: build p4c with P4Testgen, or set P4TESTGEN")
    with tempfile.TemporaryDirectory(prefix="polyrhythm-p4testgen-") as name:
        folder = Path(name)
        log = _run(generator, root, folder, seconds)
        tests = sorted(folder.glob("*.stf"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))
        if not tests:
            raise GeneratorError(f"{generator} gave no test; its last words: {log.strip()[-200:]}")
        reached, total, missing = _coverage(log)
        for old in (root / FOLDER).glob("*.stf"):
            old.unlink()
        (root / FOLDER).mkdir(parents=True, exist_ok=True)
        for number, path in enumerate(tests, 1):
            (root / FOLDER / f"{number:02}.stf").write_text(_bare(path.read_text()), encoding="utf-8")
    reasons = _reasons(root)
    content = {
        "program": digest(root),
        "seed": SEED,
        "tests": len(tests),
        "statements": total,
        "reached": reached,
        "unreached": [
            {"statement": statement, "reason": reasons.get(statement.split(":", 2)[2], UNKNOWN)}
            for statement in missing
        ],
    }
    (root / COVERAGE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def digest(root: Path) -> str:
    """The SHA-256 in hex of the compiled program that the tests are for."""
    return hashlib.sha256((root / JSON_OUTPUT).read_bytes()).hexdigest()


def is_older(root: Path) -> bool:
    """Whether the kept tests were generated from another program than the compiled one."""
    kept = root / COVERAGE
    return kept.is_file() and json.loads(kept.read_text(encoding="utf-8"))["program"] != digest(root)


def _run(generator: str, root: Path, folder: Path, seconds: float) -> str:
    """What P4Testgen prints. It is stopped after `seconds`: it goes on looking for what no path reaches."""
    include = os.environ.get("P4C_16_INCLUDE_PATH")
    command = [generator, "--target", "bmv2", "--arch", "v1model", "--test-backend", "STF"]
    command += ["-I", include] if include else []
    command += ["--path-selection", "GREEDY_STATEMENT_SEARCH", "--track-coverage", "STATEMENTS"]
    command += ["--only-covering-tests", "--stop-metric", "MAX_NODE_COVERAGE", "--print-coverage"]
    command += ["--max-tests", "1000", "--seed", str(SEED), "--packet-size-range", f"0:{PACKET_BITS}"]
    command += ["--skip-control-plane-entities", ",".join(LEFT_OUT), "--out-dir", str(folder), PROGRAM]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=root, stdout=output, stderr=subprocess.STDOUT)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
    return log.read_text(encoding="utf-8", errors="replace")


def _coverage(log: str) -> tuple[int, int, list[str]]:
    """Of the last test: statements reached, statements, and those not reached as file:line: text."""
    reached = total = 0
    missing: list[str] = []
    for line in log.splitlines():
        if test := _TEST.match(line):
            reached, total, missing = int(test[2]), int(test[3]), []
        elif found := _STATEMENT.match(line):
            missing.append(f"{os.path.normpath(found[1])}:{found[2]}: {found[3]}")
    return reached, total, missing


def _reasons(root: Path) -> dict[str, str]:
    """The reasons given so far, by the text of the statement."""
    if not (root / COVERAGE).is_file():
        return {}
    unreached = json.loads((root / COVERAGE).read_text(encoding="utf-8"))["unreached"]
    return {item["statement"].split(":", 2)[2]: item["reason"] for item in unreached}


def _bare(test: str) -> str:
    """A test without P4Testgen's trace of the path."""
    lines = [line for line in test.splitlines() if line.strip() and not line.startswith("#")]
    head = (
        "# SPDX-License-Identifier: Apache-2.0",
        f"# Made by P4Testgen from {PROGRAM}; see coverage.json.",
    )
    return "\n".join((*head, *lines, ""))
