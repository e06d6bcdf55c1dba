# SPDX-License-Identifier: Apache-2.0
"""Open the port of a switch: a gRPC server with P4Runtime and gNMI for several clients at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
from finsy.proto import gnmi_grpc, p4r_grpc

from bmv2.boundary import Boundary
from bmv2.server.gnmi import GnmiService
from bmv2.server.injection import InjectionService
from bmv2.server.listening import Tls, listen
from bmv2.server.p4runtime import P4RuntimeService
from bmv2.server.seats import Seats
from bmv2.switch import EmbeddedSwitch

# Each open stream holds a thread, and so does each read until its client has taken the answer (64 at most);
# threads are made when needed, so this only bounds the clients. The threads beyond those are for the other
# calls, which thus are always served.
_THREADS = 320
_P4RUNTIME_STREAMS = 160
_GNMI_STREAMS = 64
# Calls that wait for a thread, in all. Chosen: thousands of streams at once that are refused one by one.
_CALLS = 16_384
# A client whose connection is half open answers no ping and loses its session: together the silence after
# which a fabric takes its controller for gone.
_PING_MS = 60_000
_PING_PATIENCE_MS = 60_000
# How long a new connection may take to speak HTTP/2, and TLS before it. Chosen: far beyond what a slow client
# needs, and few connections that say nothing are open at a time.
_HANDSHAKE_MS = 30_000
_INJECTION_THREADS = 4
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_metadata_size", 1 << 20),
    ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
    ("grpc.keepalive_time_ms", _PING_MS),
    ("grpc.keepalive_timeout_ms", _PING_PATIENCE_MS),
    ("grpc.http2.max_pings_without_data", 0),
)


class SwitchServer:
    """A running server of one switch."""

    def __init__(
        self, server: grpc.Server, p4runtime: P4RuntimeService, gnmi: GnmiService, address: str
    ) -> None:
        self._server = server
        self._p4runtime = p4runtime
        self._gnmi = gnmi
        self._address = address

    @property
    def address(self) -> str:
        """The "host:port" that clients connect to, with the port that was taken where 0 was asked for."""
        return self._address

    @property
    def connected(self) -> bool:
        """Whether a controller is the primary now."""
        return self._p4runtime.connected

    @property
    def dropped_packet_ins(self) -> int:
        """Packets for the CPU port that found no primary."""
        return self._p4runtime.dropped_packet_ins

    @property
    def unread_messages(self) -> int:
        """Packet-ins, digests and notices that were lost because a client did not read its stream."""
        return self._p4runtime.unread_messages

    def stop(self) -> None:
        """Close the port and all sessions, and wait until their threads have ended."""
        self._gnmi.close()
        self._server.stop(grace=0).wait()


def serve(
    switch: EmbeddedSwitch,
    boundary: Boundary,
    *,
    device_id: int,
    address: str = "127.0.0.1:0",
    rpc_delay_s: float = 0.0,
    tls: Tls | None = None,
) -> SwitchServer:
    """Serve a switch; takes its `packet_in` and `port_state_changed` hooks.

    `rpc_delay_s` (seconds of the host's time) holds back every unary call and every stream message in
    either direction: nothing that the data plane does may depend on it. Without `tls` clients speak in
    the clear. Raises OSError when the address is taken or is none.
    """
    server = _server(switch.name, _THREADS, _CALLS)
    p4runtime = P4RuntimeService(switch, boundary, device_id, rpc_delay_s, Seats(_P4RUNTIME_STREAMS))
    gnmi = GnmiService(switch, boundary, rpc_delay_s, Seats(_GNMI_STREAMS))

    def port_changed(port: int, up: bool) -> None:
        p4runtime.port_changed()
        gnmi.port_changed(port, up)

    switch.port_state_changed = port_changed
    p4r_grpc.add_P4RuntimeServicer_to_server(p4runtime, server)
    gnmi_grpc.add_gNMIServicer_to_server(gnmi, server)
    bound = listen(server, address, tls)
    server.start()
    return SwitchServer(server, p4runtime, gnmi, bound)


class InjectionServer:
    """A running data-plane service of one switch."""

    def __init__(self, server: grpc.Server, address: str) -> None:
        self._server = server
        self.address = address

    def stop(self) -> None:
        """Close the port and the session."""
        self._server.stop(grace=0).wait()


def serve_injection(service: InjectionService, *, address: str) -> InjectionServer:
    """Open the data-plane service's port. Raises OSError when the address is taken or is none."""
    server = _server("injection", _INJECTION_THREADS, _INJECTION_THREADS)
    service.add_to(server)
    bound = listen(server, address)
    server.start()
    return InjectionServer(server, bound)


def _server(name: str, threads: int, calls: int) -> grpc.Server:
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    return grpc.server(pool, options=_OPTIONS, maximum_concurrent_rpcs=calls)
