# SPDX-License-Identifier: Apache-2.0
"""Translate a program into Python source: one function for ingress, one for egress."""

from .module import GeneratedProgram, generate

__all__ = ["GeneratedProgram", "generate"]
