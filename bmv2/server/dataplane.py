# SPDX-License-Identifier: Apache-2.0
"""The data plane as the server writes to it: the switch, its multicast groups, and what watches it.

All of it runs on the data-plane thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from bmv2.program import P4Program
from bmv2.server.watchers import Ageing, DigestLists, Notify
from bmv2.switch import EmbeddedSwitch

Effect: TypeAlias = Callable[["DataPlane"], None]
# The replica itself, then those that stand in for it while its port is down, as (port, instance).
Alternatives: TypeAlias = tuple[tuple[int, int], ...]


class DataPlane:
    """A switch with the objects that watch it. Sets the `digest` hook of the switch."""

    def __init__(self, switch: EmbeddedSwitch, notify: Notify) -> None:
        self.switch = switch
        self.groups = StandbyGroups(switch)
        self.digests = DigestLists(switch, notify)
        self.ageing = Ageing(switch, notify)

    def load(self, program: P4Program, preinitialised: Mapping[str, int]) -> None:
        """Run another program: nothing is left of what was written.

        `preinitialised` has the tables whose initial entries clients may change, with their sizes.
        """
        self.switch.load(program)
        for table, size in preinitialised.items():
            self.switch.table(table).open(size)
        self.groups.clear()
        self.digests.clear()
        self.ageing.clear()


class StandbyGroups:
    """Multicast groups in the data plane. For each replica it uses the first place whose port is up.

    Runs on the data-plane thread. A replica without a port that is up goes to its own port and is lost.
    """

    def __init__(self, switch: EmbeddedSwitch) -> None:
        self._switch = switch
        self._with_backups: dict[int, tuple[Alternatives, ...]] = {}

    def clear(self) -> None:
        """Forget all: another program runs."""
        self._with_backups.clear()

    def set(self, group: int, replicas: tuple[Alternatives, ...]) -> None:
        """Give a group its replicas; none deletes it."""
        if any(len(choices) > 1 for choices in replicas):
            self._with_backups[group] = replicas
        else:
            self._with_backups.pop(group, None)
        self._choose(group, replicas)

    def port_changed(self) -> None:
        """Choose again, for a port has gone up or down."""
        for group, replicas in self._with_backups.items():
            self._choose(group, replicas)

    def _choose(self, group: int, replicas: tuple[Alternatives, ...]) -> None:
        chosen = dict.fromkeys(self._first_up(choices) for choices in replicas)
        self._switch.set_multicast_group(group, tuple(chosen))

    def _first_up(self, choices: Alternatives) -> tuple[int, int]:
        for port, instance in choices:
            if port in self._switch.ports and self._switch.port_up(port):
                return port, instance
        return choices[0]
