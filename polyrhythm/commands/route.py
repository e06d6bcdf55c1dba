# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm route`: compute paths, source ports and rates for a list of flows, or jobs, on any fabric."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TextIO

import numpy as np

from controller.planner import PolicyError, policy_named
from controller.routing.affine_hash import polarised_words
from controller.routing.algorithms import ORDERS, Options
from controller.routing.algorithms.base import loads
from controller.routing.backend import plain_suffices
from controller.routing.fabric import Fabric, Floats, Ints, LeafDemand, UnsuitableError
from controller.routing.forwarding import forwarding
from controller.routing.from_topology import (
    Failures,
    choices_of,
    demand_of,
    fabric_of,
    nics_of,
    parse_failures,
)
from controller.routing.greedy import Commodity
from controller.routing.ports import destinations, ports_for, repeats, sources, stages
from controller.routing.protocol import LeftToHash, Routing, RoutingProblem
from controller.routing.rates import flow_rates
from controller.routing.routings import ArrayRouting
from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from polyrhythm.flows_file import Flows, RouteError, read_flows, read_jobs
from polyrhythm.progress import working
from polyrhythm.tables import print_table
from polyrhythm_files import ConfigError
from topo.files import load_topology
from topo.graph import Topology

MOST_ROWS = 1000
"""Chosen: nobody reads a longer table, and one of a million rows takes minutes."""


