# SPDX-License-Identifier: Apache-2.0
"""The faults of `polyrhythm chaos`, chosen by a seed. Nothing here touches a process or a socket."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

KINDS = {
    "controller-kill": "SIGKILL to the controller; it starts again",
    "controller-restart": "SIGTERM to the controller; it starts again",
    "controller-stop": "SIGSTOP to the controller, then SIGCONT",
    "planner-kill": "SIGKILL to the planner's process, up to four times",
    "agent-kill": "SIGKILL to an agent; it starts again",
    "agent-restart": "SIGTERM to an agent; it starts again",
    "agent-stop": "SIGSTOP to an agent, then SIGCONT",
    "agent-silence": "nothing passes between an agent and the controller, and no connection breaks",
    "switch-dead": "a switch loses power and comes back empty; its connections break, or stand in silence",
    "switch-empty": "a switch restarts at once, without its tables",
    "switch-silence": "nothing passes between a switch and the controller, and no connection breaks",
    "switch-reset": "all connections of a switch with the controller break",
    "link-down": "a link goes down for some time",
    "link-flap": "a link goes down and up several times",
    "half-open": "the far end of an agent's connections is gone, and the controller does not hear of it",
    "slow-writes": "what passes to and from a switch or an agent comes late, a few bytes at a time",
    "partial-write": "a connection of a switch or an agent breaks in the middle of a message",
    "stolen-mastership": "another client becomes primary of a switch, deletes entries and leaves",
    "full-disk": "the controller cannot write to any file",
    "locked-state": "another process holds a lock on the controller's state file",
    "clock-jump": "the wall clock of the controller jumps by up to a day, back or forth",
    "garbage": "random bytes on every port, and on the agents' sockets",
    "flood": "hundreds of connections and requests on the controller's ports and an agent's socket",
}
"""What each kind does, in words."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its number in the sequence, its kind, what it hits, how long it lasts in s, and a seed for
    the choices that are left.

    `target` is a number that each kind takes modulo what it can hit.
    """

    number: int
    kind: str
    target: int
    duration_s: float
    seed: str

    def rng(self) -> Random:
        """A generator for the choices that are left."""
        return Random(self.seed)

    def __str__(self) -> str:
        return f"fault {self.number} ({self.kind}, target {self.target}, {self.duration_s:g} s)"


def fault(seed: int, number: int) -> Fault:
    """The fault of this number. It depends on seed and number alone, so any one can be repeated.

    Each run of as many faults as there are kinds has every kind once, in an order of its own.
    """
    names = list(KINDS)
    turn, place = divmod(number, len(names))
    Random(f"{seed}/order/{turn}").shuffle(names)
    rng = Random(f"{seed}/fault/{number}")
    # Chosen: some shorter than the time after which a silent switch is lost (3 s), some longer.
    duration_s = round(rng.choice((0.2, 0.5, 1.0, 2.0, 4.0)) * rng.uniform(0.8, 1.2), 2)
    return Fault(number, names[place], rng.randrange(1 << 16), duration_s, f"{seed}/{number}")
