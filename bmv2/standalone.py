# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm switch`: an embedded switch as a process on real interfaces, called like simple_switch_grpc."""

from __future__ import annotations

import argparse
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NoReturn

from bmv2.hostloop import HostLoop
from bmv2.interfaces import InterfaceError, RawInterface, link_events
from bmv2.program import ProgramError, load_program
from bmv2.server import serve
from bmv2.switch import EmbeddedSwitch

_LOG = logging.getLogger("polyrhythm.switch")
_MAX_PORT = 510
_MAX_QUEUES = 8
_BURST = 64


class UsageError(Exception):
    """A command line that cannot be obeyed: one line for the user."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options. What follows `--` are the target's, as with simple_switch_grpc."""
    parser.add_argument(
        "-i",
        "--interface",
        action="append",
        default=[],
        metavar="PORT@INTERFACE",
        help="attach a network interface to a port (repeatable; ports from 1)",
    )
    parser.add_argument("--device-id", type=int, default=0, help="P4Runtime device id (default 0)")
    parser.add_argument("--no-p4", action="store_true", help="start with no program; wait for P4Runtime")
    parser.add_argument("--thrift-port", type=int, help="accepted and unused: there is no Thrift server")
    parser.add_argument("--log-console", action="store_true", help="log to the standard output")
    parser.add_argument("--pcap", nargs="?", const=".", help="refused: captures are not supported")
    parser.add_argument("--seed", type=int, default=0, help="seed of the data plane's random numbers")
    parser.add_argument(
        "--port-rate", type=int, metavar="BPS", help="rate of each port in bit/s (default: none)"
    )
    parser.add_argument(
        "--queue-packets",
        type=int,
        default=256,
        metavar="N",
        help="depth of each queue in packets (default 256)",
    )
    parser.add_argument("program", nargs="?", metavar="PROGRAM.json", help="a program that p4c made for BMv2")
    parser.add_argument(
        "target",
        nargs="*",
        metavar="-- TARGET OPTION",
        help="--grpc-server-addr HOST:PORT (default 0.0.0.0:9559), --cpu-port N, --drop-port N, "
        "--priority-queues N",
    )


class _TargetParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"after --: {message}")


def _target_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _TargetParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--grpc-server-addr", default="0.0.0.0:9559")
    parser.add_argument("--cpu-port", type=int, default=255)
    parser.add_argument("--drop-port", type=int, default=511)
    parser.add_argument("--priority-queues", type=int, default=_MAX_QUEUES)
    return parser.parse_args(arguments)


def run(args: argparse.Namespace) -> int:
    """Run the switch until SIGINT or SIGTERM; 0 then, and 2 with one line for what cannot be done."""
    try:
        _run(args)
    except (UsageError, InterfaceError, ProgramError) as error:
        print(f"polyrhythm switch: {error}", file=sys.stderr)
        return 2
    return 0


def _run(args: argparse.Namespace) -> None:
    program_path, target = _split_positionals(args.program, args.target)
    options = _target_options(target)
    _check(args, options, program_path)
    if args.log_console:
        logging.basicConfig(
            level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(message)s"
        )
    if args.thrift_port is not None:
        _LOG.info("--thrift-port %d is unused: there is no Thrift server", args.thrift_port)
    with ExitStack() as stack:
        loop = HostLoop()
        stack.callback(loop.close)
        switch = EmbeddedSwitch(
            f"switch{args.device_id}",
            loop,
            cpu_port=options.cpu_port,
            drop_port=options.drop_port,
            queues=options.priority_queues,
            seed=args.seed,
        )
        if program_path is not None:
            switch.load(load_program(_read(program_path)))
        interfaces = {}
        for port, name in _ports(args.interface, options).items():
            interfaces[port] = RawInterface(name)
            stack.callback(interfaces[port].close)
            switch.add_port(
                port,
                rate_bps=args.port_rate,
                transmit=interfaces[port].send,
                queue_packets=args.queue_packets,
            )
        stack.callback(_watch(loop, switch, interfaces).close)
        try:
            server = serve(switch, loop, device_id=args.device_id, address=options.grpc_server_addr)
        except OSError as error:
            raise UsageError(f"--grpc-server-addr {error}") from None
        stack.callback(server.stop)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: loop.stop())
        _LOG.info("device %d serves P4Runtime and gNMI on %s", args.device_id, server.address)
        loop.run()


