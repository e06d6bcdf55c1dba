# SPDX-License-Identifier: Apache-2.0
"""The wheel, installed away from the source tree, is whole."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it; its dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, ROOT], check=True, cwd=folder)
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    (wheel,) = folder.glob("polyrhythm-*.whl")
    subprocess.run([*pip, "--python", python, "install", "--no-deps", wheel], check=True, cwd=folder)
    dependencies = next(p for p in sys.path if p.endswith("site-packages"))
    site = next((folder / "env" / "lib").glob("python*/site-packages"))
    # After the wheel's own files on the path; the editable install's hook is left behind.
    (site / "dependencies.pth").write_text(dependencies + "\n")
    return python


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [python, *arguments],
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_everything_is_imported_from_the_wheel(installed: Path) -> None:
    code = (
        "import polyrhythm, controller.planner, bmv2; print(polyrhythm.__file__, controller.planner.__file__)"
    )
    done = run(installed, "-c", code)
    assert done.returncode == 0, done.stderr
    assert str(ROOT) not in done.stdout


def test_the_data_plane_and_the_page_come_along(installed: Path) -> None:
    code = (
        "from controller.southbound.artefacts import artefacts_dir\n"
        "from controller.northbound.web import assets_dir\n"
        "print(artefacts_dir(), assets_dir(), sorted(p.name for p in artefacts_dir().iterdir()))"
    )
    done = run(installed, "-c", code)
    assert done.returncode == 0, done.stderr
    assert str(ROOT) not in done.stdout
    assert "polyrhythm.v1model.json" in done.stdout


def test_the_installed_command_plans(installed: Path) -> None:
    done = run(installed, "-m", "polyrhythm", "plan", "two_vgg19", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert {job["job"] for job in plan["jobs"]} == {"vgg19-a", "vgg19-b"}


def test_the_installed_bench_finds_its_program(installed: Path) -> None:
    few = ("--packets", "200", "--runs", "1", "--no-wire", "--json")
    done = run(installed, "-m", "polyrhythm", "bench", "switch", *few)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pipeline_pps"] > 0
