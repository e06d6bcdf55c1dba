# SPDX-License-Identifier: Apache-2.0
"""The check of certificates: they can be read, are in force, come from their authority and fit their keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from polyrhythm.doctor.finding import Deployment, ProblemError, UncheckedError, listed

SOON = timedelta(days=14)
"""A certificate that ends sooner is a problem already. Chosen: enough time to renew it."""


@dataclass(frozen=True, slots=True)
class CertifiedSide:
    """The files of one side: authorities, and its own certificate with its key, if it has one.

    `name` is what the certificate must name; empty: anything.
    """

    where: str
    ca: Path
    cert: Path | None
    key: Path | None
    name: str = ""


def check_certificates(deployment: Deployment) -> str:
    """Every certificate that agent and fabric name."""
    sides = list(_sides(deployment))
    if not sides:
        raise UncheckedError("neither agent.toml nor the fabric's description has a section tls")
    wrong = [f"{side.where}: {why}" for side in sides for why in _faults(side, datetime.now(UTC))]
    if wrong:
        raise ProblemError(
            listed(wrong), "make new ones (docs/security.md); new connections use them without a restart"
        )
    return f"{', '.join(side.where for side in sides)}: in force, and from their authorities"


def _sides(deployment: Deployment) -> Iterator[CertifiedSide]:
    if deployment.agent is not None and deployment.agent.tls.ca:
        tls = deployment.agent.tls
        yield CertifiedSide(
            "agent [tls]",
            Path(tls.ca),
            Path(tls.cert) if tls.cert else None,
            Path(tls.key) if tls.key else None,
            deployment.agent.agent.host,
        )
    if deployment.fabric_file is not None and deployment.fabric_file.tls is not None:
        of, folder = deployment.fabric_file.tls, deployment.fabric_folder
        cert, key = (folder / name if name else None for name in (of.cert, of.key))
        yield CertifiedSide("fabric tls", folder / of.ca, cert, key)


def _faults(side: CertifiedSide, now: datetime) -> Iterator[str]:
    try:
        authorities = x509.load_pem_x509_certificates(_content(side.ca))
        chain = x509.load_pem_x509_certificates(_content(side.cert)) if side.cert else []
        key = load_pem_private_key(_content(side.key), password=None) if side.key else None
    except _FileError as error:
        yield str(error)
        return
    except (ValueError, TypeError) as error:
        what = str(error).partition(" See ")[0]
        yield f"one of {side.ca}, {side.cert} and {side.key} is not PEM as it should be: {what}"
        return
    for path, found in ((side.ca, authorities), (side.cert, chain)):
        for one in found:
            yield from _out_of_force(path, one, now)
    if not chain:
        return
    yield from _foreign(side.cert, chain[0], [*authorities, *chain[1:]])
    if key is not None and key.public_key() != chain[0].public_key():
        yield f"{side.key} is not the key of {side.cert}"
    names = _names(chain[0])
    if side.name and side.name not in names:
        yield f"{side.cert} names {', '.join(sorted(names)) or 'nothing'}, not {side.name}"


class _FileError(Exception):
    """A file cannot be read; the message names it."""


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _FileError(f"{path}: {error.strerror}") from None


def _out_of_force(path: Path | None, one: x509.Certificate, now: datetime) -> Iterator[str]:
    begin, end = one.not_valid_before_utc, one.not_valid_after_utc
    if now < begin:
        yield f"{path} is not valid before {begin:%Y-%m-%d %H:%M} UTC; is this host's clock right?"
    elif now > end:
        yield f"{path} has expired on {end:%Y-%m-%d %H:%M} UTC"
    elif now > end - SOON:
        yield f"{path} expires soon, on {end:%Y-%m-%d %H:%M} UTC"


def _foreign(path: Path | None, own: x509.Certificate, authorities: list[x509.Certificate]) -> Iterator[str]:
    for authority in authorities:
        try:
            own.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return
    yield f"{path} does not come from the authority of ca"


def _names(own: x509.Certificate) -> set[str]:
    names = {str(a.value) for a in own.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)}
    try:
        extension = own.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return names
    return names | set(extension.value.get_values_for_type(x509.DNSName))
