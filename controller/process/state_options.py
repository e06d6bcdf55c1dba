# SPDX-License-Identifier: Apache-2.0
"""The options of `polyrhythm controller` for its state: an SQLite file, or etcd with other controllers."""

from __future__ import annotations

import argparse
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from controller.process.config import FabricDescription
from controller.store.etcd.address import SCHEME, AddressOfEtcdError, EtcdAddress, EtcdTls, parse_address
from polyrhythm_files import ConfigError

NONE = "none"
"""The value of `--state` for a controller that stores nothing."""
SUFFIX = ".state.sqlite"
"""What the name of the state file ends with, where the command line names none."""


@dataclass(frozen=True, slots=True)
class SharedState:
    """The state is in etcd, and this controller is one of several: `name` tells it from the others."""

    address: EtcdAddress
    name: str


def add_state_arguments(parser: argparse.ArgumentParser) -> None:
    """The options for the state."""
    parser.add_argument(
        "--state",
        metavar="FILE|none|ETCD",
        help="FILE: store jobs, profiles, plans and the log of events in this SQLite file (the newest 1,000 "
        "plans and 100,000 events of the last 90 days); while it cannot be written, the controller goes on "
        "without it. By default it lies beside the fabric's description, as fabric.state.sqlite beside "
        "fabric.json; an embedded fabric has none. none: store nothing. "
        "etcd://HOST:PORT[,HOST:PORT...][/PREFIX][?epoch=N]: be one of several controllers, which share "
        "their state there; one of them leads",
    )
    for option, what in (
        ("--etcd-ca", "authority of the certificates of etcd, PEM; turns TLS on"),
        ("--etcd-cert", "this controller's certificate for etcd, PEM"),
        ("--etcd-key", "private key of that certificate, PEM without a password"),
    ):
        parser.add_argument(option, type=Path, metavar="FILE", help=what)
    parser.add_argument(
        "--name",
        default="",
        metavar="NAME",
        help="this controller's name among several (default: the host's name)",
    )


def state_of(args: argparse.Namespace, fabric: FabricDescription) -> Path | SharedState | None:
    """Where the state is, as the options say; None: nowhere. Raises ConfigError."""
    text: str | None = args.state
    several = text is not None and text.startswith(SCHEME)
    for option in ("etcd_ca", "etcd_cert", "etcd_key", "name"):
        if getattr(args, option) and not several:
            raise ConfigError(f"--{option.replace('_', '-')}: legal: with --state {SCHEME}HOST:PORT")
    if text is None:
        return None if fabric.clock == "embedded" else _beside(args.fabric)
    if text == NONE:
        return None
    if not several:
        return Path(text)
    if fabric.clock == "embedded":
        raise ConfigError(
            f"--state {text}: the embedded fabric keeps the time for one controller; legal: a FILE, or a "
            "fabric with clock: host"
        )
    try:
        address = parse_address(text, _tls(args))
    except AddressOfEtcdError as error:
        raise ConfigError(f"--state: {error}") from None
    return SharedState(address, args.name or socket.gethostname())


def _beside(description: Path) -> Path | None:
    """The state file beside a fabric's description; None where it cannot be written."""
    file = description.with_suffix(SUFFIX)
    return file if os.access(file if file.exists() else file.parent, os.W_OK) else None


def _tls(args: argparse.Namespace) -> EtcdTls | None:
    if args.etcd_ca is None:
        if args.etcd_cert is not None or args.etcd_key is not None:
            raise ConfigError("--etcd-cert, --etcd-key: legal: with --etcd-ca")
        return None
    if (args.etcd_cert is None) != (args.etcd_key is None):
        raise ConfigError("--etcd-cert, --etcd-key: legal: both or none")
    ca = _pem("--etcd-ca", args.etcd_ca)
    if args.etcd_cert is None:
        return EtcdTls(ca)
    return EtcdTls(ca, _pem("--etcd-cert", args.etcd_cert), _pem("--etcd-key", args.etcd_key))


def _pem(option: str, path: Path) -> Path:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror}; legal: a PEM file") from None
    if b"-----BEGIN " not in content:
        raise ConfigError(f"{option} {path}: it holds no PEM; legal: a PEM file")
    return path
