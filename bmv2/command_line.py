# SPDX-License-Identifier: Apache-2.0
"""simple_switch_grpc's command line, as far as the embedded switch obeys it, read and checked."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from bmv2.failover import PortTable
from bmv2.packet_scheduler import BMV2_QUEUE_PACKETS
from bmv2.server.listening import CertificateError, Tls

MAX_PORT = 510
MAX_QUEUES = 8
BMV2_QUEUES = 1
_QUEUE_PACKETS = 256
# No rate or port has more digits, and Python converts none of thousands.
_DIGITS = 18
# Chosen: characters of an argument that an error repeats.
_SHOWN = 60
AFTER_DASHES = "target"
"""The positional that takes what follows `--`, wherever PROGRAM.json stands before it."""
LOG_LEVELS = ("trace", "debug", "info", "warn", "error", "off")


class UsageError(Exception):
    """A command line that cannot be obeyed: one line for the user."""


@dataclass(frozen=True, slots=True)
class SwitchSettings:
    """A checked command line. `program` is None where one is to come by P4Runtime; rates in bit/s.

    `port_rates_bps` are those of single ports, `port_rate_bps` that of all others (None: no limit).

    With `bmv2` the ports queue as BMv2's do, each queue at `queue_rate_pps` packets/s (None: no limit).
    """

    device_id: int
    interfaces: Mapping[int, str]
    program: Path | None
    grpc_address: str
    tls: Tls | None
    injection_address: str | None
    cpu_port: int
    drop_port: int
    priority_queues: int
    port_rate_bps: int | None
    port_rates_bps: Mapping[int, int]
    queue_packets: int
    queue_bytes: int | None
    bmv2: bool
    queue_rate_pps: int | None
    port_table: PortTable | None
    seed: int
    pcap: Path | None
    thrift_port: int | None
    log_console: bool
    log_level: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options. What follows `--` are the target's, as with simple_switch_grpc."""
    parser.add_argument(
        "-i",
        "--interface",
        action="append",
        default=[],
        metavar="PORT@INTERFACE",
        help="attach a network interface to a port (repeatable; P4Runtime clients count ports from 1)",
    )
    parser.add_argument("--device-id", type=int, default=0, help="P4Runtime device id (default 0)")
    parser.add_argument("--no-p4", action="store_true", help="start with no program; wait for P4Runtime")
    parser.add_argument("--thrift-port", type=int, help="accepted and unused: there is no Thrift server")
    parser.add_argument("--log-console", action="store_true", help="log to the standard output")
    parser.add_argument(
        "-L", "--log-level", choices=LOG_LEVELS, default="info", help="what to log (default info)"
    )
    parser.add_argument(
        "--pcap",
        nargs="?",
        const=".",
        metavar="DIRECTORY",
        help="write INTERFACE_in.pcap and INTERFACE_out.pcap; --pcap=DIRECTORY (default: the current one)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the data plane's random numbers")
    parser.add_argument(
        "--port-rate",
        action="append",
        default=[],
        metavar="[PORT=]BPS",
        help="rate of each port, or of one port, in bit/s (repeatable; default: none)",
    )
    parser.add_argument(
        "--queue-packets",
        type=int,
        metavar="N",
        help=f"depth of each queue in packets (default {_QUEUE_PACKETS}, with --bmv2 {BMV2_QUEUE_PACKETS})",
    )
    parser.add_argument(
        "--queue-bytes",
        type=int,
        metavar="N",
        help="depth of each queue in bytes besides, as received (default: packets only)",
    )
    parser.add_argument(
        "--bmv2",
        action="store_true",
        help="queue as BMv2 does: every queue at its own rate in packets/s, one queue a port unless "
        "--priority-queues says otherwise",
    )
    parser.add_argument(
        "--queue-rate",
        type=int,
        metavar="PPS",
        help="with --bmv2: each queue's packets/s (default: no limit)",
    )
    parser.add_argument(
        "--port-table",
        metavar="TABLE=ACTION",
        help="enter each port that is down into this table of the program, which is keyed by a port alone "
        "(ours: port_state=set_port_down)",
    )
    parser.add_argument("program", nargs="?", metavar="PROGRAM.json", help="a program that p4c made for BMv2")
    parser.add_argument(
        "target",
        nargs="*",
        metavar="-- TARGET OPTION",
        help="--grpc-server-addr HOST:PORT (default 0.0.0.0:9559), --grpc-server-ssl, "
        "--grpc-server-cert FILE, --grpc-server-key FILE, --grpc-server-cacert FILE, "
        "--grpc-server-with-client-auth, --dp-grpc-server-addr HOST:PORT (frames over gRPC instead of "
        "interfaces), --cpu-port N, --drop-port N, --priority-queues N",
    )


