# SPDX-License-Identifier: Apache-2.0
"""The command line of a software switch: simple_switch_grpc where it is installed, else the embedded one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

BMV2 = "simple_switch_grpc"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a server's certificate and key, and of the authorities of its clients.

    With `client_auth` a client without a certificate of these authorities is refused (mutual TLS).
    """

    certificate: Path
    key: Path
    authorities: Path | None = None
    client_auth: bool = False


@dataclass(frozen=True, slots=True)
class SwitchOptions:
    """What a switch is started with.

    `interfaces` maps ports (from 1) to interface names. `program` is p4c's BMv2 JSON; None waits for one
    by P4Runtime. `pcap` is the folder for captures of all interfaces. `port_rates_bps` by port,
    `queue_packets`, `port_table` and `seed` reach the embedded switch only: BMv2 has no port scheduler.
    `thrift_port` reaches BMv2 only in effect.
    """

    device_id: int
    grpc_address: str
    interfaces: Mapping[int, str] = field(default_factory=dict)
    program: Path | None = None
    cpu_port: int = 255
    drop_port: int = 511
    priority_queues: int = 8
    thrift_port: int | None = None
    log_console: bool = False
    tls: TlsFiles | None = None
    pcap: Path | None = None
    port_rates_bps: Mapping[int, int] = field(default_factory=dict)
    queue_packets: int | None = None
    port_table: str | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """A command line, and whether it starts the embedded switch."""

    argv: tuple[str, ...]
    embedded: bool


def launch(options: SwitchOptions, *, which: Callable[[str], str | None] = shutil.which) -> Launch:
    """Build the command line; `which` looks a program up on PATH."""
    bmv2 = which(BMV2)
    embedded = bmv2 is None
    argv = [sys.executable, "-m", "polyrhythm", "switch"] if bmv2 is None else [bmv2]
    argv += ["--device-id", str(options.device_id)]
    for port, interface in sorted(options.interfaces.items()):
        argv += ["-i", f"{port}@{interface}"]
    if options.thrift_port is not None:
        argv += ["--thrift-port", str(options.thrift_port)]
    if options.log_console:
        argv += ["--log-console"]
    if options.pcap is not None:
        argv += [f"--pcap={options.pcap}"]
    if embedded:
        argv += _embedded_options(options)
    argv += ["--no-p4"] if options.program is None else [str(options.program)]
    argv += ["--", "--grpc-server-addr", options.grpc_address]
    argv += [] if options.tls is None else _tls_options(options.tls)
    argv += ["--cpu-port", str(options.cpu_port), "--drop-port", str(options.drop_port)]
    argv += ["--priority-queues", str(options.priority_queues)]
    return Launch(tuple(argv), embedded)


def speaks_thrift(bmv2: str) -> bool:
    """Whether that simple_switch_grpc was built with its Thrift server, as its help tells."""
    shown = subprocess.run([bmv2, "--help"], capture_output=True, text=True, errors="replace", check=False)
    return "--thrift-port" in shown.stdout + shown.stderr


def _tls_options(tls: TlsFiles) -> list[str]:
    argv = ["--grpc-server-ssl", "--grpc-server-cert", str(tls.certificate)]
    argv += ["--grpc-server-key", str(tls.key)]
    if tls.authorities is not None:
        argv += ["--grpc-server-cacert", str(tls.authorities)]
    return [*argv, "--grpc-server-with-client-auth"] if tls.client_auth else argv


def _embedded_options(options: SwitchOptions) -> list[str]:
    argv: list[str] = []
    for port, rate in sorted(options.port_rates_bps.items()):
        argv += ["--port-rate", f"{port}={rate}"]
    for option, value in (
        ("--queue-packets", options.queue_packets),
        ("--port-table", options.port_table),
        ("--seed", options.seed),
    ):
        if value is not None:
            argv += [option, str(value)]
    return argv