def _split_positionals(program: str | None, rest: Sequence[str]) -> tuple[str | None, list[str]]:
    """Undo argparse's taking the first target option for the program where there is none."""
    if program is not None and program.startswith("-"):
        return None, [program, *rest]
    return program, list(rest)


def _check(args: argparse.Namespace, options: argparse.Namespace, program: str | None) -> None:
    if args.pcap is not None:
        raise UsageError("--pcap: captures are not supported; use tcpdump on the interface")
    if args.no_p4 and program is not None:
        raise UsageError(f"--no-p4 and the program {program} contradict each other; give one")
    if not args.no_p4 and program is None:
        raise UsageError("give a program (p4c's BMv2 JSON), or --no-p4 to wait for one by P4Runtime")
    if args.device_id < 0:
        raise UsageError(f"--device-id {args.device_id}: must be 0 or more")
    if args.port_rate is not None and args.port_rate <= 0:
        raise UsageError(f"--port-rate {args.port_rate}: must be above 0 bit/s")
    if args.queue_packets < 1:
        raise UsageError(f"--queue-packets {args.queue_packets}: must be 1 or more")
    if not 1 <= options.priority_queues <= _MAX_QUEUES:
        raise UsageError(f"--priority-queues {options.priority_queues}: must be in 1..{_MAX_QUEUES}")
    for option, port in (("--cpu-port", options.cpu_port), ("--drop-port", options.drop_port)):
        if not 1 <= port <= _MAX_PORT + 1:
            raise UsageError(f"{option} {port}: must be in 1..{_MAX_PORT + 1}")


def _ports(specifications: Sequence[str], options: argparse.Namespace) -> dict[int, str]:
    ports: dict[int, str] = {}
    for specification in specifications:
        number, separator, name = specification.partition("@")
        if not separator or not name or not number.isdecimal():
            raise UsageError(f"-i {specification}: must be PORT@INTERFACE, for example 1@eth0")
        port = int(number)
        if not 1 <= port <= _MAX_PORT:
            raise UsageError(f"-i {specification}: the port must be in 1..{_MAX_PORT}")
        if port in (options.cpu_port, options.drop_port):
            raise UsageError(f"-i {specification}: port {port} is the CPU or the drop port")
        if port in ports:
            raise UsageError(f"-i {specification}: port {port} is {ports[port]} already")
        ports[port] = name
    return ports


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _watch(loop: HostLoop, switch: EmbeddedSwitch, interfaces: dict[int, RawInterface]) -> socket.socket:
    """Bring in frames and link states from now on; gives the socket of the link states, to be closed."""
    for port, interface in interfaces.items():
        loop.watch(interface.socket, partial(_receive, switch, port, interface))
    events = link_events()
    follow = partial(_follow_carrier, switch, interfaces)
    loop.watch(events, partial(_on_link_event, events, follow))
    follow()
    return events


def _receive(switch: EmbeddedSwitch, port: int, interface: RawInterface) -> None:
    # A bounded burst, so that one busy port cannot keep timed events waiting.
    for _ in range(_BURST):
        frame = interface.receive()
        if frame is None:
            return
        switch.receive(port, frame)


def _on_link_event(events: socket.socket, follow: Callable[[], None]) -> None:
    events.recv(65536)
    follow()


def _follow_carrier(switch: EmbeddedSwitch, interfaces: dict[int, RawInterface]) -> None:
    for port, interface in interfaces.items():
        up = interface.carrier()
        if up != switch.port_up(port):
            _LOG.info("port %d (%s) is %s", port, interface.name, "up" if up else "down")
            switch.set_port_up(port, up)
