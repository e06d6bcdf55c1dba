# SPDX-License-Identifier: Apache-2.0
"""Which connection asked for which flow: each user has a bounded number, and all end with their connection.

A user is a Unix user id, which the kernel tells of each connection (SO_PEERCRED).
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

from controller.wire.limits import MAX_FLOWS_OF_USER
from polyrhythm_files import ConfigError

C = TypeVar("C")


class FlowOwners(Generic[C]):
    """The open flows of all connections. Two users may ask for one name: neither ends the other's flow."""

    def __init__(self) -> None:
        self._claims: dict[str, dict[int, C]] = {}
        self._flows: dict[C, set[tuple[str, int]]] = {}
        self._count: Counter[int] = Counter()

    def ask(self, flow: str, connection: C, user: int) -> None:
        """A user asks for a flow. Raises ConfigError if it is one too many."""
        if user in self._claims.get(flow, ()):
            return
        if self._count[user] >= MAX_FLOWS_OF_USER:
            raise ConfigError(
                f"flow: user {user} has {MAX_FLOWS_OF_USER:,} open flows; legal: end some of them first"
            )
        self._claims.setdefault(flow, {})[user] = connection
        self._flows.setdefault(connection, set()).add((flow, user))
        self._count[user] += 1

    def end(self, flow: str, user: int) -> bool:
        """A user ends a flow; returns whether it has ended for all. The superuser may end every flow.

        Raises ConfigError if the flow is another user's.
        """
        claims = self._claims.get(flow, {})
        if claims and user not in claims and user != 0:
            raise ConfigError(f"flow: {flow:.200} is another user's; legal: a flow of user {user}")
        for claimant in [user] if user in claims else list(claims):
            self._remove(flow, claimant)
        return flow not in self._claims

    def closed(self, connection: C) -> frozenset[str]:
        """A connection has closed: returns the flows that end with it."""
        claimed = tuple(self._flows.get(connection, ()))
        for flow, user in claimed:
            self._remove(flow, user)
        return frozenset(flow for flow, _ in claimed if flow not in self._claims)

    def _remove(self, flow: str, user: int) -> None:
        connection = self._claims[flow].pop(user)
        if not self._claims[flow]:
            del self._claims[flow]
        self._flows[connection].discard((flow, user))
        if not self._flows[connection]:
            del self._flows[connection]
        self._count[user] -= 1
        if not self._count[user]:
            del self._count[user]
