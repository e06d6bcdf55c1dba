# SPDX-License-Identifier: Apache-2.0
"""Re-pinning of queue pairs of this very process, through rdma-core's libraries by ctypes.

Only the process that owns a queue pair can do that; an agent beside it cannot, and uses the shim.
"""

from __future__ import annotations

import ctypes
import os

from hostagent.nic.driver import FIRST_SOURCE_PORT

VERBS = "libibverbs.so.1"
MLX5 = "libmlx5.so.1"


class VerbsError(OSError):
    """Verbs cannot do what was asked; the message says why."""


class Verbs:
    """The device list, and mlx5's way to give a queue pair in RTS another source port.

    Raises VerbsError when rdma-core is not installed, or knows no such way.
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
        """Names of the RDMA devices of this host."""
        count = ctypes.c_int()
        found = self._verbs.ibv_get_device_list(ctypes.byref(count))
        if not found:
            return []
        names = [self._verbs.ibv_get_device_name(found[i]).decode() for i in range(count.value)]
        self._verbs.ibv_free_device_list(found)
        return names

    def move(self, queue_pair: int, source_port: int) -> None:
        """Let a queue pair (`struct ibv_qp *`, RC or UC, in RTS) send from `source_port`.

        Raises ValueError for a port that is none of RoCEv2's, VerbsError when the device refuses.
        """
        if not FIRST_SOURCE_PORT <= source_port <= 0xFFFF:
            raise ValueError(f"source port {source_port} is outside 49152-65535")
        result = self._modify(queue_pair, source_port)
        if result:
            raise VerbsError(result, f"queue pair not moved to port {source_port}: {os.strerror(result)}")


def _load(name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise VerbsError(f"{name} cannot be loaded: {error}") from None
