# SPDX-License-Identifier: Apache-2.0
"""A program turned into Python source of its own: one function for ingress, one for egress."""

from .module import GeneratedProgram, generate

__all__ = ["GeneratedProgram", "generate"]
