# SPDX-License-Identifier: Apache-2.0
"""The compiled kernels. This much can be imported without Numba; the modules bring it along."""

from pathlib import Path

from controller.interleave import jitter

_SIM = Path(__file__).parent.parent
SOURCES = Path(__file__).parent, _SIM / "units.py", _SIM / "jitter.py", jitter.__file__
"""All files whose functions the kernels call (see `controller.kernel.cold`)."""
