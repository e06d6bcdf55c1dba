# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm-job`, the distribution for training containers: small, alone, and for Python 3.10."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
from agent_rig import MS, ROOT, AgentProcess, Hub, config_text, eventually, status

import polyrhythm_job
from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from polyrhythm_job.verbs import SOURCE_PORTS

LIBRARY = ROOT / "hostagent" / "job_library"
SOURCES = sorted((LIBRARY / "polyrhythm_job").glob("*.py"))
# Names of the standard library that Python 3.10 does not have.
NEWER = {
    "tomllib",
    "Self",
    "StrEnum",
    "ExceptionGroup",
    "BaseExceptionGroup",
    "TaskGroup",
    "batched",
    "override",
}

# The modules for one framework each, which nothing else imports, and what they import.
FRAMEWORKS = {
    "ddp": {"torch"},
    "lightning": {"torch", "lightning", "pytorch_lightning"},
    "hugging_face": {"torch", "transformers"},
}

TRAINING = """
import sys, time
from polyrhythm_job import polyrhythm_job

foreign = sorted(
    name for name, module in sys.modules.items()
    if name.partition(".")[0] not in {*sys.stdlib_module_names, "__main__", "polyrhythm_job"}
)
assert foreign == [], foreign
with polyrhythm_job("small", ["h2", "h3"], rank=0, period_ms=20, phases_ms=[(0, 8)], agent=sys.argv[1]) as job:
    for _ in range(3):
        time.sleep(0.002)
        job.step()
    assert job.connected is (sys.argv[1] != "/nowhere")
    print(job.flow("small/x", 1 << 30).by)
"""


def test_every_exported_name_is_there() -> None:
    assert all(hasattr(polyrhythm_job, name) for name in polyrhythm_job.__all__)
    assert (LIBRARY / "polyrhythm_job" / "py.typed").is_file()


def test_the_source_ports_are_those_of_the_agent() -> None:
    assert ROCE_SOURCE_PORTS == SOURCE_PORTS


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
def test_python_3_10_and_its_standard_library_are_enough(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            modules = [node.module or ""]
            assert not NEWER & {alias.name for alias in node.names}
        else:
            continue
        legal = (sys.stdlib_module_names - NEWER) | {"polyrhythm_job", *FRAMEWORKS.get(path.stem, ())}
        assert {m.partition(".")[0] for m in modules} <= legal


def python_3_10() -> str | None:
    found = shutil.which("python3.10")
    works = found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0
    return found if works else None


def train(python: Path | str, socket: str, *options: str) -> str:
    command = [python, *options, "-c", TRAINING, socket]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(python_3_10() is None, reason="needs python3.10")
def test_it_runs_on_python_3_10() -> None:
    path = f"import sys; sys.path.insert(0, {str(LIBRARY)!r})\n"
    command = [python_3_10() or "", "-I", "-S", "-c", path + TRAINING, "/nowhere"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "nobody\n"), done.stderr


@pytest.mark.slow
def test_the_small_wheel_alone_serves_a_job_and_the_big_one_has_the_same_module(
    start_agent: Callable[..., AgentProcess], tmp_path: Path, hub: tuple[Hub, str]
) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    for source in (LIBRARY, ROOT):
        options = ("--no-deps", "--no-index", "--no-build-isolation")
        subprocess.run([*pip, "wheel", *options, "-w", tmp_path, source], check=True, cwd=tmp_path)
    (small,) = tmp_path.glob("polyrhythm_job-*-py3-none-any.whl")
    (big,) = tmp_path.glob("polyrhythm-*.whl")
    assert small.stat().st_size <= 100_000

    def module(wheel: Path) -> dict[str, bytes]:
        with ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.startswith("polyrhythm_job/")]
            assert len(names) == len(set(names))
            return {name: archive.read(name) for name in names}

    assert module(small) == module(big)
    assert set(module(small)) == {f"polyrhythm_job/{p.name}" for p in SOURCES} | {"polyrhythm_job/py.typed"}
    with ZipFile(big) as archive:
        assert not [n for n in archive.namelist() if "job_library" in n]

    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", "--no-index", small], check=True, cwd=tmp_path)

    made, address = hub
    path = str(tmp_path / "agent.sock")
    hosts = {"h2": "127.0.1.2", "h3": "127.0.1.3"}
    agent = f'socket = "{path}"'
    start_agent(
        config_text(
            "h2", hosts["h2"], controller=address, addresses=hosts, agent=agent, nic='driver = "none"'
        )
    )
    eventually(lambda: status(path)["connected"], "a session")
    assert train(python, path, "-I") in ("controller", "deadline")
    eventually(lambda: len(made.bodies("iteration")) == 3, "three reports")
    (join,) = made.bodies("job_join")
    assert (join.job, join.period_ns) == ("small", 20 * MS)
    assert train(python, "/nowhere", "-I") == "nobody"
