# SPDX-License-Identifier: Apache-2.0
"""Time slices for both ends of the agents' protocol: no question waits for another process's slice to end."""

from __future__ import annotations

import ctypes
import os
import platform

_SLICE_NS = 100_000
"""The shortest time slice that Linux gives. A thread that wants less at a time gets it sooner."""
_SETATTR = {"x86_64": 314, "aarch64": 274}
"""The number of the system call sched_setattr, which neither Python nor older C libraries know."""


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
    """Ask Linux for short time slices for this thread and those it makes from now on; whether it was taken.

    They then do not wait for the end of another's slice (Linux 6.12 and newer; no effect before). No right is
    needed, and they get no more processor time than they would.
    """
    return _normal(_SLICE_NS)


def default_time_slices() -> bool:
    """Have the slices of this thread be Linux's own again; whether that was taken."""
    return _normal(0)


def _normal(slice_ns: int) -> bool:
    """Normal scheduling of this thread with time slices of that length; 0: Linux's own."""
    number = _SETATTR.get(platform.machine())
    if number is None or platform.system() != "Linux":
        return False
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    wish = _Attributes(size=ctypes.sizeof(_Attributes), nice=niceness, runtime=slice_ns)
    failed: int = ctypes.CDLL(None).syscall(number, 0, ctypes.byref(wish), 0)
    return not failed
