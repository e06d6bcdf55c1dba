# SPDX-License-Identifier: Apache-2.0
"""The address on which a server listens, and its certificates if it uses TLS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from polyrhythm_files.renewal import FromFiles

# Python converts no number of thousands of digits.
_PORT_DIGITS = 5
# Chosen: characters of an address that an error repeats.
_SHOWN = 60


class CertificateError(ValueError):
    """TLS files that cannot be used: the message says which and why."""


@dataclass(frozen=True, slots=True)
class Tls:
    """The PEM files of a server's certificate chain and key, and of the authorities that clients'
    certificates need.

    With `client_auth` a client without a valid certificate is refused (mutual TLS).
    """

    certificate: Path
    key: Path
    authorities: Path | None = None
    client_auth: bool = False

    @staticmethod
    def read(certificate: str, key: str, authorities: str | None, *, client_auth: bool) -> Tls:
        """Check the PEM files. Raises CertificateError for one that is unreadable or holds no PEM."""
        if client_auth and authorities is None:
            raise CertificateError("client authentication needs a CA file to verify against")
        tls = Tls(
            Path(certificate), Path(key), None if authorities is None else Path(authorities), client_auth
        )
        tls._configuration()
        return tls

    def credentials(self) -> grpc.ServerCredentials:
        """Make gRPC's credentials of it. A new connection uses the files as they are by then, if they can be
        used. Raises CertificateError as `read` does.
        """
        paths = (self.certificate, self.key, *((self.authorities,) if self.authorities is not None else ()))
        files = FromFiles(paths, self._configuration)
        # The stub knows no None, which gRPC documents as "no change".
        newer: Any = files.newer
        return grpc.dynamic_ssl_server_credentials(files.get(), newer, self.client_auth)

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        certificate = _pem(self.certificate, "CERTIFICATE")
        return grpc.ssl_server_certificate_configuration(
            [(_pem(self.key, "PRIVATE KEY"), certificate)],
            root_certificates=None if self.authorities is None else _pem(self.authorities, "CERTIFICATE"),
        )


def _pem(path: Path, kind: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from None
    # "RSA PRIVATE KEY" and "EC PRIVATE KEY" are kinds of private key too.
    if b"-----BEGIN " not in content or kind.encode() + b"-----" not in content:
        raise CertificateError(f"{path}: holds no {kind.lower()} in PEM")
    return content


def listen(server: grpc.Server, address: str, tls: Tls | None = None) -> str:
    """Open the server's port; returns "host:port" with the port that was taken where 0 was asked for.

    Raises OSError when the address is taken or is none, or when gRPC refuses the certificate.
    """
    host, separator, port_word = address.rpartition(":")
    # gRPC itself would take port 99999 for 34463.
    is_port = port_word.isdecimal() and len(port_word) <= _PORT_DIGITS and int(port_word) < 1 << 16
    if not separator or not (is_port or address.startswith("unix:")):
        raise OSError(f"{address[:_SHOWN]}: not an address; give host:port, port 0 for any free one")
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, tls.credentials())
    except RuntimeError:
        port = 0
    if port == 0:
        hint = "" if tls is None else ", or certificate and key do not belong together"
        raise OSError(
            f"{address}: cannot listen there; the port is taken or the address is not this machine's{hint}"
        )
    return f"{host}:{port}"
