# SPDX-License-Identifier: Apache-2.0
"""What `import polyrhythm` exports, whichever commands have run in the process."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import polyrhythm
from polyrhythm.cli import main


def test_no_submodule_has_the_name_of_an_export() -> None:
    submodules = {module.name for module in pkgutil.iter_modules(polyrhythm.__path__)}
    assert submodules & set(polyrhythm.__all__) == set()


def test_a_command_shadows_no_export() -> None:
    assert main(["plan", "two_vgg19"]) == 0
    shadowed = [n for n in polyrhythm.__all__ if isinstance(getattr(polyrhythm, n), ModuleType)]
    assert shadowed == []
    assert callable(polyrhythm.plan)


def test_the_exports_are_listed() -> None:
    assert set(polyrhythm.__all__) <= set(dir(polyrhythm))
    assert sorted(polyrhythm.__all__) == sorted(set(polyrhythm.__all__))


def test_type_checkers_see_what_is_imported() -> None:
    tree = ast.parse(Path(polyrhythm.__file__).read_text())
    (block,) = (n for n in tree.body if isinstance(n, ast.If))
    seen = {a.name: n.module for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert seen == polyrhythm._MODULE_OF
    assert sorted(seen) == sorted(polyrhythm.__all__)


def test_every_package_whose_types_are_exported_has_them_marked() -> None:
    packages = {module.partition(".")[0] for module in polyrhythm._MODULE_OF.values()}
    folders = {p: Path(str(import_module(p).__file__)).parent for p in packages}
    assert [p for p in sorted(packages) if not (folders[p] / "py.typed").exists()] == []


def test_the_import_is_light() -> None:
    code = "import sys, polyrhythm; print([m for m in ('numpy', 'grpc', 'yaml', 'controller') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
