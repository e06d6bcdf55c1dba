# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime election ids with which a controller bids to be the primary of a switch.

A switch takes writes of the controller with the highest id only (P4Runtime specification, 5.3). A controller
that is alone may raise its id. Of several controllers each leader bids within a range of its own, above the
ranges of all leaders before it, so that a deposed leader can never outbid its successor.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# The first id of a controller that is alone. Chosen: finsy and p4runtime-shell start with low ids, and the
# controller that owns the fabric must win against them.
ALONE = 1000
# P4Runtime: an election id has 128 bits.
HIGHEST = (1 << 128) - 1
# Chosen: bits of an id that count the attempts of one leader. A leader needs a new id where the switch still
# holds a dead session of its last one.
ATTEMPT_BITS = 16
# The epoch has the upper 64 bits, the leader's revision and the attempt share the lower ones.
EPOCH_BITS = 64


class DeposedError(Exception):
    """A switch has seen an election id above the range of this controller; the message says which."""


class Outbids(StrEnum):
    """Whether a controller outbids another one that is the primary of a switch now.

    NEVER: it waits. ONCE: at its first session with the switch only, so that two such controllers do not
    depose each other for ever. ALWAYS: the ranges of ids decide.
    """

    NEVER = "never"
    ONCE = "once"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class ElectionIds:
    """The ids from `first` to `last`."""

    first: int = ALONE
    last: int = HIGHEST
    outbids: Outbids = Outbids.NEVER

    @classmethod
    def of_leader(cls, epoch: int, revision: int) -> ElectionIds:
        """The range of the leader that was elected at `revision` of the store, within `epoch`, from 1 on.

        Raises:
            ValueError: epoch or revision does not fit.
        """
        if not 0 < epoch < 1 << 63 or not 0 < revision < 1 << (EPOCH_BITS - ATTEMPT_BITS):
            raise ValueError(f"epoch {epoch}, revision {revision}: legal: from 1 to 2^63 - 1 and 2^48 - 1")
        first = epoch << EPOCH_BITS | revision << ATTEMPT_BITS
        return cls(first, first + (1 << ATTEMPT_BITS) - 1, Outbids.ALWAYS)

    def at_least(self, wanted: int) -> int:
        """The lowest id of the range that is not below `wanted`.

        Raises:
            DeposedError: there is none.
        """
        if wanted > self.last:
            raise DeposedError(
                f"it has seen election id {wanted}, above this controller's {self.first} to {self.last}: a "
                "later leader has taken over, or etcd has lost its history (then raise the epoch)"
            )
        return max(self.first, wanted)
