# SPDX-License-Identifier: Apache-2.0
"""TLS on the agents' port: the server's certificate, and agents' certificates that name their hosts."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc

_NAMES = ("x509_common_name", "x509_subject_alternative_name")


class TlsError(ValueError):
    """TLS files or options cannot be used; the message names the option."""


@dataclass(frozen=True, slots=True)
class AgentTls:
    """The PEM files of the agents' port.

    With `client_ca`, an agent must show a certificate of that authority, and the certificate's common name or
    one of its alternative names must be the name of the agent's host.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None

    def check(self) -> None:
        """Check that the files can be used. Raises TlsError."""
        named = (
            ("--agents-cert", self.cert),
            ("--agents-key", self.key),
            ("--agents-client-ca", self.client_ca),
        )
        for option, path in named:
            try:
                if path is not None:
                    path.read_bytes()
            except OSError as error:
                raise TlsError(f"{option}: {path}: {error.strerror}") from None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.cert, self.key, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            what = (
                "the key does not belong to the certificate"
                if "MISMATCH" in str(error)
                else "these are no PEM files of a certificate and of a key without a password"
            )
            raise TlsError(f"--agents-cert {self.cert}, --agents-key {self.key}: {what}") from None
        try:
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
        except ssl.SSLError:
            raise TlsError(
                f"--agents-client-ca {self.client_ca}: the file holds no PEM certificate"
            ) from None

    def credentials(self) -> grpc.ServerCredentials:
        """The credentials for gRPC. Raises OSError if a file cannot be read any more."""
        return grpc.ssl_server_credentials(
            [(self.key.read_bytes(), self.cert.read_bytes())],
            root_certificates=None if self.client_ca is None else self.client_ca.read_bytes(),
            require_client_auth=self.client_ca is not None,
        )


def agent_tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> AgentTls | None:
    """The TLS settings from the command line; None: no encryption. Raises TlsError."""
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise TlsError("give --agents-cert and --agents-key together; --agents-client-ca needs both")
    tls = AgentTls(cert, key, client_ca)
    tls.check()
    return tls


def certified_names(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
    """The names in a peer's certificate, from the authentication context of its gRPC call."""
    return frozenset(name.decode(errors="replace") for key in _NAMES for name in auth_context.get(key, ()))


def _no_password(*_: object) -> str:
    raise ValueError("a key with a password cannot be used")
