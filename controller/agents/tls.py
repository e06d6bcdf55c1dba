# SPDX-License-Identifier: Apache-2.0
"""TLS for gRPC: the server's credentials, and the names in the certificate that an agent shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import grpc

from controller.wire.server_tls import ServerTls
from polyrhythm_files.renewal import FromFiles

_NAMES = ("x509_common_name", "x509_subject_alternative_name")


def certified_names(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
    """The names in a peer's certificate, from the authentication context of its gRPC call."""
    return frozenset(name.decode(errors="replace") for key in _NAMES for name in auth_context.get(key, ()))


def server_credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """The credentials for gRPC. A new connection uses the files as they are by then, if they can be used.

    Raises TlsError if they cannot be used now.
    """
    files = FromFiles(tls.files, lambda: _configuration(tls))
    # The stub knows no None, which gRPC documents as "no change".
    newer: Any = files.newer
    return grpc.dynamic_ssl_server_credentials(files.get(), newer, tls.client_ca is not None)


def _configuration(tls: ServerTls) -> grpc.ServerCertificateConfiguration:
    tls.check()
    return grpc.ssl_server_certificate_configuration(
        [(tls.key.read_bytes(), tls.cert.read_bytes())],
        root_certificates=None if tls.client_ca is None else tls.client_ca.read_bytes(),
    )
