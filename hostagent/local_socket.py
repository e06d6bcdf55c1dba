# SPDX-License-Identifier: Apache-2.0
"""The agent's Unix socket: how it is opened, and who is at the other end of a connection."""

from __future__ import annotations

import contextlib
import socket
import stat
import struct
from pathlib import Path

from polyrhythm_files import InvalidValueError

_SOCKET = ("agent", "socket")


def listen(path: Path) -> socket.socket:
    """Listen on a Unix socket at `path`, for all users of the host. Raises InvalidValueError if it cannot."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        _clear(path)
        made.bind(str(path))
        path.chmod(0o666)
        made.listen(64)
    except OSError as error:
        made.close()
        raise InvalidValueError(_SOCKET, f"{path}: {error.strerror or error}") from None
    except InvalidValueError:
        made.close()
        raise
    return made


def _clear(path: Path) -> None:
    """Remove a socket that no agent listens on any more. Raises InvalidValueError if one does."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise InvalidValueError(_SOCKET, f"{path} exists, and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
            probe.connect(str(path))
            raise InvalidValueError(_SOCKET, f"another agent listens on {path}")
    path.unlink(missing_ok=True)


def peer(accepted: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end, as the kernel knows them."""
    credentials = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    process, user, _ = struct.unpack("=iII", credentials)
    return process, user
