# SPDX-License-Identifier: Apache-2.0
"""A loaded program. It is checked and compiled once, also where several switches run it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .codegen import GeneratedProgram, generate
from .errors import P4ProgramError
from .ir import Ir, Table
from .loader import load

_CACHE_LIMIT = 32
_cache: dict[bytes, P4Program] = {}


@dataclass(frozen=True, slots=True)
class P4Program:
    """A v1model program, ready to run; `digest` is the SHA-256 of its JSON."""

    digest: bytes
    ir: Ir
    generated: GeneratedProgram

    def tables(self) -> Iterator[Table]:
        """The program's tables, those p4c made of single statements included."""
        return self.ir.tables()

    @property
    def counters(self) -> Mapping[str, int]:
        """The sizes of the indirect counter arrays."""
        return self.ir.counters


def load_program(source: bytes | str) -> P4Program:
    """Load p4c's BMv2 JSON; the same content is compiled once in a process.

    Raises P4ProgramError where it is not BMv2 JSON of version 2.x or uses something not supported.
    """
    digest = hashlib.sha256(source.encode() if isinstance(source, str) else source).digest()
    program = _cache.get(digest)
    if program is None:
        ir = load(source)
        program = P4Program(digest, ir, generate(ir))
        while len(_cache) >= _CACHE_LIMIT:
            del _cache[next(iter(_cache))]
        _cache[digest] = program
    return program


__all__ = ["P4Program", "P4ProgramError", "load_program"]
