# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm pki`: a private authority, the certificates of hosts, and tokens of the REST API.

One authority signs the certificates of the controller, the switches and the agents. Each certificate serves
both ends of a TLS session, so one file of a host is enough for mutual TLS.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import re
import secrets
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from controller.northbound.tokens import load_tokens, token_hash
from polyrhythm.subcommands import integer
from polyrhythm_files import ConfigError

CA_DAYS = 3650
"""Chosen: the authority outlives the cluster; its key stays off line."""
HOST_DAYS = 365
"""Chosen: a year, so that renewal is exercised."""
TOKEN_DAYS = 90
_SKEW = timedelta(hours=1)
"""Certificates are valid from so long before now. Chosen: hosts' clocks may be off."""
# What a certificate's common name can hold (RFC 5280, ub-common-name), of characters safe in file names.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm pki`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    init = actions.add_parser("init", help="make a private authority: ca.pem and ca.key")
    host = actions.add_parser("host", help="make a host its files: NAME.pem and NAME.key, beside ca.pem")
    for each, days in ((init, CA_DAYS), (host, HOST_DAYS)):
        each.add_argument(
            "--dir",
            type=Path,
            default=Path("pki"),
            metavar="DIR",
            help="the authority's folder (default %(default)s)",
        )
        each.add_argument(
            "--days", type=integer(1, 36500), default=days, metavar="N", help="validity (default %(default)s)"
        )
    init.add_argument(
        "--name", default="Polyrhythm", metavar="NAME", help="the authority's name (default %(default)s)"
    )
    host.add_argument(
        "name",
        metavar="NAME",
        help="the host's name in the fabric's description, or the controller's or a switch's",
    )
    host.add_argument(
        "--address",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="also valid for this IP address or DNS name, by which others connect (may be repeated)",
    )
    host.add_argument("--renew", action="store_true", help="replace the files of that name")
    token = actions.add_parser("token", help="make a token of the REST API; prints it once")
    token.add_argument("name", metavar="NAME", help="who uses the token")
    token.add_argument("--role", choices=("read", "job", "operate"), required=True, help="what it permits")
    token.add_argument(
        "--file",
        type=Path,
        required=True,
        metavar="FILE",
        help="add its hash to this file of --web-tokens (TOML)",
    )
    token.add_argument(
        "--days",
        type=integer(1, 3650),
        default=TOKEN_DAYS,
        metavar="N",
        help="validity (default %(default)s)",
    )
    for each in (init, host, token):
        each.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Make files. Returns 2 for names or files that cannot be used."""
    actions = {"init": _init, "host": _host, "token": _token}
    try:
        return actions[args.action](args)
    except ConfigError as error:
        print(f"polyrhythm pki: {error}", file=sys.stderr)
        return 2


def _init(args: argparse.Namespace) -> int:
    folder: Path = args.dir
    if not 0 < len(args.name) <= 64 or not args.name.isprintable():
        raise ConfigError(f"--name {args.name!r:.100}: legal: up to 64 printable characters")
    _refuse_present(folder / "ca.pem", folder / "ca.key")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, args.name)])
    certificate = (
        _builder(name, name, key.public_key(), args.days)
        # It signs hosts, and no further authority.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "ca.key", _key_pem(key), secret=True)
    _write(folder / "ca.pem", certificate.public_bytes(serialization.Encoding.PEM))
    if args.json:
        print(json.dumps({"certificate": str(folder / "ca.pem"), "key": str(folder / "ca.key")}))
        return 0
    print(f"{folder / 'ca.pem'}: the authority's certificate, for all hosts")
    print(f"{folder / 'ca.key'}: its key; keep it off the hosts")
    return 0


def _host(args: argparse.Namespace) -> int:
    folder: Path = args.dir
    if not _NAME.fullmatch(args.name) or args.name == "ca":
        raise ConfigError(f"{args.name!r:.100}: legal: up to 64 letters, digits and . _ -, and not ca")
    ca, ca_key = _authority(folder)
    pem, key_file = folder / f"{args.name}.pem", folder / f"{args.name}.key"
    if not args.renew:
        _refuse_present(pem, key_file)
    end = datetime.now(UTC) + timedelta(days=args.days)
    if end > ca.not_valid_after_utc:
        raise ConfigError(
            f"--days {args.days}: the authority ends on {ca.not_valid_after_utc:%Y-%m-%d}; legal: not later"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, args.name)])
    certificate = (
        _builder(name, ca.subject, key.public_key(), args.days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(args.name), *map(_alternative, args.address)]),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    _write(key_file, _key_pem(key), secret=True)
    _write(pem, certificate.public_bytes(serialization.Encoding.PEM))
    if args.json:
        made = {"certificate": str(pem), "key": str(key_file), "authority": str(folder / "ca.pem")}
        print(json.dumps({**made, "expires": f"{end:%Y-%m-%dT%H:%M:%SZ}"}))
        return 0
    print(f"{pem}, {key_file}: until {end:%Y-%m-%d}; copy both and {folder / 'ca.pem'} to {args.name}")
    return 0


def _token(args: argparse.Namespace) -> int:
    file: Path = args.file
    if file.suffix != ".toml":
        raise ConfigError(f"--file {file}: legal: a name that ends with .toml")
    text = ""
    if file.exists():
        load_tokens(file)
        text = file.read_text(encoding="utf-8")
    token = secrets.token_urlsafe(32)
    expires = datetime.now(UTC) + timedelta(days=args.days)
    text += (
        f'\n[[tokens]]\nname = {json.dumps(args.name)}\nrole = "{args.role}"\n'
        f'sha256 = "{token_hash(token)}"\nexpires = "{expires:%Y-%m-%dT%H:%M:%SZ}"\n'
    )
    fresh = file.with_name(f".{file.name}.new.toml")
    try:
        fresh.write_text(text, encoding="utf-8")
        try:
            load_tokens(fresh)
        except ConfigError as error:
            raise ConfigError(f"the token is not added to {file}: {str(error).partition(': ')[2]}") from None
        os.replace(fresh, file)
    finally:
        fresh.unlink(missing_ok=True)
    if args.json:
        made = {"token": token, "name": args.name, "role": args.role}
        print(json.dumps({**made, "expires": f"{expires:%Y-%m-%dT%H:%M:%SZ}"}))
    else:
        print(token)
    return 0


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The authority of a folder. Raises ConfigError."""
    try:
        certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}; legal: a folder of `polyrhythm pki init`"
        ) from None
    except (ValueError, TypeError):
        raise ConfigError(f"{folder}: ca.pem or ca.key is no PEM file of `polyrhythm pki init`") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        raise ConfigError(f"{folder}: ca.key does not belong to ca.pem")
    return certificate, key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer, subject, key, x509.random_serial_number(), now - _SKEW, now + timedelta(days=days)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,253}", text):
        raise ConfigError(f"--address {text!r:.100}: legal: an IP address or a DNS name")
    return x509.DNSName(text)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _refuse_present(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise ConfigError(f"{path} exists; legal: another folder or name, or --renew for a host")


def _write(path: Path, content: bytes, *, secret: bool = False) -> None:
    """Replace a file. A secret one is readable by its owner only, from its first byte on."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(fresh, path)
