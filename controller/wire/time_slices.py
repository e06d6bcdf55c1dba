# SPDX-License-Identifier: Apache-2.0
"""Short CPU time slices for both ends of the agent protocol.

With them a request does not wait until the time slice of another process ends.
"""

from __future__ import annotations

import ctypes
import os
import platform

_SLICE_NS = 2_000_000
"""Chosen: below Linux's default of 2.8 ms, because a thread that wakes takes the CPU from one with a longer
slice. Not much below it: once a slice is used up, the other thread keeps the CPU until the next tick, for
up to 4 ms."""
_SETATTR = {"x86_64": 314, "aarch64": 274}
"""The number of the system call sched_setattr(2), which Python and older C libraries do not provide."""


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


def short_time_slices() -> bool:
    """Ask Linux for short time slices for this thread and the threads it starts later; whether Linux agreed.

    These threads then do not wait for the end of another thread's slice (Linux 6.12 and newer; no effect
    before). No privilege is needed, and they get no more processor time in total.
    """
    return _normal(_SLICE_NS)


def default_time_slices() -> bool:
    """Return this thread to Linux's default time slices; whether Linux agreed."""
    return _normal(0)


def _normal(slice_ns: int) -> bool:
    """Normal scheduling of this thread with time slices of that length; 0: Linux's default."""
    number = _SETATTR.get(platform.machine())
    if number is None or platform.system() != "Linux":
        return False
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    wish = _Attributes(size=ctypes.sizeof(_Attributes), nice=niceness, runtime=slice_ns)
    failed: int = ctypes.CDLL(None).syscall(number, 0, ctypes.byref(wish), 0)
    return not failed
