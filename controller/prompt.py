# SPDX-License-Identifier: Apache-2.0
"""Keeps a process quick to answer: no long pauses of the garbage collector, and planning comes second.

New flows wait for the controller's loop, for milliseconds at most. Two things hold it up for longer than any
work of its own: a full collection, which visits every object of every import and of the plan in force (70 ms
were measured), and other busy processes of a machine with few cores, each of which Linux lets finish its
time slice (3 ms and more).
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import platform
import time

log = logging.getLogger(__name__)

FULL_EVERY_S = 600.0
"""A full collection is made so often, as soon as nobody has asked for `QUIET_S`..."""
FULL_AT_LATEST_S = 3600.0
"""... and after so long whoever asks."""
QUIET_S = 1.0
NICENESS = 10
_SLICE_NS = 100_000
"""The shortest time slice that Linux gives. A thread that wants less at a time gets it sooner."""
_SETATTR = {"x86_64": 314, "aarch64": 274}


class Heap:
    """Takes full collections out of the way of answers.

    What has survived a collection of the young is frozen, so the old generation stays empty, and what Python
    collects by itself is little. What dies old in a cycle is found by `tidy`.
    """

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()
        self._full_s = time.monotonic()
        gc.callbacks.append(_freeze)

    def tidy(self, now_s: float, asked_s: float) -> bool:
        """Make a full collection if it is time for one, by the monotonic clock; whether it was. `asked_s` is
        when somebody last waited for an answer."""
        since_s = now_s - self._full_s
        if since_s < FULL_EVERY_S or (since_s < FULL_AT_LATEST_S and now_s - asked_s < QUIET_S):
            return False
        self._full_s = now_s
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        log.info("full collection: %d objects in %.0f ms", found, 1e3 * (time.monotonic() - now_s))
        return True

    def close(self) -> None:
        """Collect as Python does by itself again."""
        gc.callbacks.remove(_freeze)
        gc.unfreeze()


def _freeze(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] >= 1:
        gc.freeze()


class _Attributes(ctypes.Structure):
    """Linux's struct sched_attr, first version (sched_setattr(2))."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def ahead() -> bool:
    """Ask Linux for short time slices for this thread and those it makes from now on; whether it was taken.

    They then do not wait for the end of another's slice (Linux 6.12 and newer; no effect before). No right is
    needed, and they get no more processor time than they would."""
    return _normal(os.getpriority(os.PRIO_PROCESS, 0), _SLICE_NS)


def behind() -> None:
    """Have this process, which is a child of one that answers, take the processor time that others leave."""
    os.nice(NICENESS)
    _normal(os.getpriority(os.PRIO_PROCESS, 0), 0)
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _normal(niceness: int, slice_ns: int) -> bool:
    """Normal scheduling of this thread with time slices of that length; 0: Linux's own."""
    number = _SETATTR.get(platform.machine())
    if number is None or platform.system() != "Linux":
        return False
    wish = _Attributes(size=ctypes.sizeof(_Attributes), nice=niceness, runtime=slice_ns)
    failed: int = ctypes.CDLL(None).syscall(number, 0, ctypes.byref(wish), 0)
    return not failed
