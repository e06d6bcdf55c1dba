# SPDX-License-Identifier: Apache-2.0
"""Source ports of the queue pairs of this process, set through rdma-core's libraries by ctypes.

Only the process that owns a queue pair can change its source port. The agent is another process: it uses the
verbs shim instead.
"""

from __future__ import annotations

import ctypes
import os

VERBS = "libibverbs.so.1"
MLX5 = "libmlx5.so.1"
SOURCE_PORTS = range(0xC000, 0x10000)
"""The source ports of RoCEv2: two bits are set, 14 come from the flow label."""


class VerbsError(OSError):
    """rdma-core cannot do what was asked; the message says why."""


class Verbs:
    """The list of RDMA devices, and mlx5's call that changes the source port of a queue pair in RTS.

    Raises VerbsError when rdma-core is not installed, or is older than that call.
    """

    def __init__(self) -> None:
        self._verbs = _load(VERBS)
        mlx5 = _load(MLX5)
        try:
            self._modify = mlx5.mlx5dv_modify_qp_udp_sport
        except AttributeError:
            raise VerbsError(f"{MLX5} has no mlx5dv_modify_qp_udp_sport: rdma-core 35 is needed") from None
        self._modify.argtypes = (ctypes.c_void_p, ctypes.c_uint16)
        self._modify.restype = ctypes.c_int
        self._verbs.ibv_get_device_list.argtypes = (ctypes.POINTER(ctypes.c_int),)
        self._verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
        self._verbs.ibv_free_device_list.argtypes = (ctypes.POINTER(ctypes.c_void_p),)
        self._verbs.ibv_free_device_list.restype = None
        self._verbs.ibv_get_device_name.argtypes = (ctypes.c_void_p,)
        self._verbs.ibv_get_device_name.restype = ctypes.c_char_p

    def devices(self) -> list[str]:
        """The names of the RDMA devices of this host."""
        count = ctypes.c_int()
        found = self._verbs.ibv_get_device_list(ctypes.byref(count))
        if not found:
            return []
        names = [self._verbs.ibv_get_device_name(found[i]).decode() for i in range(count.value)]
        self._verbs.ibv_free_device_list(found)
        return names

    def move(self, queue_pair: int, source_port: int) -> None:
        """Let a queue pair (`struct ibv_qp *`, RC or UC, in RTS) send from `source_port`.

        Raises ValueError for a port outside SOURCE_PORTS, VerbsError when the device refuses.
        """
        if source_port not in SOURCE_PORTS:
            raise ValueError(f"source port {source_port} is outside 49152-65535")
        result = self._modify(queue_pair, source_port)
        if result:
            raise VerbsError(result, f"queue pair not moved to port {source_port}: {os.strerror(result)}")


def _load(name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise VerbsError(f"{name} cannot be loaded: {error}") from None
