# SPDX-License-Identifier: Apache-2.0
"""Choose the implementation of the hot loops: compiled kernels, or plain Python where Numba is missing."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from controller.kernel import available, installed
from controller.kernel import cold as _cold

REFERENCE = "controller.routing.reference"
KERNELS = "controller.routing.kernels"
FOLDER = Path(__file__).parent / "kernels"
SMALL = 256
"""Below this number of flows the plain loops finish before Numba would be imported. Measured."""
BEARABLE = 2_000
"""Below this number of flows the plain loops take about two seconds at most: less than compiling the kernels.
Measured. They are used while another process does that."""


def backend(plain: bool = False) -> ModuleType:
    """The module with the hot loops, imported at its first use. `plain` asks for the plain Python reference.

    Both modules have the same functions with the same signatures.
    """
    return import_module(REFERENCE if plain or not installed() else KERNELS)


def plain_suffices(flows: int) -> bool:
    """Whether the plain loops do so many flows before the kernels would be there.

    Where Numba runs already, as in a planner's process that has searched, its kernels are there at once
    unless they must be compiled first.
    """
    if not available() and flows < BEARABLE:
        return True
    if flows >= SMALL or KERNELS in sys.modules:
        return False
    return "numba" not in sys.modules or cold()


def cold() -> bool:
    """Whether the first use of the kernels must compile them, which takes some seconds."""
    return _cold(FOLDER)
