# SPDX-License-Identifier: Apache-2.0
"""What `import polyrhythm` exports, whichever commands have run in the process."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
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


def test_the_import_is_light() -> None:
    code = "import sys, polyrhythm; print([m for m in ('numpy', 'grpc', 'yaml', 'controller') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
