# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm run` as a process, and the figures that it writes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from polyrhythm.scenario import scenario_path

POLYRHYTHM = [sys.executable, "-m", "polyrhythm"]
PATIENCE_S = 600
"""How long a test waits for a run: chosen for a machine with much else to do."""


def shortened(name: str, folder: Path, *, warmup: int, iterations: int) -> Path:
    """A shipped scenario with fewer iterations."""
    text = scenario_path(name).read_text().replace("draws: 5\n", "")
    path = folder / f"{name}.yaml"
    path.write_text(text.replace("\njobs:", f"\nwarmup: {warmup}\niterations: {iterations}\njobs:", 1))
    return path


def uncounted() -> dict[str, str]:
    """The environment without what lets coverage count the lines of a process.

    Counting doubles the processor time of an emulation. For tests that emulate for long, where other tests run
    the same lines.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS_")}


def run(*arguments: object, counted: bool = True) -> subprocess.CompletedProcess[str]:
    command = [*POLYRHYTHM, "run", *map(str, arguments)]
    if "--offsets" not in command:
        command += ["--offsets", "0"]
    # The fabric must not use the machine's web proxy; here the proxy is one that never answers.
    environment = {
        **(os.environ if counted else uncounted()),
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    for name in ("no_proxy", "NO_PROXY"):
        environment.pop(name, None)
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment
    )


def figures(folder: Path, *arguments: object) -> tuple[dict[str, Any], str]:
    """The figures of a run, and what it prints. Its lines are not counted."""
    target = folder / "figures.json"
    done = run(*arguments, "--once", "--json", target, counted=False)
    assert done.returncode == 0, done.stderr
    return json.loads(target.read_text()), done.stdout