class _TargetParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"after --: {message}")


def _target_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _TargetParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--grpc-server-addr", default="0.0.0.0:9559")
    parser.add_argument("--grpc-server-ssl", action="store_true")
    for file in ("cert", "key", "cacert"):
        parser.add_argument(f"--grpc-server-{file}")
    parser.add_argument("--grpc-server-with-client-auth", action="store_true")
    parser.add_argument("--dp-grpc-server-addr")
    parser.add_argument("--cpu-port", type=int, default=255)
    parser.add_argument("--drop-port", type=int, default=511)
    parser.add_argument("--priority-queues", type=int)
    return parser.parse_args(arguments)


def read_settings(args: argparse.Namespace) -> SwitchSettings:
    """Check a parsed command line. Raises UsageError for what cannot be obeyed."""
    program = args.program
    options = _target_options(args.target)
    if options.priority_queues is None:
        options.priority_queues = BMV2_QUEUES if args.bmv2 else MAX_QUEUES
    if args.queue_packets is None:
        args.queue_packets = BMV2_QUEUE_PACKETS if args.bmv2 else _QUEUE_PACKETS
    _check(args, options, program)
    interfaces = _ports(args.interface, options)
    port_rates = _port_rates(args.port_rate)
    if options.dp_grpc_server_addr is not None and interfaces:
        raise UsageError("-i and --dp-grpc-server-addr: the ports are interfaces or the service's; give one")
    if args.pcap is not None and options.dp_grpc_server_addr is not None:
        raise UsageError("--pcap and --dp-grpc-server-addr: captures are of interfaces; give one")
    if args.pcap is not None and not Path(args.pcap).is_dir():
        raise UsageError(f"--pcap {args.pcap}: there is no such directory")
    return SwitchSettings(
        device_id=args.device_id,
        interfaces=interfaces,
        program=None if program is None else Path(program),
        grpc_address=options.grpc_server_addr,
        tls=_tls(options),
        injection_address=options.dp_grpc_server_addr,
        cpu_port=options.cpu_port,
        drop_port=options.drop_port,
        priority_queues=options.priority_queues,
        port_rate_bps=port_rates.pop(None, None),
        port_rates_bps={port: rate for port, rate in port_rates.items() if port is not None},
        queue_packets=args.queue_packets,
        queue_bytes=args.queue_bytes,
        bmv2=args.bmv2,
        queue_rate_pps=args.queue_rate,
        port_table=_port_table(args.port_table),
        seed=args.seed,
        pcap=None if args.pcap is None else Path(args.pcap),
        thrift_port=args.thrift_port,
        log_console=args.log_console,
        log_level=args.log_level,
    )


def _check(args: argparse.Namespace, options: argparse.Namespace, program: str | None) -> None:
    if args.no_p4 and program is not None:
        raise UsageError(f"--no-p4 and the program {program} contradict each other; give one")
    if not args.no_p4 and program is None:
        raise UsageError("give a program (p4c's BMv2 JSON), or --no-p4 to wait for one by P4Runtime")
    if not 0 <= args.device_id < 1 << 64:
        raise UsageError(f"--device-id {args.device_id}: must be in 0..{(1 << 64) - 1}")
    if args.queue_packets < 1:
        raise UsageError(f"--queue-packets {args.queue_packets}: must be 1 or more")
    if args.queue_bytes is not None and args.queue_bytes < 1:
        raise UsageError(f"--queue-bytes {args.queue_bytes}: must be 1 or more")
    _check_bmv2(args)
    if not 1 <= options.priority_queues <= MAX_QUEUES:
        raise UsageError(f"--priority-queues {options.priority_queues}: must be in 1..{MAX_QUEUES}")
    for option, port in (("--cpu-port", options.cpu_port), ("--drop-port", options.drop_port)):
        if not 1 <= port <= MAX_PORT + 1:
            raise UsageError(f"{option} {port}: must be in 1..{MAX_PORT + 1}")
    if options.cpu_port == options.drop_port:
        raise UsageError(f"--cpu-port {options.cpu_port}: is the drop port; give another")


