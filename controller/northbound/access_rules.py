# SPDX-License-Identifier: Apache-2.0
"""Who may call the REST API, as the command line says it."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.northbound.audit import AuditLog
from controller.northbound.tokens import Role, Tokens


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Who may call.

    `hosts` are the names that requests may have in their Host header, besides localhost and IP addresses.
    Without `tokens` every caller has the role `without_tokens`. `audit` records every request that would
    change something, also a refused one.
    """

    tokens: Tokens | None = None
    hosts: frozenset[str] = frozenset()
    without_tokens: Role = Role.OPERATE
    audit: AuditLog = field(default_factory=AuditLog)
