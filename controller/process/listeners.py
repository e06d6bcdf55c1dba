# SPDX-License-Identifier: Apache-2.0
"""The ports of the controller: their addresses, certificates and tokens, and what is too dangerous to serve.

Everything is on the loopback interface unless an option says otherwise. What others can reach must know who
calls: without certificates (and tokens, for REST) it is refused, unless --insecure says that it is meant.
"""

from __future__ import annotations

import argparse
import ipaddress
import logging
from dataclasses import dataclass
from pathlib import Path

from controller.northbound.access_rules import AccessRules
from controller.northbound.audit import AuditLog
from controller.northbound.tokens import Role, Tokens
from controller.process.config import FabricDescription
from controller.wire.server_tls import ServerTls, server_tls
from polyrhythm_files import ConfigError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listeners:
    """Where the controller listens, and who may call."""

    agents_address: str
    agents_port: int
    agents_tls: ServerTls | None
    web_address: str
    web_port: int
    web_tls: ServerTls | None
    access: AccessRules
    insecure: bool


def add_listener_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm controller` for its ports."""
    parser.add_argument(
        "--agents-address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="listen here for agents: an address of this host, 0.0.0.0, or unix:/PATH (default %(default)s)",
    )
    parser.add_argument(
        "--agents-port",
        type=int,
        default=0,
        metavar="N",
        help="port for agents (0, the default: any free port)",
    )
    parser.add_argument(
        "--web-address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="listen here for the REST API and the page: an address of this host, or 0.0.0.0 "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--web-port",
        type=int,
        default=0,
        metavar="N",
        help="port of the REST API and the page (0, the default: any free port); if busy, the next free one",
    )
    for option, what in (
        ("--agents-cert", "certificate of the port for agents, PEM; with it the port accepts TLS only"),
        ("--agents-key", "private key of that certificate, PEM without a password"),
        (
            "--agents-client-ca",
            "authority of the agents' certificates, PEM; each agent must then show one that names its host",
        ),
        ("--web-cert", "certificate of the REST API and the page, PEM; with it the port accepts HTTPS only"),
        ("--web-key", "private key of that certificate, PEM without a password"),
        (
            "--web-tokens",
            "file of tokens with their roles; every request but health checks must then show one",
        ),
    ):
        parser.add_argument(option, type=Path, metavar="FILE", help=what)
    parser.add_argument(
        "--web-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name under which the REST API and the page may be called, besides localhost and IP addresses "
        "(may be repeated)",
    )
    parser.add_argument(
        "--audit",
        type=Path,
        metavar="FILE",
        help="append a line of JSON to this file for each REST request that would change something (they are "
        "in the log in any case)",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="also serve other addresses than loopback, and connect to switches there, without certificates "
        "and tokens: anybody on that network can then act as an agent, and read the REST API",
    )


def listeners_of(args: argparse.Namespace) -> Listeners:
    """Check the options of the ports. Raises ConfigError or TlsError."""
    for name in ("agents_port", "web_port"):
        if not 0 <= getattr(args, name) <= 65535:
            raise ConfigError(
                f"--{name.replace('_', '-')} {getattr(args, name)}: legal: 0 (any free port) to 65535"
            )
    local = is_local(args.web_address)
    tokens = None if args.web_tokens is None else Tokens(args.web_tokens)
    listeners = Listeners(
        agents_address=args.agents_address,
        agents_port=args.agents_port,
        agents_tls=server_tls("agents", args.agents_cert, args.agents_key, args.agents_client_ca),
        web_address=args.web_address,
        web_port=args.web_port,
        web_tls=server_tls("web", args.web_cert, args.web_key, None),
        access=AccessRules(
            tokens,
            frozenset(name.lower().rstrip(".") for name in args.web_host),
            # Whoever reaches the loopback interface is a user of this host; nobody else may change anything.
            Role.OPERATE if local else Role.READ,
            AuditLog(args.audit),
        ),
        insecure=args.insecure,
    )
    if not args.insecure:
        _refuse_dangerous(listeners)
    return listeners


def check_targets(path: Path, fabric: FabricDescription, listeners: Listeners) -> None:
    """Refuse switches on other hosts that would be programmed without TLS. Raises ConfigError."""
    for name, target in fabric.targets.items():
        if target.tls is None and not listeners.insecure and not is_local(target.address):
            raise ConfigError(
                f"{path}: switches.{name}.address: {target.address} is on another host, and the session has "
                "no TLS; legal: tls in this file, or --insecure"
            )


def is_local(address: str) -> bool:
    """Whether only this host reaches an address: HOST, HOST:PORT or unix:/PATH. Names are not looked up."""
    if address.startswith("unix:") or address == "localhost" or address.startswith("localhost:"):
        return True
    for host in (address, address.rpartition(":")[0]):
        try:
            return ipaddress.ip_address(host.strip("[]")).is_loopback
        except ValueError:
            continue
    return False


def _refuse_dangerous(listeners: Listeners) -> None:
    agents = listeners.agents_tls
    if not is_local(listeners.agents_address) and (agents is None or agents.client_ca is None):
        raise ConfigError(
            f"--agents-address {listeners.agents_address}: other hosts reach this address, and could act as "
            "any agent; legal: with --agents-cert, --agents-key and --agents-client-ca, or with --insecure"
        )
    if not is_local(listeners.web_address) and (listeners.web_tls is None or listeners.access.tokens is None):
        raise ConfigError(
            f"--web-address {listeners.web_address}: other hosts reach this address; legal: with --web-cert, "
            "--web-key and --web-tokens, or with --insecure"
        )
