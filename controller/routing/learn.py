# SPDX-License-Identifier: Apache-2.0
"""Learning which source port leads where by INT probes, for switches whose hash nobody told us."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controller.routing.hash import ROCE_PORTS

Probe = Callable[[int], int]
_CHECKS = 6


@dataclass(frozen=True, slots=True)
class Learned:
    """A source port for every path that was found. `probes` is what it took; `linear` says whether the
    ports come from a linear hash that stood the checks, or were all probed themselves."""

    ports: Mapping[int, int]
    probes: int
    linear: bool


def learn(probe: Probe, paths: int, *, seed: int = 0, limit: int = len(ROCE_PORTS)) -> Learned:
    """Source ports in 0xC000-0xFFFF for all paths of one flow.

    `probe(port)` sends an INT probe and returns the number of the path it took, in the order of the ports
    of the switch. A linear hash over a power of two of paths needs one probe for the constant and as many
    single-bit changes as it takes to span all paths; _CHECKS further ports then have to go where they
    should (another hash passes with probability paths ** -_CHECKS). Where they do not, ports are probed one
    by one until every path was seen, at most `limit` (coupon collecting). Paths never seen are left out.
    """
    seen: dict[int, int] = {}

    def ask(port: int) -> int:
        if port not in seen:
            seen[port] = probe(port)
        return seen[port]

    rng = random.Random(seed)
    if paths & (paths - 1) == 0:
        found = _linear(ask, paths)
        if found is not None:
            unsure = sorted(port for port in found.values() if port not in seen)
            checked = rng.sample(unsure, min(_CHECKS, len(unsure)))
            if all(found.get(ask(port)) == port for port in checked):
                return Learned(found, len(seen), True)
    rest = [port for port in ROCE_PORTS if port not in seen]
    rng.shuffle(rest)
    for port in rest:
        if len(seen) >= limit or len(set(seen.values())) >= paths:
            break
        ask(port)
    ports: dict[int, int] = {}
    for port, path in seen.items():
        ports.setdefault(path, port)
    return Learned(ports, len(seen), False)


def _linear(ask: Probe, paths: int) -> dict[int, int] | None:
    """Port by path if path numbers are affine in the port's bits, as far as the first probes show."""
    start = ROCE_PORTS.start
    constant = ask(start)
    # Every combination of the useful bits found so far: path offset -> port offset.
    span = {0: 0}
    for bit in range(14):
        if len(span) == paths:
            break
        step = ask(start ^ 1 << bit) ^ constant
        if step not in span:
            span |= {offset ^ step: port ^ 1 << bit for offset, port in span.items()}
    if len(span) != paths or any(not 0 <= offset ^ constant < paths for offset in span):
        return None
    return {offset ^ constant: start ^ port for offset, port in span.items()}
