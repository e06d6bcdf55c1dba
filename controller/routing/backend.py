# SPDX-License-Identifier: Apache-2.0
"""Choose the implementation of the hot loops: compiled kernels, or plain Python where Numba is missing."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from controller.kernel import available
from controller.kernel import cold as _cold

REFERENCE = "controller.routing.reference"
KERNELS = "controller.routing.kernels"


@cache
def backend(plain: bool = False) -> ModuleType:
    """The module with the hot loops, imported at the first call. `plain` asks for the plain Python reference.

    Both modules have the same functions with the same signatures.
    """
    return import_module(REFERENCE if plain or not available() else KERNELS)


def cold() -> bool:
    """Whether the first use of the kernels must compile them, which takes some seconds."""
    return _cold(Path(__file__).parent / "kernels")
