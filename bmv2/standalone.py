# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm switch`: an embedded switch as a process, called like simple_switch_grpc.

Its ports are network interfaces, or the frames of BMv2's data-plane service over gRPC.
"""

from __future__ import annotations

import argparse
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bmv2.command_line import (
    AFTER_DASHES,
    LOG_LEVELS,
    MAX_PORT,
    SwitchSettings,
    UsageError,
    add_arguments,
    read_settings,
)
from bmv2.hostloop import HostLoop
from bmv2.interfaces import InterfaceError, RawInterface, link_events
from bmv2.pcap import PcapWriter
from bmv2.program import P4ProgramError, load_program
from bmv2.server import InjectionService, serve, serve_injection
from bmv2.switch import EmbeddedSwitch

__all__ = ["AFTER_DASHES", "add_arguments", "run"]

_LOG = logging.getLogger("polyrhythm.switch")
_BURST = 64
# Files and connections that the process may have open, where its hard limit allows. Chosen: connections that
# say nothing for `grpc.server_handshake_timeout_ms` then leave room for those of controllers.
_OPEN_FILES = 65_536
_LEVELS = dict(
    zip(
        LOG_LEVELS,
        (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL + 1),
        strict=True,
    )
)


def run(args: argparse.Namespace) -> int:
    """Run the switch until SIGINT or SIGTERM; 0 then, and 2 with one line for what cannot be done."""
    try:
        _run(read_settings(args))
    except (UsageError, InterfaceError, P4ProgramError) as error:
        print(f"polyrhythm switch: {error}", file=sys.stderr)
        return 2
    return 0


def _run(settings: SwitchSettings) -> None:
    if settings.log_console:
        logging.basicConfig(
            level=_LEVELS[settings.log_level],
            stream=sys.stdout,
            format="%(asctime)s %(levelname)s %(message)s",
        )
    if settings.thrift_port is not None:
        _LOG.info("--thrift-port %d is unused: there is no Thrift server", settings.thrift_port)
    _raise_file_limit()
    with ExitStack() as stack:
        loop = HostLoop()
        stack.callback(loop.close)
        switch = EmbeddedSwitch(
            f"switch{settings.device_id}",
            loop,
            cpu_port=settings.cpu_port,
            drop_port=settings.drop_port,
            queues=settings.priority_queues,
            seed=settings.seed,
            port_table=settings.port_table,
        )
        switch.log = _LOG.info
        if settings.program is not None:
            try:
                switch.load(load_program(_read(settings.program)))
            except P4ProgramError as error:
                raise P4ProgramError(f"{settings.program}: {error}") from None
        if settings.injection_address is None:
            _attach_interfaces(settings, loop, switch, stack)
        try:
            server = serve(
                switch,
                loop,
                device_id=settings.device_id,
                address=settings.grpc_address,
                tls=settings.tls,
            )
        except OSError as error:
            raise UsageError(f"--grpc-server-addr {error}") from None
        stack.callback(server.stop)
        if settings.injection_address is not None:
            _serve_injection(settings, settings.injection_address, loop, switch, stack)
        loop.stop_on_signals(signal.SIGINT, signal.SIGTERM)
        secured = "" if settings.tls is None else " with TLS"
        _LOG.info("device %d serves P4Runtime and gNMI%s on %s", settings.device_id, secured, server.address)
        loop.run()


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def add_port(
    settings: SwitchSettings, switch: EmbeddedSwitch, port: int, transmit: Callable[[bytes], None]
) -> None:
    """Add a port to the switch with the rates and queues that the command line asks for."""
    if settings.bmv2:
        switch.add_bmv2_port(
            port,
            queue_rate_pps=settings.queue_rate_pps,
            transmit=transmit,
            queue_packets=settings.queue_packets,
        )
        return
    switch.add_port(
        port,
        rate_bps=settings.port_rates_bps.get(port, settings.port_rate_bps),
        transmit=transmit,
        queue_packets=settings.queue_packets,
        queue_bytes=settings.queue_bytes,
    )


def _serve_injection(
    settings: SwitchSettings, address: str, loop: HostLoop, switch: EmbeddedSwitch, stack: ExitStack
) -> None:
    """Make every port number a port, up, whose frames come and go by the data-plane service."""
    service = InjectionService(switch, loop, settings.device_id)
    for port in range(MAX_PORT + 2):
        if port not in (settings.cpu_port, settings.drop_port):
            add_port(settings, switch, port, partial(service.transmit, port))
    try:
        server = serve_injection(service, address=address)
    except OSError as error:
        raise UsageError(f"--dp-grpc-server-addr {error}") from None
    stack.callback(server.stop)
    _LOG.info("device %d takes and gives frames on %s", settings.device_id, server.address)


def _attach_interfaces(
    settings: SwitchSettings, loop: HostLoop, switch: EmbeddedSwitch, stack: ExitStack
) -> None:
    interfaces = {}
    arrivals: dict[int, Callable[[bytes], None]] = {}
    for port, name in settings.interfaces.items():
        interface = interfaces[port] = RawInterface(name)
        stack.callback(interface.close)
        transmit: Callable[[bytes], None] = interface.send
        arrivals[port] = partial(switch.receive, port)
        if settings.pcap is not None:
            transmit = _captured(settings.pcap / f"{name}_out.pcap", loop, transmit, stack)
            arrivals[port] = _captured(settings.pcap / f"{name}_in.pcap", loop, arrivals[port], stack)
        add_port(settings, switch, port, transmit)
    for port, interface in interfaces.items():
        loop.watch(interface.socket, partial(_receive, interface, arrivals[port]))
    stack.callback(_watch_carriers(loop, switch, interfaces).close)


def _captured(
    path: Path, loop: HostLoop, onward: Callable[[bytes], None], stack: ExitStack
) -> Callable[[bytes], None]:
    """Make of `onward` a function that also writes the frame to a capture file."""
    try:
        capture = stack.enter_context(PcapWriter(path))
    except OSError as error:
        raise UsageError(f"--pcap {path}: {error.strerror}") from None

    def record(frame: bytes) -> None:
        capture.write(loop.now, frame)
        onward(frame)

    return record


def _watch_carriers(
    loop: HostLoop, switch: EmbeddedSwitch, interfaces: dict[int, RawInterface]
) -> socket.socket:
    """Follow link states from now on; gives the socket of the link states, to be closed."""
    events = link_events()
    follow = partial(_follow_carrier, switch, interfaces)
    loop.watch(events, partial(_on_link_event, events, follow))
    follow()
    return events


def _receive(interface: RawInterface, arrive: Callable[[bytes], None]) -> None:
    # A bounded burst, so that one busy port cannot keep timed events waiting.
    for _ in range(_BURST):
        frame = interface.receive()
        if frame is None:
            return
        arrive(frame)


def _on_link_event(events: socket.socket, follow: Callable[[], None]) -> None:
    events.recv(65536)
    follow()


def _follow_carrier(switch: EmbeddedSwitch, interfaces: dict[int, RawInterface]) -> None:
    for port, interface in interfaces.items():
        up = interface.carrier()
        if up != switch.port_up(port):
            _LOG.info("port %d (%s) is %s", port, interface.name, "up" if up else "down")
            switch.set_port_up(port, up)
