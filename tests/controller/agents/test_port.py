# SPDX-License-Identifier: Apache-2.0
"""The Unix socket for agents: a controller takes over that of a dead one, and of no other."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from controller.agents.port import new_server


async def listens(path: Path) -> bool:
    """Whether a new server gets the socket."""
    server, address = new_server(f"unix:{path}", 0, None)
    await server.start()
    assert address == f"unix:{path}"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    await server.stop(grace=0)
    return True


def test_the_socket_of_another_process_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "agents.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(OSError, match="another process listens there"):
            asyncio.run(listens(path))
        assert path.exists()
    # It has ended without removing its socket, as a killed controller does.
    assert path.exists()
    assert asyncio.run(listens(path))


def test_a_path_that_cannot_be_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="there is no folder"):
        asyncio.run(listens(tmp_path / "none" / "agents.sock"))
    with pytest.raises(OSError, match="AF_UNIX path too long"):
        asyncio.run(listens(tmp_path / ("s" * 120)))