def _check_bmv2(args: argparse.Namespace) -> None:
    if not args.bmv2:
        if args.queue_rate is not None:
            raise UsageError(
                f"--queue-rate {args.queue_rate}: needs --bmv2; --port-rate is for all its queues"
            )
        return
    if args.queue_rate is not None and args.queue_rate <= 0:
        raise UsageError(f"--queue-rate {args.queue_rate}: must be above 0 packets/s")
    if args.port_rate:
        raise UsageError(
            "--bmv2 and --port-rate: BMv2's ports have no rate; give --queue-rate PPS, or no --bmv2"
        )
    if args.queue_bytes is not None:
        raise UsageError("--bmv2 and --queue-bytes: BMv2 bounds its queues in packets only; give one")


def _number(text: str) -> int | None:
    """A decimal number of digits that somebody may mean; None for anything else."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


def _port_rates(specifications: Sequence[str]) -> dict[int | None, int]:
    """Rates by port; None stands for all that have none of their own."""
    rates: dict[int | None, int] = {}
    for specification in specifications:
        port, separator, rate = specification.rpartition("=")
        rate_bps, key = _number(rate), _number(port) if separator else None
        if not rate_bps or (separator and key is None):
            raise UsageError(
                f"--port-rate {specification[:_SHOWN]}: must be BPS or PORT=BPS with a rate above 0 bit/s, "
                "for example 1=25000000"
            )
        if key in rates:
            raise UsageError(f"--port-rate {specification}: that rate is {rates[key]} already")
        rates[key] = rate_bps
    return rates


def _port_table(specification: str | None) -> PortTable | None:
    if specification is None:
        return None
    table, separator, action = specification.partition("=")
    if not separator or not table or not action:
        raise UsageError(
            f"--port-table {specification}: must be TABLE=ACTION, for example port_state=set_port_down"
        )
    return PortTable(table, action)


def _tls(options: argparse.Namespace) -> Tls | None:
    files = {name: getattr(options, f"grpc_server_{name}") for name in ("cert", "key", "cacert")}
    if not options.grpc_server_ssl:
        for name, file in files.items():
            if file is not None:
                raise UsageError(f"--grpc-server-{name} {file}: needs --grpc-server-ssl")
        if options.grpc_server_with_client_auth:
            raise UsageError("--grpc-server-with-client-auth: needs --grpc-server-ssl")
        return None
    for name in ("cert", "key"):
        if files[name] is None:
            raise UsageError(f"--grpc-server-ssl: needs --grpc-server-{name} FILE")
    try:
        return Tls.read(
            files["cert"],
            files["key"],
            files["cacert"],
            client_auth=options.grpc_server_with_client_auth,
        )
    except CertificateError as error:
        raise UsageError(f"--grpc-server-ssl: {error}") from None


def _ports(specifications: Sequence[str], options: argparse.Namespace) -> dict[int, str]:
    ports: dict[int, str] = {}
    for specification in specifications:
        number, separator, name = specification.partition("@")
        port = _number(number)
        if not separator or not name or port is None:
            raise UsageError(f"-i {specification[:_SHOWN]}: must be PORT@INTERFACE, for example 1@eth0")
        if not 0 <= port <= MAX_PORT:
            raise UsageError(f"-i {specification}: the port must be in 0..{MAX_PORT}")
        if port in (options.cpu_port, options.drop_port):
            raise UsageError(f"-i {specification}: port {port} is the CPU or the drop port")
        if port in ports:
            raise UsageError(f"-i {specification}: port {port} is {ports[port]} already")
        ports[port] = name
    return ports
