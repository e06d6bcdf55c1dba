# SPDX-License-Identifier: Apache-2.0
"""The decorator of these kernels: compile at the first call, and cache for this state of the sources.

Every kernel is inlined into its callers, because passing the arrays of the state costs more than most
kernels.
"""

from __future__ import annotations

from controller.kernel import compiler
from sim.kernels import SOURCES

kernel = compiler(*SOURCES, inline=True)
