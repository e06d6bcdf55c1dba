# SPDX-License-Identifier: Apache-2.0
"""The port for agents: a gRPC server without services yet."""

from __future__ import annotations

import grpc

from controller.agents.tls import server_credentials
from controller.wire.server_tls import ServerTls

# An agent pings a silent controller to notice that the network is cut. With its defaults gRPC would end a
# session that pings so often.
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.server_handshake_timeout_ms", 10_000),
)


def new_server(address: str, port: int, tls: ServerTls | None) -> tuple[grpc.aio.Server, str]:
    """A server that will listen on `address` and `port` (0: any), or on "unix:/PATH", once it is started, and
    its address for agents. With `tls` the port accepts TLS only.

    Raises:
        OSError: the address or port cannot be used.
    """
    server = grpc.aio.server(options=_OPTIONS)
    local = address.startswith("unix:")
    at = address if local else f"{address}:{port}"
    try:
        if tls is None:
            taken = server.add_insecure_port(at)
        else:
            taken = server.add_secure_port(at, server_credentials(tls))
    except RuntimeError as error:
        raise OSError(f"cannot listen on {at}: the address is not of this host, or in use") from error
    return server, address if local else f"{address}:{taken}"
