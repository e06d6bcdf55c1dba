# SPDX-License-Identifier: Apache-2.0
"""The embedded switch's servers: P4Runtime and gNMI on one port, as Stratum has them; BMv2's injection."""

from bmv2.server.injection import InjectionService
from bmv2.server.listening import CertificateError, Tls
from bmv2.server.service import InjectionServer, SwitchServer, serve, serve_injection

__all__ = [
    "CertificateError",
    "InjectionServer",
    "InjectionService",
    "SwitchServer",
    "Tls",
    "serve",
    "serve_injection",
]
