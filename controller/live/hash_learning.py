# SPDX-License-Identifier: Apache-2.0
"""Learn which UDP source port leads along which path, in a live fabric whose switches' hash is unknown.

INT probes with the addresses of two hosts show the path of each source port;
`controller/routing/port_learning.py` chooses the ports to try.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.live.messages import SendFrame
from controller.live.verify import ProbeOptions, ProbeOutcome, Verifier
from controller.model.job import Job
from controller.routing.assign import Learned
from controller.routing.forwarding import forwarding
from controller.routing.paths import Path, paths
from controller.routing.port_learning import Learning, learning
from controller.southbound.table_writes import FabricCondition
from topo.graph import Topology

log = logging.getLogger(__name__)

Pair = tuple[str, str]

# Pairs of hosts that are probed at the same time; further pairs wait. Chosen: bounds the probes in flight.
PAIRS_AT_ONCE = 32
# Ports that are probed at the same time where the hash turns out not to be linear. Chosen.
PORT_BATCH = 16
# The most probes for one pair of hosts: with 32 paths, a path then stays unseen for one pair in 10,000.
MAX_PROBES = 512
# Tokens of these probes start here, so that they differ from the tokens of probes that verify a plan.
_FIRST_TOKEN = 1 << 31


@dataclass(slots=True)
class _PairState:
    """A pair that is being probed: its paths, and the ports and answers of the present step."""

    paths: tuple[Path, ...]
    steps: Learning
    asked: list[int]
    answers: dict[int, int] = field(default_factory=dict)


class HashLearner:
    """The source ports learned for each pair of hosts, in the present condition of the fabric."""

    def __init__(self, topology: Topology, options: ProbeOptions, seed: int) -> None:
        self._topology = topology
        self._seed = seed
        self._verifier = Verifier(topology, options, _tokens=_FIRST_TOKEN)
        self._condition = FabricCondition()
        self._waiting: dict[Pair, None] = {}
        self._active: dict[Pair, _PairState] = {}
        self._learned: dict[Pair, Mapping[Path, tuple[int, ...]]] = {}
        self.probes = 0

    def learned(self, condition: FabricCondition) -> Learned:
        """Source ports by pair and path; empty if `condition` is not the one they were learned in."""
        return dict(self._learned) if condition == self._condition else {}

    def restore(self, condition: FabricCondition, learned: Learned) -> None:
        """Take up what an earlier controller has learned in `condition`."""
        self._condition = condition
        self._learned = dict(learned)

    @property
    def busy(self) -> bool:
        """Whether a pair is being probed or waits for it."""
        return bool(self._active or self._waiting)

    @property
    def next_timer_ns(self) -> int | None:
        """When the first probe is overdue; None if no probe is in flight."""
        return self._verifier.next_timer_ns

    def want(self, now_ns: int, pairs: Iterable[Pair], condition: FabricCondition) -> tuple[SendFrame, ...]:
        """Start to learn the ports of those pairs that are new; returns the first probes to send.

        What was learned in another condition is dropped: a failed link changes where ECMP buckets lead.
        """
        if condition != self._condition:
            for pair, state in self._active.items():
                for port in state.asked:
                    self._verifier.forget(_name(pair, port))
            self._condition = condition
            self._waiting.clear()
            self._active.clear()
            self._learned.clear()
        for pair in pairs:
            if pair not in self._learned and pair not in self._active:
                self._waiting[pair] = None
        return self._begin(now_ns)

    def received(self, now_ns: int, frame: bytes) -> tuple[SendFrame, ...]:
        """A probe came back. Returns further probes to send if it was one of these."""
        outcomes = self._verifier.received(frame) or ()
        return (*self._verifier.next_frames(now_ns), *self._settle(now_ns, outcomes))

    def expire(self, now_ns: int) -> tuple[SendFrame, ...]:
        """Send overdue probes again; a port whose probes never come back counts as leading nowhere."""
        frames, outcomes = self._verifier.expire(now_ns)
        return (*frames, *self._settle(now_ns, outcomes))

    def _begin(self, now_ns: int) -> tuple[SendFrame, ...]:
        if not self._waiting or len(self._active) >= PAIRS_AT_ONCE:
            return ()
        table = forwarding(self._topology, self._condition.down_links, self._condition.down_switches)
        frames: list[SendFrame] = []
        while self._waiting and len(self._active) < PAIRS_AT_ONCE:
            pair = next(iter(self._waiting))
            del self._waiting[pair]
            candidates = paths(self._topology, table, *pair)
            if len(candidates) < 2:
                # One path: there is nothing to choose.
                continue
            steps = learning(len(candidates), seed=self._seed, limit=MAX_PROBES, batch=PORT_BATCH)
            state = self._active[pair] = _PairState(candidates, steps, next(steps))
            frames += self._probe(now_ns, pair, state)
        return tuple(frames)

    def _probe(self, now_ns: int, pair: Pair, state: _PairState) -> tuple[SendFrame, ...]:
        self.probes += len(state.asked)
        return self._verifier.begin(now_ns, [(_name(pair, port), pair, port) for port in state.asked])

    def _settle(self, now_ns: int, outcomes: Iterable[ProbeOutcome]) -> tuple[SendFrame, ...]:
        frames: list[SendFrame] = []
        for outcome in outcomes:
            src, dst, port = outcome.flow.split(" ")
            state = self._active.get((src, dst))
            if state is None:
                continue
            candidates = state.paths
            state.answers[int(port)] = candidates.index(outcome.seen) if outcome.seen in candidates else -1
            if len(state.answers) == len(state.asked):
                frames += self._step(now_ns, (src, dst), state)
        return tuple(frames)

    def _step(self, now_ns: int, pair: Pair, state: _PairState) -> tuple[SendFrame, ...]:
        answers, state.answers = state.answers, {}
        try:
            state.asked = state.steps.send(answers)
        except StopIteration as end:
            found = end.value
            del self._active[pair]
            ports: dict[Path, dict[int, None]] = {path: {} for path in state.paths}
            for number, port in (*found.ports.items(), *((n, p) for p, n in found.seen.items() if n >= 0)):
                ports[state.paths[number]][port] = None
            self._learned[pair] = {path: tuple(known) for path, known in ports.items() if known}
            log.info(
                "source ports from %s to %s: learned for %d of %d paths with %d probes; the hash is %s",
                *pair,
                len(self._learned[pair]),
                len(state.paths),
                found.probes,
                "linear" if found.linear else "not linear",
            )
            return self._begin(now_ns)
        return self._probe(now_ns, pair, state)


def pairs_of(jobs: Iterable[Job], elephant_bytes: int) -> Mapping[Pair, None]:
    """The pairs of hosts between which jobs send elephant flows, each once and in the jobs' order."""
    return {
        (f.src, f.dst): None
        for job in jobs
        for f in job.flows
        if f.bytes_per_iteration >= elephant_bytes and f.src != f.dst
    }


def _name(pair: Pair, port: int) -> str:
    return f"{pair[0]} {pair[1]} {port}"
