# SPDX-License-Identifier: Apache-2.0
"""TLS on the agents' port: the server's certificate, and clients' certificates that name their hosts."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc

_NAMES = ("x509_common_name", "x509_subject_alternative_name")


class TlsError(ValueError):
    """Files or options that cannot be used; one line with the option."""


@dataclass(frozen=True, slots=True)
class AgentTls:
    """PEM files of the agents' port. With `client_ca` an agent must show a certificate of that authority
    whose common name or an alternative name is its host's."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def check(self) -> None:
        """Raises TlsError for files that cannot be used."""
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
                "the key is not the certificate's" if "MISMATCH" in str(error) else "no PEM that can be used"
            )
            raise TlsError(f"--agents-cert {self.cert}, --agents-key {self.key}: {what}") from None
        try:
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
        except ssl.SSLError:
            raise TlsError(f"--agents-client-ca: {self.client_ca} holds no certificate in PEM") from None

    def credentials(self) -> grpc.ServerCredentials:
        """gRPC's credentials. Raises OSError if a file has gone."""
        return grpc.ssl_server_credentials(
            [(self.key.read_bytes(), self.cert.read_bytes())],
            root_certificates=None if self.client_ca is None else self.client_ca.read_bytes(),
            require_client_auth=self.client_ca is not None,
        )


def agent_tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> AgentTls | None:
    """What the options say; None: the port is in the clear. Raises TlsError."""
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise TlsError("--agents-cert and --agents-key belong together, and --agents-client-ca needs both")
    tls = AgentTls(cert, key, client_ca)
    tls.check()
    return tls


def certified_names(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
    """The names in a peer's certificate, from gRPC's context of its call."""
    return frozenset(name.decode(errors="replace") for key in _NAMES for name in auth_context.get(key, ()))


def _no_password(*_: object) -> str:
    raise ValueError("a key with a password cannot be used")
