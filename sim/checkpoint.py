# SPDX-License-Identifier: Apache-2.0
"""A simulation's memory in a file, to go on from after a kill.

A checkpoint is taken only where the simulation makes its engines anew anyway (every `tidy` events, by
count and not by the clock on the wall): going on from it is the very same computation.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

from sim.output import replace_file
from sim.state import SimulationState

_MAGIC = b"polyrhythm simulation 2\n"
_ROOMS = ("sim.", "controller.model.", "controller.routing.forwarding", "topo.graph")
_OTHERS = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("collections", "deque"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
}


class CheckpointError(ValueError):
    """A file that is no checkpoint of this simulation; the message says why."""


class _Reader(pickle.Unpickler):
    """Reads only values of ours, so that a file from elsewhere cannot call anything."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OTHERS:
            return super().find_class(module, name)
        if module.startswith(_ROOMS):
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        raise CheckpointError(f"it names {module}.{name}, which no checkpoint holds")


def fingerprint(*parts: object) -> bytes:
    """Tells whether a checkpoint belongs to these inputs."""
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).digest()


def save(memory: SimulationState, path: Path, mark: bytes) -> None:
    """Write a checkpoint, whole or not at all."""
    body = pickle.dumps(memory, protocol=5)
    replace_file(path, _MAGIC + mark + hashlib.sha256(body).digest() + body)


def load(path: Path, mark: bytes) -> SimulationState | None:
    """The memory in a checkpoint, None if there is no such file.

    Raises:
        CheckpointError: the file is damaged, of another version, or of another simulation.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    head = len(_MAGIC)
    if not data.startswith(_MAGIC) or len(data) < head + 64:
        raise CheckpointError(f"{path}: no checkpoint of this version; remove it to begin anew")
    if data[head : head + 32] != mark:
        raise CheckpointError(f"{path}: of other inputs or options; remove it, or use another --out")
    body = data[head + 64 :]
    if hashlib.sha256(body).digest() != data[head + 32 : head + 64]:
        raise CheckpointError(f"{path}: damaged; remove it to begin anew")
    memory = _Reader(io.BytesIO(body)).load()
    if not isinstance(memory, SimulationState):
        raise CheckpointError(f"{path}: it holds no simulation")
    return memory
