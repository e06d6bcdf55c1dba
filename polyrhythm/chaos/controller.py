# SPDX-License-Identifier: Apache-2.0
"""The controller of `polyrhythm chaos`: the real one, in a process whose wall clock can be set.

`python -m polyrhythm.chaos.controller ARGUMENTS` runs `polyrhythm ARGUMENTS`. The file that the environment
variable POLYRHYTHM_CHAOS_WALL_CLOCK names holds by how many seconds the wall clock is off.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from polyrhythm.cli import main

# Chosen: above the switches' (`polyrhythm/chaos/fabric.py`), below the agents'.
NICENESS = 5
# How often the file is read, in seconds.
_READ_S = 0.1


def _off(file: Path) -> Callable[[], float]:
    """A function that gives by how many seconds the clock is off now."""
    read_s, value = -1.0, 0.0

    def off() -> float:
        nonlocal read_s, value
        now = time.monotonic()
        if now - read_s > _READ_S:
            read_s = now
            try:
                value = float(file.read_text())
            except (OSError, ValueError):
                return value
        return value

    return off


def set_wall_clock(file: Path) -> None:
    """Make the wall clock of our modules and of the log be off by what the file says.

    gRPC keeps the machine's clock: its own half in C would not see another one.
    """
    off = _off(file)
    clock = ModuleType("time")
    clock.__dict__.update(time.__dict__)
    clock.__dict__.update(time=lambda: time.time() + off(), time_ns=lambda: time.time_ns() + int(off() * 1e9))
    for name, module in list(sys.modules.items()):
        ours = name.partition(".")[0] in ("controller", "logging")
        if ours and getattr(module, "time", None) is time:
            vars(module)["time"] = clock


if __name__ == "__main__":
    # In a cluster the controller has a machine of its own: its start takes no processor time from agents.
    os.nice(NICENESS)
    # Its modules must be there before they get another clock.
    import_module("controller.process.server")
    set_wall_clock(Path(os.environ["POLYRHYTHM_CHAOS_WALL_CLOCK"]))
    sys.exit(main())
