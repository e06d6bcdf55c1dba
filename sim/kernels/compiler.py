# SPDX-License-Identifier: Apache-2.0
"""The decorator of this room's kernels: compiled at the first call, kept for this state of the sources.

Every kernel goes into its callers: a call that passes the state's arrays costs more than most of them do.
"""

from __future__ import annotations

from controller.kernel import compiler
from sim.kernels import SOURCES

kernel = compiler(*SOURCES, inline=True)
