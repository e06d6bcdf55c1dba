# SPDX-License-Identifier: Apache-2.0
"""The demand of the jobs, which is the input of all stages: profiles, elephants, bytes on links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from controller.model import Flow, Job, Phase, Profile
from controller.planner.inputs import DirectedLink, PlanInput
from controller.planner.twins import twin_profiles
from controller.priority.jobs import LinkJob
from controller.routing.fabric import capacities
from controller.routing.forwarding import SwitchForwarding, forwarding
from controller.routing.topology_cache import cached_by_topology
from topo.graph import Topology


@dataclass(frozen=True)
class Demands:
    """Values that the stages derive from the inputs. Every property is computed once."""

    inputs: PlanInput

    @cached_property
    def jobs(self) -> Mapping[str, Job]:
        """The jobs by name."""
        return {j.name: j for j in self.inputs.jobs}

    @cached_property
    def profiles(self) -> Mapping[str, Profile]:
        """The profile of each job. A job without one is assumed to send all the time, at full rate. `twin_of`
        has the profile of another job."""
        result = {}
        for job in self.inputs.jobs:
            rates = [self.inputs.topology.host[f.src].rate_bps for f in job.flows]
            unknown = Profile(1, (Phase(0, 1, max(rates)),)) if rates else Profile(1, ())
            known = self.jobs[self.twin_of.get(job.name, job.name)].profile
            result[job.name] = known if known.phases else unknown
        return result

    @cached_property
    def twin_of(self) -> Mapping[str, str]:
        """For each job that is planned with the profile of a twin, the name of the twin.

        Only policies with the joint search have twins; the others take profiles as they are.
        """
        return twin_profiles(self.inputs.jobs) if self.inputs.policy.joint_search else {}

    @cached_property
    def rates(self) -> Mapping[DirectedLink, int]:
        """Capacity in bit/s of every directed link, hosts' cables too."""
        pcie = {
            _inside(name, job): job.pcie_bps
            for job in self.inputs.jobs
            if job.pcie_link
            for name in job.hosts
        }
        cables = _cable_rates(self.inputs.topology)
        return {**cables, **pcie} if pcie else cables

    @cached_property
    def inside(self) -> Mapping[str, tuple[DirectedLink, ...]]:
        """The PCIe link of each flow at its sender; empty if its job names none."""
        return {
            f.name: (_inside(f.src, job),) if job.pcie_link else ()
            for job in self.inputs.jobs
            for f in job.flows
        }

    @cached_property
    def elephants(self) -> tuple[Flow, ...]:
        """The flows that get a path. Mice, and flows within a host, get none."""
        return tuple(
            f
            for job in self.inputs.jobs
            for f in job.flows
            if f.bytes_per_iteration >= self.inputs.elephant_bytes and f.src != f.dst
        )

    @cached_property
    def elephant(self) -> Mapping[str, Flow]:
        """The elephants by name."""
        return {f.name: f for f in self.elephants}

    @cached_property
    def access(self) -> Mapping[str, tuple[DirectedLink, ...]]:
        """Each flow's links at its hosts, which it uses on any path."""
        host = self.inputs.topology.host
        return {
            f.name: (*self.inside[f.name], (f.src, host[f.src].leaf), (host[f.dst].leaf, f.dst))
            for job in self.inputs.jobs
            for f in job.flows
        }

    @cached_property
    def forwarding(self) -> Mapping[str, SwitchForwarding]:
        """The switches' forwarding entries, without what is down."""
        x = self.inputs
        return forwarding(x.topology, x.down_links, x.down_switches)

    def intensities(self) -> Mapping[str, float]:
        """CRUX's intensity by job, from the traffic on the links at the jobs' hosts; 0 without traffic."""
        return {j.name: j.contender(self.rates).intensity or 0.0 for j in self.link_jobs(self.access)}

    def distances(self) -> Mapping[str, float]:
        """The hops of each job's farthest elephant; 0 without one."""
        farthest = dict.fromkeys(self.jobs, 0.0)
        for f in self.elephants:
            farthest[f.job] = max(farthest[f.job], self._hops(f.src, f.dst))
        return farthest

    def _hops(self, src: str, dst: str) -> int:
        """Hops of the shortest path between two hosts: 2 in a leaf, 4 below a common switch, else 6."""
        topology = self.inputs.topology
        a, b = topology.host[src].leaf, topology.host[dst].leaf
        if a == b:
            return 2
        return 4 if set(topology.upward[a]) & set(topology.upward[b]) else 6

    def link_jobs(self, links_of: Mapping[str, Sequence[DirectedLink]]) -> list[LinkJob]:
        """The jobs as priority methods see them, with their bytes on the given links of each flow.

        If the communication and compute times of a job were measured, they count, and the part of them that
        does not fit into the period one after the other overlaps. Otherwise all time outside the Up phases
        counts as compute.
        """
        found = []
        for job in self.inputs.jobs:
            on: dict[DirectedLink, float] = defaultdict(float)
            for flow in job.flows:
                for link in links_of.get(flow.name, ()):
                    on[link] += flow.bytes_per_iteration
            profile, measured = self.profiles[job.name], job.measured
            compute, overlap_start, traffic = profile.period_ns - profile.up_ns, 1.0, None
            if measured is not None and measured.compute_ns is not None:
                compute = measured.compute_ns
                alone = (profile.period_ns - measured.communication_ns) / compute
                overlap_start = min(1.0, max(0.0, alone))
            if measured is not None and on:
                traffic = measured.communication_ns / 1e9
            found.append(
                LinkJob(
                    name=job.name,
                    gpus=job.gpus,
                    work=job.flops_per_iteration,
                    compute_s=compute / 1e9,
                    bytes_on=on,
                    overlap_start=overlap_start,
                    traffic_s=traffic,
                    total_bytes=sum(f.bytes_per_iteration for f in job.flows),
                    distance=max((len(links_of.get(f.name, ())) for f in job.flows), default=0),
                )
            )
        return found


def _inside(host: str, job: Job) -> DirectedLink:
    """A job's PCIe link in a host, from its GPUs to the NIC."""
    return f"{host}:{job.pcie_link}", host


@cached_by_topology
def _cable_rates(topology: Topology) -> Mapping[DirectedLink, int]:
    """The bit/s of every cable each way, those of hosts too."""
    rates = dict(capacities(topology))
    for host in topology.hosts:
        rates[host.name, host.leaf] = rates[host.leaf, host.name] = host.rate_bps
    return rates
