# SPDX-License-Identifier: Apache-2.0
"""The demand of the jobs, which is the input of all stages: profiles, elephants, bytes on links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controller.model import Flow, Job, Phase, Profile
from controller.planner.flow_columns import FlowColumns, columns_of
from controller.planner.inputs import DirectedLink, PlanInput
from controller.planner.link_use import LinkUse
from controller.planner.twins import twin_profiles
from controller.routing.cable_links import CableLinks, cable_rates
from controller.routing.fabric import Ints
from controller.routing.forwarding import SwitchForwarding, forwarding
from controller.routing.numbering import LinkNumbers, numbering
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
            known = self.jobs[self.twin_of.get(job.name, job.name)].profile
            if not known.phases:
                rates = [self.inputs.topology.host[f.src].rate_bps for f in job.flows]
                known = Profile(1, (Phase(0, 1, max(rates)),)) if rates else Profile(1, ())
            result[job.name] = known
        return result

    @cached_property
    def twin_of(self) -> Mapping[str, str]:
        """For each job that is planned with the profile of a twin, the name of the twin.

        Only policies with the joint search have twins; the others take profiles as they are.
        """
        return twin_profiles(self.inputs.jobs) if self.inputs.policy.joint_search else {}

    @cached_property
    def rates(self) -> Mapping[DirectedLink, int]:
        """Capacity in bit/s of every directed link: between nodes, hosts too, and the cables of bundles."""
        found = _link_rates(self.inputs.topology)
        return {**found, **self._more} if self._more else found

    @cached_property
    def _more(self) -> Mapping[DirectedLink, int]:
        """The links beside those between two nodes: the cables of bundles, each for itself, and PCIe
        links."""
        return {**cable_rates(self.inputs.topology), **self._pcie}

    @cached_property
    def cable_links(self) -> CableLinks:
        """The cables of flows where several join two switches."""
        return CableLinks(self.inputs.topology, self.forwarding)

    @cached_property
    def _pcie(self) -> Mapping[DirectedLink, int]:
        """The bit/s of the PCIe links that jobs name."""
        return {
            _inside(name, job): job.pcie_bps
            for job in self.inputs.jobs
            if job.pcie_link
            for name in job.hosts
        }

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
    def forwarding(self) -> Mapping[str, SwitchForwarding]:
        """The switches' forwarding entries, without what is down."""
        x = self.inputs
        return forwarding(x.topology, x.down_links, x.down_switches)

    @cached_property
    def columns(self) -> FlowColumns:
        """The flows of all jobs as columns."""
        return FlowColumns.of(self.inputs.topology, self.inputs.jobs, self.inputs.elephant_bytes)

    @cached_property
    def links(self) -> LinkNumbers:
        """The numbers of all links, those of bundles' cables and inside hosts too."""
        links = self.columns.numbers.links
        return links.extended(self._more) if self._more else links

    @cached_property
    def inside_rows(self) -> Ints:
        """The number of the PCIe link of each flow at its sender, (flows, 1); -1: its job names none."""
        found = np.full((len(self.columns.names), 1), -1, dtype=np.int32)
        for j, job in enumerate(self.inputs.jobs):
            if job.pcie_link:
                first, number = self.columns.first[j], self.links.number
                found[first : first + len(job.flows), 0] = [number[_inside(f.src, job)] for f in job.flows]
        return found

    def link_use(self, rows: Ints, routed: NDArray[np.bool_]) -> LinkUse:
        """The use of links by all flows, whose links, (flows, hops), are `rows`; -1: none.

        `routed` (flows,) are the elephants whose links are known.
        """
        flows = self.columns
        return LinkUse.of(self.links, rows, flows.job, len(self.inputs.jobs), flows.size, routed)

    def intensities(self) -> Mapping[str, float]:
        """CRUX's intensity by job, from the traffic on the links at the jobs' hosts; 0 without traffic."""
        return {job.name: self._intensity(job) for job in self.inputs.jobs}

    def _intensity(self, job: Job) -> float:
        """CRUX's intensity of one job in flop/s."""
        if job.measured is not None and job.flows:
            traffic_s = job.measured.communication_ns / 1e9
        else:
            traffic_s = columns_of(self.inputs.topology, job.flows).access_s
            if job.pcie_link:
                sent = Counter[str]()
                for f in job.flows:
                    sent[f.src] += f.bytes_per_iteration
                traffic_s = max((traffic_s, *(8 * b / job.pcie_bps for b in sent.values())))
        return job.flops_per_iteration / traffic_s if traffic_s > 0 else 0.0

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


def _inside(host: str, job: Job) -> DirectedLink:
    """A job's PCIe link in a host, from its GPUs to the NIC."""
    return f"{host}:{job.pcie_link}", host


@cached_by_topology
def _link_rates(topology: Topology) -> Mapping[DirectedLink, int]:
    """The bit/s between two nodes each way, those of hosts too. The cables of a bundle are one link here."""
    links = numbering(topology).links
    return {name: int(rate) for name, rate in zip(links.names, links.rate.tolist(), strict=True)}
