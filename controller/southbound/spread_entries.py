# SPDX-License-Identifier: Apache-2.0
"""Table entries that spread the packets of a class over ECMP groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller.model.plan import SpreadClass
from controller.routing.forwarding import SwitchForwarding
from controller.southbound.desired import Entry

TABLE = "spread"
# The P4 program's registers: turns, groups with flowlets, and members of such a group.
TURNS = 1024
FLOWLET_GROUPS = 64
MEMBERS = 64


def spread_entries(forwarding: SwitchForwarding, classes: Iterable[SpreadClass]) -> Iterator[Entry]:
    """The `spread` entries of one switch, for each of its groups and each class.

    Groups share a register cell only where there are more groups than cells: they then take turns together,
    or compare each other's ports.
    """
    classes = tuple(classes)
    for number, (group, members) in enumerate(sorted(forwarding.groups.items())):
        for place, spread in enumerate(classes):
            how = spread.spreading
            params: tuple[int, ...] = ()
            if how.action == "spray_in_turn":
                params = ((number * len(classes) + place) % TURNS,)
            elif how.action == "move_flowlets":
                last = min(len(set(members)), MEMBERS) - 1
                params = (how.gap_us, how.half_life, last, number % FLOWLET_GROUPS)
            yield Entry(TABLE, (("group_id", group), ("dscp", spread.dscp)), how.action, params)
