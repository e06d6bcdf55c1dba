# SPDX-License-Identifier: Apache-2.0
"""The compiled kernels. This package can be imported without Numba; its modules import Numba."""

from pathlib import Path

from controller.interleave import jitter

_SIM = Path(__file__).parent.parent
SOURCES = Path(__file__).parent, _SIM / "units.py", _SIM / "jitter.py", jitter.__file__
"""All files whose functions the kernels call (see `controller.kernel.cold`)."""
