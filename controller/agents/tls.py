# SPDX-License-Identifier: Apache-2.0
"""TLS for gRPC: the server's credentials, and the names in the certificate that an agent shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import grpc

from controller.wire.server_tls import ServerTls

_NAMES = ("x509_common_name", "x509_subject_alternative_name")


def certified_names(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
    """The names in a peer's certificate, from the authentication context of its gRPC call."""
    return frozenset(name.decode(errors="replace") for key in _NAMES for name in auth_context.get(key, ()))


def server_credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """The credentials for gRPC. Raises OSError if a file cannot be read any more."""
    return grpc.ssl_server_credentials(
        [(tls.key.read_bytes(), tls.cert.read_bytes())],
        root_certificates=None if tls.client_ca is None else tls.client_ca.read_bytes(),
        require_client_auth=tls.client_ca is not None,
    )
