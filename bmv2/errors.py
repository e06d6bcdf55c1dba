# SPDX-License-Identifier: Apache-2.0
"""The refusal of a program."""

from __future__ import annotations


class P4ProgramError(ValueError):
    """A program that cannot be loaded: the message says what, where in the JSON and what is supported."""
