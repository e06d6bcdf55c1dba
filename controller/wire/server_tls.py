# SPDX-License-Identifier: Apache-2.0
"""The PEM files of a port that speaks TLS: how they are checked."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path


class TlsError(ValueError):
    """TLS files or options cannot be used; the message names the option."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The PEM files of one port. `port` is the start of its options: "agents" for --agents-cert.

    With `client_ca`, a client must show a certificate of that authority.
    """

    port: str
    cert: Path
    key: Path
    client_ca: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """All files of the port."""
        return (self.cert, self.key, *((self.client_ca,) if self.client_ca is not None else ()))

    def context(self) -> ssl.SSLContext:
        """For a server that uses Python's ssl. Raises TlsError if the files cannot be used."""
        self.check()
        return self._own_context()

    def check(self) -> None:
        """Check that the files can be used. Raises TlsError."""
        cert, key, client_ca = (f"--{self.port}-{name}" for name in ("cert", "key", "client-ca"))
        for option, path in ((cert, self.cert), (key, self.key), (client_ca, self.client_ca)):
            try:
                if path is not None:
                    path.read_bytes()
            except OSError as error:
                raise TlsError(f"{option}: {path}: {error.strerror}") from None
        try:
            context = self._own_context()
        except (ssl.SSLError, ValueError) as error:
            what = (
                "the key does not belong to the certificate"
                if "MISMATCH" in str(error)
                else "these are no PEM files of a certificate and of a key without a password"
            )
            raise TlsError(f"{cert} {self.cert}, {key} {self.key}: {what}") from None
        try:
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
        except ssl.SSLError:
            raise TlsError(f"{client_ca} {self.client_ca}: the file holds no PEM certificate") from None

    def _own_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key, password=_no_password)
        return context


def server_tls(port: str, cert: Path | None, key: Path | None, client_ca: Path | None) -> ServerTls | None:
    """The TLS settings of a port from the command line; None: no encryption. Raises TlsError."""
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise TlsError(f"give --{port}-cert and --{port}-key together; --{port}-client-ca needs both")
    tls = ServerTls(port, cert, key, client_ca)
    tls.check()
    return tls


def _no_password(*_: object) -> str:
    raise ValueError("a key with a password cannot be used")
