# SPDX-License-Identifier: Apache-2.0
"""The error for a program that the switch cannot run."""

from __future__ import annotations


class P4ProgramError(ValueError):
    """The program cannot be loaded. The message names the fault, its place, and what is legal."""
