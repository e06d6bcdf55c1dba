# SPDX-License-Identifier: Apache-2.0
"""The files of which the compiled kernel consists. Does not import Numba."""

from __future__ import annotations

from pathlib import Path

from controller.interleave import jitter, slot_tolerance
from controller.interleave.joint import fair_rates, fluid, fluid_arrays, steady_rates, windows

SOURCES = (
    *(str(Path(__file__).with_name(name)) for name in ("kernel.py", "kernel_rates.py", "kernel_state.py")),
    fair_rates.__file__,
    fluid.__file__,
    fluid_arrays.__file__,
    jitter.__file__,
    slot_tolerance.__file__,
    steady_rates.__file__,
    windows.__file__,
)
