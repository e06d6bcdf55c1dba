# SPDX-License-Identifier: Apache-2.0
"""The decorator of the kernels in this folder."""

from __future__ import annotations

from pathlib import Path

from controller.kernel import compiler

kernel = compiler(Path(__file__).parent)
