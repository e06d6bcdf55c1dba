# SPDX-License-Identifier: Apache-2.0
"""The wheel, installed away from the source tree, is whole."""

import json
from pathlib import Path

import pytest
from wheel_environment import ROOT, build_environment
from wheel_environment import run_python as run


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_environment(tmp_path_factory.mktemp("wheel"))


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
