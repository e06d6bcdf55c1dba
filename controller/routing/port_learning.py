# SPDX-License-Identifier: Apache-2.0
"""Learning which source port leads where by INT probes, for switches whose hash nobody told us."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from controller.routing.hash import ROCE_PORTS

_CHECKS = 6


@dataclass(frozen=True, slots=True)
class Learned:
    """A source port for every path that was found. `probes` is what it took; `linear` says whether the
    ports come from a linear hash that stood the checks, or were all probed themselves; `seen` has the path of
    every probed port."""

    ports: Mapping[int, int]
    probes: int
    linear: bool
    seen: Mapping[int, int]


Probe = Callable[[int], int]
Learning = Generator[list[int], Mapping[int, int], Learned]


def learn(probe: Probe, paths: int, *, seed: int = 0, limit: int = len(ROCE_PORTS)) -> Learned:
    """Source ports in 0xC000-0xFFFF for all paths of one flow, by `learning`.

    `probe(port)` sends an INT probe and returns the number of the path it took, in the order of the ports
    of the switch, or -1 if it did not come back.
    """
    steps = learning(paths, seed=seed, limit=limit)
    asked = next(steps)
    while True:
        try:
            asked = steps.send({port: probe(port) for port in asked})
        except StopIteration as end:
            found: Learned = end.value
            return found


def learning(paths: int, *, seed: int = 0, limit: int = len(ROCE_PORTS), batch: int = 1) -> Learning:
    """The steps of learning: gives ports to probe, is sent the path that each took, and returns what is
    known in the end.

    A linear hash over a power of two of paths needs one probe for the constant and as many single-bit
    changes as it takes to span all paths; _CHECKS further ports then have to go where they should (another
    hash passes with probability paths ** -_CHECKS). Where they do not, ports are probed `batch` by `batch`
    until every path was seen, at most `limit` (coupon collecting). Paths never seen are left out.
    """
    seen: dict[int, int] = {}
    rng = random.Random(seed)
    if paths & (paths - 1) == 0:
        found = yield from _linear(seen, paths)
        if found is not None:
            unsure = sorted(port for port in found.values() if port not in seen)
            checked = rng.sample(unsure, min(_CHECKS, len(unsure)))
            good = True
            for port in checked:
                good = good and found.get((yield from _ask(seen, [port]))[port]) == port
            if good:
                return Learned(found, len(seen), True, seen)
    rest = [port for port in ROCE_PORTS if port not in seen]
    rng.shuffle(rest)
    while rest and len(seen) < limit and len({path for path in seen.values() if path >= 0}) < paths:
        size = min(batch, limit - len(seen))
        yield from _ask(seen, rest[:size])
        del rest[:size]
    ports: dict[int, int] = {}
    for port, path in seen.items():
        if path >= 0:
            ports.setdefault(path, port)
    return Learned(ports, len(seen), False, seen)


def _ask(
    seen: dict[int, int], ports: list[int]
) -> Generator[list[int], Mapping[int, int], Mapping[int, int]]:
    """The paths of ports, probing those that are not known yet."""
    new = [port for port in ports if port not in seen]
    if new:
        seen.update((yield new))
    return {port: seen[port] for port in ports}


def _linear(
    seen: dict[int, int], paths: int
) -> Generator[list[int], Mapping[int, int], dict[int, int] | None]:
    """Port by path if path numbers are affine in the port's bits, as far as the first probes show."""
    start = ROCE_PORTS.start
    constant = (yield from _ask(seen, [start]))[start]
    # Every combination of the useful bits found so far: path offset -> port offset.
    span = {0: 0}
    for bit in range(14):
        if len(span) == paths:
            break
        port = start ^ 1 << bit
        step = (yield from _ask(seen, [port]))[port] ^ constant
        if step not in span:
            span |= {offset ^ step: other ^ 1 << bit for offset, other in span.items()}
    if len(span) != paths or any(not 0 <= offset ^ constant < paths for offset in span):
        return None
    return {offset ^ constant: start ^ port for offset, port in span.items()}
