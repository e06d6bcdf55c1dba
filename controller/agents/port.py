# SPDX-License-Identifier: Apache-2.0
"""The port for agents: a gRPC server without services yet."""

from __future__ import annotations

import socket
from pathlib import Path

import grpc

from controller.agents.tls import server_credentials
from controller.wire.limits import MAX_AGENT_MESSAGE_BYTES
from controller.wire.server_tls import ServerTls

# An agent pings a silent controller to notice that the network is cut. With its defaults gRPC would end a
# session that pings so often.
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_receive_message_length", MAX_AGENT_MESSAGE_BYTES),
    ("grpc.server_handshake_timeout_ms", 10_000),
)
# A host that lost power says nothing, and its session would stay for hours. Chosen: such a session ends
# within 5 s, and a busy agent is not taken for a dead one.
_PINGS = (
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    # gRPC waits for the longer of both time-outs, and this one is a minute by default.
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)


def new_server(
    address: str, port: int, tls: ServerTls | None, *, pings: bool = False
) -> tuple[grpc.aio.Server, str]:
    """A server that will listen on `address` and `port` (0: any), or on "unix:/PATH", once it is started, and
    its address for agents. With `tls` the port accepts TLS only. With `pings`, sessions of silent
    agents end.

    Raises:
        OSError: the address or port cannot be used.
    """
    server = grpc.aio.server(options=(*_OPTIONS, *_PINGS) if pings else _OPTIONS)
    local = address.startswith("unix:")
    at = address if local else f"{address}:{port}"
    if local:
        _check_free(address)
    try:
        if tls is None:
            taken = server.add_insecure_port(at)
        else:
            taken = server.add_secure_port(at, server_credentials(tls))
    except RuntimeError as error:
        raise OSError(f"cannot listen on {at}: the address is not of this host, or in use") from error
    return server, address if local else f"{address}:{taken}"


def _check_free(address: str) -> None:
    """Raise OSError if another process listens on a Unix socket: gRPC would take it from that process."""
    path = Path(address.removeprefix("unix:"))
    if not path.parent.is_dir():
        raise OSError(f"cannot listen on {address}: there is no folder {path.parent}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError as error:
            raise OSError(f"cannot listen on {address}: {error.strerror or error}") from None
    raise OSError(f"cannot listen on {address}: another process listens there")
