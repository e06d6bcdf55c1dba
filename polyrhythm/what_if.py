# SPDX-License-Identifier: Apache-2.0
"""The present jobs of a running controller, for the simulator."""

from __future__ import annotations

from dataclasses import replace

from controller.model.job import Job
from controller.planner import Policy
from controller.process.what_if import PresentFabric, SimulatedUnder
from controller.wire.senders import uses_mltcp
from topo.graph import Topology


def simulated_under(present: PresentFabric, policy: Policy) -> SimulatedUnder:
    """Simulate the present jobs under a policy.

    Raises:
        ValueError: the simulator cannot run this policy or one of the jobs.
    """
    # The controller imports this module, and only its worker process needs the simulator.
    from polyrhythm.api import simulate
    from sim.cluster import JobRequest
    from sim.mltcp import LINEAR, check_sender
    from sim.shape import MESSAGES, PhaseShape, Shape
    from sim.simulation import FabricFailure

    def request(job: Job, offset_ns: int) -> JobRequest:
        check_sender(job.sender, f"job {job.name}")
        phases, period_ns = job.profile.phases, job.profile.period_ns
        hosts = tuple(dict.fromkeys((*job.hosts, *(end for f in job.flows for end in (f.src, f.dst)))))
        rank = {host: number for number, host in enumerate(hosts)}
        bits = [(p.end_ns - p.start_ns) * p.rate_bps / 1e9 for p in phases]
        largest = max(flow.bytes_per_iteration for flow in job.flows) or 1
        shapes = [
            PhaseShape(
                MESSAGES,
                0.0,
                after_ns=after.start_ns - phase.end_ns if after is not None else period_ns - phase.end_ns,
                limit_bps=phase.rate_bps,
                messages=tuple(
                    (rank[f.src], rank[f.dst], f.bytes_per_iteration * part / sum(bits)) for f in job.flows
                ),
            )
            for phase, after, part in zip(phases, (*phases[1:], None), bits, strict=True)
        ]
        return JobRequest(
            name=job.name,
            model=job.model,
            arrival_ns=offset_ns,
            gpus=max(1, job.gpus),
            # More than the horizon has room for.
            iterations=2 * present.horizon_ns // period_ns + 2,
            # The profile counts bits on the wire, and its rate is that of the largest flow.
            shape=Shape(tuple(shapes), overhead=sum(bits) / 8 / largest, flops=job.flops_per_iteration),
            ranks=hosts,
            mltcp=LINEAR if uses_mltcp(job.sender) else "",
        )

    topology, cables = _without_single_cables(present.topology, present.down_links)
    failures = [FabricFailure(0, "-".join(cable)) for cable in sorted(cables)]
    failures += [FabricFailure(0, switch) for switch in sorted(present.down_switches)]
    result = simulate(
        topology,
        [request(job, offset_ns) for job, offset_ns in zip(present.jobs, present.offsets_ns, strict=True)],
        policy,
        seed=present.seed,
        # The jobs have their GPUs already, so there is room for all of them.
        gpus_per_server=max(1, sum(max(1, job.gpus) for job in present.jobs)),
        until_s=present.horizon_ns / 1e9,
        elephant_bytes=present.elephant_bytes,
        failures=failures,
    )
    return SimulatedUnder(
        result.gpu_utilisation,
        tuple(
            (job.name, job.mean_iteration_ms, job.p99_iteration_ms, job.ideal_iteration_ms)
            for job in result.jobs.values()
        ),
    )


def _without_single_cables(
    topology: Topology, down: frozenset[tuple[str, str]]
) -> tuple[Topology, frozenset[tuple[str, str]]]:
    """The fabric without the cables that are down beside others of the same two switches, and the pairs of
    switches that no cable joins any more. The simulator knows failures of whole pairs only.
    """
    pairs = topology.down_pairs(down)
    ends = {link: (min(link.a, link.b), max(link.a, link.b)) for link in topology.links}
    gone = frozenset(pair for pair in ends.values() if pair in pairs)
    left = tuple(k for k in topology.links if ends[k] in gone or not topology.is_down(k, down))
    return (topology if len(left) == len(ends) else replace(topology, links=left)), gone
