# SPDX-License-Identifier: Apache-2.0
"""Learn by INT probes which source port leads along which path, where the hash of the switches is unknown."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from controller.wire.rocev2 import ROCE_SOURCE_PORTS

_CHECKS = 6


@dataclass(frozen=True, slots=True)
class PortLearningResult:
    """A source port for every path that was found (`ports`: path number -> port).

    `probes` counts the probes sent. `linear` says that the hash is affine and passed the checks; otherwise
    every port in `ports` was probed itself. `seen` maps every probed port to its path number.
    """

    ports: Mapping[int, int]
    probes: int
    linear: bool
    seen: Mapping[int, int]


Probe = Callable[[int], int]
Learning = Generator[list[int], Mapping[int, int], PortLearningResult]


def learn(
    probe: Probe, paths: int, *, seed: int = 0, limit: int = len(ROCE_SOURCE_PORTS)
) -> PortLearningResult:
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
            found: PortLearningResult = end.value
            return found


def learning(paths: int, *, seed: int = 0, limit: int = len(ROCE_SOURCE_PORTS), batch: int = 1) -> Learning:
    """A generator: yields the ports to probe, receives the path number of each, returns the result.

    If the number of paths is a power of two, the hash may be affine in the bits of the port. Then one probe
    gives the constant, and single-bit changes of the port span all paths. _CHECKS more probes test this;
    a hash that is not affine passes with probability paths ** -_CHECKS. If the test fails, ports are probed
    in batches of `batch` until every path was seen or `limit` ports were probed. A path never seen is left
    out of the result.
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
                return PortLearningResult(found, len(seen), True, seen)
    rest = [port for port in ROCE_SOURCE_PORTS if port not in seen]
    rng.shuffle(rest)
    while rest and len(seen) < limit and len({path for path in seen.values() if path >= 0}) < paths:
        size = min(batch, limit - len(seen))
        yield from _ask(seen, rest[:size])
        del rest[:size]
    ports: dict[int, int] = {}
    for port, path in seen.items():
        if path >= 0:
            ports.setdefault(path, port)
    return PortLearningResult(ports, len(seen), False, seen)


def _ask(
    seen: dict[int, int], ports: list[int]
) -> Generator[list[int], Mapping[int, int], Mapping[int, int]]:
    """The path number of each port. Ports that were not probed yet are probed."""
    new = [port for port in ports if port not in seen]
    if new:
        seen.update((yield new))
    return {port: seen[port] for port in ports}


def _linear(
    seen: dict[int, int], paths: int
) -> Generator[list[int], Mapping[int, int], dict[int, int] | None]:
    """A port for each path number, if the first probes show that path numbers are affine in the port bits."""
    start = ROCE_SOURCE_PORTS.start
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
