# SPDX-License-Identifier: Apache-2.0
"""The decorator of compiled kernels: where the machine code goes, and what happens without Numba."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from controller import kernel


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kernel.cache_folder.cache_clear()
    folder = tmp_path / "room"
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n")
    (folder / "b.py").write_text("y = 1\n")
    return folder


def test_every_state_of_the_sources_has_a_folder_of_its_own(room: Path) -> None:
    first = kernel.cache_folder(room)
    assert first.parent == room.parent / "cache" / "polyrhythm" / "numba"
    assert kernel.cache_folder(room / "a.py") != first
    (room / "b.py").write_text("y = 2\n")
    kernel.cache_folder.cache_clear()
    assert kernel.cache_folder(room) != first
    (room / "b.py").write_text("y = 1\n")
    kernel.cache_folder.cache_clear()
    assert kernel.cache_folder(room) == first


def test_the_user_says_where_the_cache_is(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(room / "there"))
    kernel.cache_folder.cache_clear()
    assert kernel.cache_folder(room).parent == room / "there"
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(room))
    kernel.cache_folder.cache_clear()
    assert kernel.cache_folder(room).parent == room / ".cache" / "polyrhythm" / "numba"


def test_compiled_code_is_kept_and_others_settings_are_left_alone(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numba = pytest.importorskip("numba")
    before = numba.config.CACHE_DIR
    (room / "kernels.py").write_text(
        "from pathlib import Path\n"
        "from controller.kernel import compiler\n"
        "kernel = compiler(Path(__file__).parent, inline=True)\n"
        "@kernel\n"
        "def inner(x):\n"
        "    return 1 / x\n"
        "@kernel\n"
        "def outer(x):\n"
        "    return inner(x) + 1\n"
    )
    monkeypatch.syspath_prepend(str(room.parent))
    assert kernel.cold(room)
    module = import_module("room.kernels")
    assert module.outer(2.0) == 1.5
    assert module.outer(0.0) == float("inf")
    assert before == numba.config.CACHE_DIR
    assert list(kernel.cache_folder(room).glob("**/*.nbi"))
    assert not kernel.cold(room)


def test_without_numba_the_reference_runs(tmp_path: Path) -> None:
    # A path entry before all others hides Numba, as if it were not installed.
    (tmp_path / "numba.py").write_text("raise ImportError('No module named numba')\n")
    code = (
        "from controller.kernel import KernelsUnavailableError, compiler\n"
        "from controller.priority.compress import compress\n"
        "from controller.priority.fluid import Fluid, progress\n"
        "import numpy as np\n"
        "order = [f'j{i}' for i in range(200)]\n"
        "edges = {(a, b): 1.0 for a, b in zip(order, order[100:])}\n"
        "assert compress(order, edges, 3, orders=1).lost == 0\n"
        "one = np.ones(1)\n"
        "assert progress(Fluid(one, 0 * one, np.ones((1, 1))), [0], 6.0)[1][0] == 3\n"
        "try:\n"
        "    compiler(__import__('controller.kernel').kernel.__file__)\n"
        "except KernelsUnavailableError as error:\n"
        "    print('said:', error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("said: no compiled kernels")


def test_no_command_that_needs_no_kernel_imports_numba() -> None:
    code = "import sys, polyrhythm.commands.priority, controller.planner; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_compilations_are_watched_from_their_start_to_their_end(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    seen: list[str] = []
    monkeypatch.setattr(kernel, "_watchers", [])
    kernel.watch_compilations(lambda: seen.append("began"), lambda: seen.append("ended"))
    compiled = kernel.compiler(room)

    @compiled
    def inner(x: int) -> int:
        return x + 1

    @compiled
    def outer(x: int) -> int:
        return int(inner(x)) + 1

    assert outer(1) == 3
    # The inner function is compiled within the compilation of the outer one.
    assert seen == ["began", "ended"]
    assert outer(2) == 4
    assert len(seen) == 2


def test_a_full_disk_costs_the_cache_and_not_the_result(room: Path) -> None:
    pytest.importorskip("numba")
    (room / "kernels.py").write_text(
        "from pathlib import Path\n"
        "from controller.kernel import compiler\n"
        "@compiler(Path(__file__).parent)\n"
        "def half(x):\n"
        "    return x / 2\n"
    )
    code = (
        "import resource, kernels\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))\n"
        "print(kernels.half(5.0))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(room)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "2.5\n", done.stderr
    assert "compiled kernels are not kept" in done.stderr
