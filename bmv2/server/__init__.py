# SPDX-License-Identifier: Apache-2.0
"""The servers of the embedded switch: P4Runtime and gNMI on one port, as in Stratum, and BMv2's packet
injection.
"""

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
