# SPDX-License-Identifier: Apache-2.0
"""Traffic classes: the queue of each DSCP (qid 7 is served first, qid 0 last)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrafficClasses:
    """DSCP values on the wire. `levels[0]` is the highest job level. INT probes use the highest queue;
    switches recognise them by their DSCP."""

    control: int = 56
    cnp: int = 48
    ack: int = 50
    probe: int = 52
    levels: tuple[int, ...] = (30, 26, 22, 18, 14, 10)
    mice: int = 0

    @property
    def equal(self) -> int:
        """The DSCP of every job where no priorities are in force: 26, which RoCE networks usually use."""
        return 26

    @property
    def queues(self) -> Mapping[int, int]:
        """The qid of every known DSCP. All other DSCPs belong to qid 0, as the mice do."""
        top = {self.control: 7, self.cnp: 7, self.ack: 7, self.probe: 7}
        return top | {d: 6 - k for k, d in enumerate(self.levels)} | {self.mice: 0}


TRAFFIC_CLASSES = TrafficClasses()
