# SPDX-License-Identifier: Apache-2.0
"""The compiled kernels. This much can be imported without Numba; the modules bring it along."""

from pathlib import Path

SOURCES = Path(__file__).parent, Path(__file__).parent.parent / "units.py"
"""All files whose functions the kernels call (see `controller.kernel.cold`)."""
