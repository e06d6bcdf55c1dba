# SPDX-License-Identifier: Apache-2.0
"""A virtual environment with our wheel in it, away from the source tree. It needs no network."""

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build_environment(folder: Path) -> Path:
    """Build the wheel, install it into a new environment below `folder`, and return its Python.

    The dependencies are those of the present environment, without its editable installation of our sources.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT]
    subprocess.run([*pip, *build], check=True, cwd=folder)
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    (wheel,) = folder.glob("polyrhythm-*.whl")
    install = ["--python", python, "install", "--no-deps", "--no-index", wheel]
    subprocess.run([*pip, *install], check=True, cwd=folder)
    dependencies = next(p for p in sys.path if p.endswith("site-packages"))
    site = next((folder / "env" / "lib").glob("python*/site-packages"))
    # This folder comes after the wheel's own files on the path, and its own .pth files are not read.
    (site / "dependencies.pth").write_text(dependencies + "\n")
    return python


def run_python(
    python: Path, *arguments: str | Path, cwd: str | Path = "/", timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run the environment's Python, without the caller's PYTHONPATH."""
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "MYPYPATH"}}
    return subprocess.run(
        [python, *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