@dataclass(frozen=True, slots=True)
class Routed:
    """An assignment of all flows.

    `choice`, `ports` and `rates` have one value for each flow: its path in `fabric`, its source port (-1: no
    port leads along the path), and its max-min fair rate in bit/s. `max_load` is the largest number of flows
    on a link, `excess` how much that is above the lower bound.
    """

    fabric: Fabric
    demand: LeafDemand
    choice: Ints
    ports: Ints
    rates: Floats
    max_load: int
    excess: int
    elapsed_ms: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm route`."""
    parser.add_argument(
        "--topology", metavar="FILE", type=Path, required=True, help="a topology file (docs/routing.md)"
    )
    flows = parser.add_mutually_exclusive_group(required=True)
    flows.add_argument("--flows", metavar="FILE", type=Path, help="a CSV file with rows src,dst[,weight]")
    flows.add_argument(
        "--jobs", metavar="FILE", type=Path, help="a file that says what jobs are (docs/jobs.md)"
    )
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        default="auto",
        help="how to assign paths: greedy, optimal, ecmp, annealing, annealing-published, ilp, auto, or the "
        "routing of another policy, by its registered name or package.module:NAME (docs/routing.md; "
        "default auto)",
    )
    parser.add_argument(
        "--order",
        choices=[o for o in ORDERS if o != "intensity"],
        default="given",
        help="the order in which greedy takes the flows (default given: as in the file)",
    )
    parser.add_argument(
        "--fail",
        metavar="NAMES",
        default="",
        help="switches and cables that are down, for example spine3,leaf1-spine2 (default: none)",
    )
    parser.add_argument(
        "--paths",
        metavar="K",
        type=int,
        help="use the K shortest paths of each pair, 1 to 64, for source routing (default: the "
        "equal-cost paths)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of ecmp and the annealings, 0 or more (default 0)",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=10.0,
        metavar="S",
        help="time limit of ilp and annealing in seconds, above 0, up to 3600 (default 10)",
    )
    parser.add_argument("--json", action="store_true", help="print the assignment as JSON")


def run(args: argparse.Namespace) -> int:
    """Route the flows and print the assignment. Returns 2 for bad input."""
    try:
        if args.paths is not None and not 1 <= args.paths <= 64:
            raise RouteError(f"--paths: {args.paths}; legal: 1 to 64")
        if args.seed < 0 or not 0 < args.limit <= 3600:
            raise RouteError("--seed must be 0 or more, and --limit above 0 and at most 3600 s")
        topology = load_topology(args.topology)
        failures = _failures(topology, args.fail)
        flows = read_flows(args.flows, topology) if args.flows else read_jobs(args.jobs, topology)
        routing = _routing(args)
        options = Options(seed=args.seed, plain=plain_suffices(len(flows.nics)))
        with working("routing"):
            routed = route(topology, flows, routing, options, failures, args.paths, name=args.algorithm)
    except (ConfigError, RouteError, PolicyError) as error:
        print(error, file=sys.stderr)
        return 2
    polarised = polarised_words(topology)
    if args.json:
        write(routed, flows, sys.stdout, polarised)
    else:
        show(routed, flows)
        print("\n".join(filter(None, (summary(routed, args.algorithm), polarised))))
    _warn(topology, routed)
    return 0


def _routing(args: argparse.Namespace) -> Routing:
    """The routing of the policy that `--algorithm` names, with `--order` and `--limit`."""
    policy = policy_named(args.algorithm)
    if args.order != "given":
        policy = policy.with_options({"routing.order": args.order})
    if "routing.limit_s" in dict(policy.options):
        policy = policy.with_options({"routing.limit_s": args.limit})
    return policy.routing


def _warn(topology: Topology, routed: Routed) -> None:
    """Print to standard error how many flows have no source port, and why."""
    without = int((routed.ports < 0).sum())
    if without:
        reason = (
            "no source port leads along the path"
            if topology.hash.known
            else "the hash of the switches is unknown"
        )
        print(f"{without} of {len(routed.ports)} flows have no source port: {reason}", file=sys.stderr)


def _failures(topology: Topology, words: str) -> Failures:
    try:
        return parse_failures(topology, [w.strip() for w in words.split(",") if w.strip()])
    except ValueError as error:
        raise RouteError(f"--fail: {error}") from None


def route(
    topology: Topology,
    flows: Flows,
    routing: Routing,
    options: Options,
    failures: Failures,
    shortest: int | None = None,
    *,
    name: str = "the routing",
) -> Routed:
    """Assign paths to the flows, choose their source ports, and compute their max-min fair rates.

    `shortest` K: consider the K shortest paths of each pair, for source routing.

    Raises:
        RouteError: a flow has no path, or the algorithm cannot handle this fabric.
    """
    fabric = fabric_of(topology, failures, shortest)
    demand = demand_of(fabric, flows.nics, flows.weights)
    for (a, b), which in zip(flows.nics, flows.words, strict=True):
        for host in (a, b):
            if failures.cuts_off(host):
                raise RouteError(f"{which}: no path from {a.name} to {b.name}: {host.name} is cut off")
    _warm(fabric, demand, routing, options)
    began = time.perf_counter()
    try:
        if isinstance(routing, ArrayRouting):
            choice = routing.choices(fabric, demand, options)
        else:
            choice = _choices(topology, fabric, demand, flows, routing, options.seed, failures)
    except UnsuitableError as error:
        raise RouteError(f"{name}: {error}; `auto` and `greedy` handle any fabric") from None
    elapsed = time.perf_counter() - began
    lost = np.flatnonzero(choice < 0)
    if len(lost):
        a, b = flows.nics[lost[0]]
        more = f", and {len(lost) - 1} more flows have none" if len(lost) > 1 else ""
        raise RouteError(f"{flows.words[lost[0]]}: no path from {a.name} to {b.name}{more}")
    carried = int(loads(fabric, demand, choice).max(initial=0))
    return Routed(
        fabric,
        demand,
        choice,
        _ports(topology, fabric, demand, choice, flows, options),
        flow_rates(fabric, demand, choice, nics_of(topology, flows.nics), plain=options.plain),
        carried,
        carried - fabric.bound(demand),
        1000 * elapsed,
    )


def _choices(
    topology: Topology,
    fabric: Fabric,
    demand: LeafDemand,
    flows: Flows,
    routing: Routing,
    seed: int,
    failures: Failures,
) -> Ints:
    """The answer of a routing that is no array algorithm, as path numbers of the fabric.

    Every flow counts as a job of its own, and all have the same intensity.
    """
    names = [str(i) for i in range(len(flows.nics))]
    alike = dict.fromkeys(names, 0.0)
    commodities = tuple(
        Commodity(name, a.name, b.name, weight, name)
        for name, (a, b), weight in zip(names, flows.nics, flows.weights.tolist(), strict=True)
    )
    problem = RoutingProblem(
        topology=topology,
        forwarding=forwarding(topology, failures.links, failures.switches),
        flows=commodities,
        failures=failures,
        previous={},
        overlap=None,
        intensities=lambda: alike,
        distances=lambda: alike,
        seed=seed,
    )
    answer = routing.route(problem)
    if isinstance(answer, LeftToHash):
        raise UnsuitableError("it leaves the flows to the hash")
    paths = [answer.paths.get(name, ()) for name in names]
    found = choices_of(fabric, demand, [path[1:-1] or ("",) * 2 for path in paths])
    found[[not path for path in paths]] = -1
    return found


def _warm(fabric: Fabric, demand: LeafDemand, routing: Routing, options: Options) -> None:
    """Load or compile the kernels on a few flows, so that the measured time does not include it."""
    few = demand.take(np.arange(min(len(demand), 2)))
    if isinstance(routing, ArrayRouting):
        with suppress(UnsuitableError):
            routing.choices(fabric, few, options)


def _ports(
    topology: Topology, fabric: Fabric, demand: LeafDemand, choice: Ints, flows: Flows, options: Options
) -> Ints:
    wanted, spec = stages(topology, fabric, demand, choice), topology.hash
    src, dst = sources((a.ip for a, _ in flows.nics), spec), destinations((b.ip for _, b in flows.nics), spec)
    if not spec.known:
        # If a switch chooses the path by an unknown hash, only probes can find the path of each source port.
        free = (wanted.stage >= 0).any(axis=1)
        lowest = ROCE_SOURCE_PORTS.start + repeats(src, dst) % len(ROCE_SOURCE_PORTS)
        return np.where(free, -1, lowest).astype(np.int32)
    skip = repeats(src, dst, choice)
    return ports_for(src, dst, wanted, skip=skip, spec=spec, plain=options.plain)


def _rows(routed: Routed, flows: Flows) -> Iterator[str]:
    demand, fabric, quoted = routed.demand, routed.fabric, cache(json.dumps)
    numbers = (demand.src, demand.dst, routed.choice, routed.ports, routed.rates)
    for name, (src, dst), (a, b), u, v, c, port, rate in zip(
        flows.words, flows.names, flows.nics, *(x.tolist() for x in numbers), strict=True
    ):
        flow = f'"flow": {quoted(name)}, ' if flows.of_jobs else ""
        path = ", ".join(map(quoted, (a.name, *fabric.nodes(u, v, c), b.name)))
        yield (
            f'{{{flow}"src": {quoted(src)}, "dst": {quoted(dst)}, "path": [{path}], '
            f'"sport": {port if port >= 0 else "null"}, "rate_gbps": {round(rate / 1e9, 9)}}}'
        )


def write(routed: Routed, flows: Flows, out: TextIO, polarised: str = "") -> None:
    """Write the assignment as JSON, one flow after another, so that memory never contains the text of a
    million flows."""
    out.write('{"flows": [')
    for i, row in enumerate(_rows(routed, flows)):
        out.write(("\n " if i == 0 else ",\n ") + row)
    rest = {
        "max_load": routed.max_load,
        "min_rate": None if not len(routed.rates) else round(float(routed.rates.min()) / 1e9, 9),
        "excess": routed.excess,
        "elapsed_ms": round(routed.elapsed_ms, 6),
        "polarised": polarised or None,
    }
    out.write("],\n" + json.dumps(rest)[1:] + "\n")


def show(routed: Routed, flows: Flows) -> None:
    """Print paths, ports and rates as a table, of the first MOST_ROWS flows."""
    names = ("flow",) if flows.of_jobs else ()
    numbers = zip(
        *(x[:MOST_ROWS].tolist() for x in (routed.demand.src, routed.demand.dst, routed.choice)), strict=True
    )
    rows = []
    for name, (src, dst), nics, path, port, rate in zip(
        flows.words[:MOST_ROWS],
        flows.names[:MOST_ROWS],
        flows.nics[:MOST_ROWS],
        numbers,
        routed.ports[:MOST_ROWS].tolist(),
        routed.rates[:MOST_ROWS].tolist(),
        strict=True,
    ):
        nodes = (nics[0].name, *routed.fabric.nodes(*path), nics[1].name)
        row = (src, dst, " > ".join(nodes), port if port >= 0 else "-", f"{rate / 1e9:.6g}")
        rows.append((*((name,) if names else ()), *row))
    print_table((*names, "src", "dst", "path", "port", "Gbit/s"), rows, right=("port", "Gbit/s"))
    if len(flows.nics) > MOST_ROWS:
        print(f"... and {len(flows.nics) - MOST_ROWS} more flows; --json prints all")


def summary(routed: Routed, algorithm: str) -> str:
    """The assignment as one line."""
    slowest = f"{routed.rates.min() / 1e9:.3g} Gbit/s" if len(routed.rates) else "none"
    return (
        f"{len(routed.choice)} flows by {algorithm} in {routed.elapsed_ms:.3f} ms: at most {routed.max_load} "
        f"on a link, {routed.excess} above the bound; slowest flow {slowest}"
    )
