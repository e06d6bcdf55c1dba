# SPDX-License-Identifier: Apache-2.0
"""Save the state of a simulation in a file, and continue from it after a kill.

A checkpoint is written only where the simulation creates its engines anew: every `tidy` events. This depends
on the count of events, not on the time of day. So a continued run computes exactly the same as an
uninterrupted one.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

from sim.output import replace_file
from sim.state import SimulationState

_MAGIC = b"polyrhythm simulation 6\n"
_ROOMS = ("sim.", "controller.model.", "controller.placement.", "controller.routing.forwarding", "topo.graph")
_OTHERS = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("collections", "deque"),
    ("random", "Random"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
}


class CheckpointError(ValueError):
    """The file is not a checkpoint of this simulation. The message says why."""


class _Reader(pickle.Unpickler):
    """Unpickles classes of this project only, so that a file from elsewhere cannot execute code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OTHERS:
            return super().find_class(module, name)
        if module.startswith(_ROOMS):
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        raise CheckpointError(f"it names {module}.{name}, which no checkpoint holds")


def fingerprint(*parts: object) -> bytes:
    """A digest of the inputs. It tells whether a checkpoint belongs to them."""
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).digest()


def save(memory: SimulationState, path: Path, mark: bytes) -> None:
    """Write a checkpoint. The file is replaced as a whole or not at all."""
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
