# SPDX-License-Identifier: Apache-2.0
"""What a collective makes the workers of a job wait for, beside their own bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hostagent.job import JobSpec, PhaseSpec

Group = frozenset[int]
"""The ranks of workers that depend on each other in a phase."""


class PhaseBarrier:
    """Ends a communication phase at once on all workers of a job that depend on each other in it.

    The result of an all-reduce depends on what every worker gives, so none has it before the last one has
    begun, and in a ring the last pieces reach all of them one step after another. The messages of the
    emulated workers carry whole phases, not those steps. Without this barrier a worker would wait for its
    neighbours in the ring alone, and the workers of a ring of five hosts would drift apart by most of a
    phase.
    """

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._groups: dict[tuple[PhaseSpec, int], Group] = {}
        self._waiting: dict[Group, dict[int, Callable[[], None]]] = {}

    def wait(self, phase: PhaseSpec, rank: int, go_on: Callable[[], None]) -> None:
        """Worker `rank` has sent and received its bytes of the phase. Once all of its group have, `go_on` of
        each is called, in the order of the ranks."""
        group = self._group(phase, rank)
        waiting = self._waiting.setdefault(group, {})
        waiting[rank] = go_on
        if len(waiting) == len(group):
            del self._waiting[group]
            for _, each in sorted(waiting.items()):
                each()

    def _group(self, phase: PhaseSpec, rank: int) -> Group:
        if (phase, rank) not in self._groups:
            group = group_of(self._spec, phase, rank)
            self._groups |= {(phase, each): group for each in group}
        return self._groups[phase, rank]


def group_of(spec: JobSpec, phase: PhaseSpec, rank: int) -> Group:
    """The workers whose bytes reach worker `rank` in `phase`, directly or over others, and that its bytes
    reach as well, and itself: a ring, for instance, but not a worker that only sends to it."""
    onward: dict[str, set[str]] = {host: set() for host in spec.hosts}
    back: dict[str, set[str]] = {host: set() for host in spec.hosts}
    for number, (src, dst) in enumerate(spec.ring):
        if phase.bytes_of(number):
            onward[src].add(dst)
            back[dst].add(src)
    host = spec.hosts[rank]
    both = _reached(onward, host) & _reached(back, host)
    return frozenset(r for r, each in enumerate(spec.hosts) if each in both)


def _reached(following: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """`start`, and what can be reached from there."""
    found, open_ends = set[str](), [start]
    while open_ends:
        host = open_ends.pop()
        if host not in found:
            found.add(host)
            open_ends += following[host]
    return found
