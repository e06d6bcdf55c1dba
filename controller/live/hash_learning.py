# SPDX-License-Identifier: Apache-2.0
"""Learning which source port leads where in a live fabric whose switches' hash nobody has told.

INT probes with the addresses of a pair of hosts show the path of each source port. `routing/port_learning.py`
chooses the ports to try. This module knows no socket.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.live.messages import SendFrame
from controller.live.verify import ProbeOutcome, Verifier
from controller.model.job import Job
from controller.routing.assign import Learned
from controller.routing.forwarding import forwarding
from controller.routing.paths import Path, paths
from controller.routing.port_learning import Learning, learning
from controller.southbound.table_writes import FabricCondition
from topo.graph import Topology

log = logging.getLogger(__name__)

Pair = tuple[str, str]

# Pairs that are probed at once; the others wait their turn.
AT_ONCE = 32
# Ports that are tried at once where the hash turns out not to be linear.
BATCH = 16
# The most probes for one pair: with 32 paths one in ten thousand pairs is left with a path unseen.
MOST = 512
# Tokens of these probes begin here, so that they never pass for those that verify a plan.
_FIRST_TOKEN = 1 << 31


@dataclass(slots=True)
class _PairState:
    """A pair under way: its paths by number, and what was asked and answered in this step."""

    paths: tuple[Path, ...]
    steps: Learning
    asked: list[int]
    answers: dict[int, int] = field(default_factory=dict)


class HashLearner:
    """What is known of each pair of hosts under the present condition of the fabric."""

    def __init__(self, topology: Topology, timeout_ns: int, seed: int) -> None:
        self._topology = topology
        self._seed = seed
        self._verifier = Verifier(topology, timeout_ns, _tokens=_FIRST_TOKEN)
        self._condition = FabricCondition()
        self._waiting: dict[Pair, None] = {}
        self._pupils: dict[Pair, _PairState] = {}
        self._learned: dict[Pair, Mapping[Path, tuple[int, ...]]] = {}
        self.probes = 0

    def learned(self, condition: FabricCondition) -> Learned:
        """Ports by pair and path; nothing for another condition than they were learned under."""
        return dict(self._learned) if condition == self._condition else {}

    @property
    def busy(self) -> bool:
        """Whether something is being learned."""
        return bool(self._pupils or self._waiting)

    @property
    def next_timer_ns(self) -> int | None:
        """When the first probe is overdue; None if none is under way."""
        return self._verifier.next_timer_ns

    def want(self, now_ns: int, pairs: Iterable[Pair], condition: FabricCondition) -> tuple[SendFrame, ...]:
        """Learn the ports of these pairs, if they are not known or being learned; the first probes.

        What was learned under another condition is forgotten: what is down changes where buckets lead.
        """
        if condition != self._condition:
            for pair, pupil in self._pupils.items():
                for port in pupil.asked:
                    self._verifier.forget(_name(pair, port))
            self._condition = condition
            self._waiting.clear()
            self._pupils.clear()
            self._learned.clear()
        for pair in pairs:
            if pair not in self._learned and pair not in self._pupils:
                self._waiting[pair] = None
        return self._begin(now_ns)

    def received(self, now_ns: int, frame: bytes) -> tuple[SendFrame, ...]:
        """A probe came back: further probes, if it was one of these."""
        return self._heard(now_ns, self._verifier.received(frame) or ())

    def expire(self, now_ns: int) -> tuple[SendFrame, ...]:
        """Send overdue probes again; those that never come back count as such."""
        frames, outcomes = self._verifier.expire(now_ns)
        return (*frames, *self._heard(now_ns, outcomes))

    def _begin(self, now_ns: int) -> tuple[SendFrame, ...]:
        if not self._waiting or len(self._pupils) >= AT_ONCE:
            return ()
        table = forwarding(self._topology, self._condition.down_links, self._condition.down_switches)
        frames: list[SendFrame] = []
        while self._waiting and len(self._pupils) < AT_ONCE:
            pair = next(iter(self._waiting))
            del self._waiting[pair]
            ways = paths(self._topology, table, *pair)
            if len(ways) < 2:
                # Nothing to choose, so nothing to learn.
                continue
            steps = learning(len(ways), seed=self._seed, limit=MOST, batch=BATCH)
            pupil = self._pupils[pair] = _PairState(ways, steps, next(steps))
            frames += self._probe(now_ns, pair, pupil)
        return tuple(frames)

    def _probe(self, now_ns: int, pair: Pair, pupil: _PairState) -> tuple[SendFrame, ...]:
        self.probes += len(pupil.asked)
        return self._verifier.begin(now_ns, [(_name(pair, port), pair, port) for port in pupil.asked])

    def _heard(self, now_ns: int, outcomes: Iterable[ProbeOutcome]) -> tuple[SendFrame, ...]:
        frames: list[SendFrame] = []
        for outcome in outcomes:
            src, dst, port = outcome.flow.split(" ")
            pupil = self._pupils.get((src, dst))
            if pupil is None:
                continue
            ways = pupil.paths
            pupil.answers[int(port)] = ways.index(outcome.seen) if outcome.seen in ways else -1
            if len(pupil.answers) == len(pupil.asked):
                frames += self._step(now_ns, (src, dst), pupil)
        return tuple(frames)

    def _step(self, now_ns: int, pair: Pair, pupil: _PairState) -> tuple[SendFrame, ...]:
        answers, pupil.answers = pupil.answers, {}
        try:
            pupil.asked = pupil.steps.send(answers)
        except StopIteration as end:
            found = end.value
            del self._pupils[pair]
            ports: dict[Path, dict[int, None]] = {way: {} for way in pupil.paths}
            for number, port in (*found.ports.items(), *((n, p) for p, n in found.seen.items() if n >= 0)):
                ports[pupil.paths[number]][port] = None
            self._learned[pair] = {way: tuple(known) for way, known in ports.items() if known}
            log.info(
                "ports from %s to %s: %d of %d paths learned by %d probes, hash %s",
                *pair,
                len(self._learned[pair]),
                len(pupil.paths),
                found.probes,
                "linear" if found.linear else "not linear",
            )
            return self._begin(now_ns)
        return self._probe(now_ns, pair, pupil)


def pairs_of(jobs: Iterable[Job], elephant_bytes: int) -> Mapping[Pair, None]:
    """The pairs of hosts that jobs want paths for, each once and in order."""
    return {
        (f.src, f.dst): None
        for job in jobs
        for f in job.flows
        if f.bytes_per_iteration >= elephant_bytes and f.src != f.dst
    }


def _name(pair: Pair, port: int) -> str:
    return f"{pair[0]} {pair[1]} {port}"
