# SPDX-License-Identifier: Apache-2.0
"""The configuration of the core of a live controller."""

from __future__ import annotations

from dataclasses import dataclass

from controller.live.job_leases import LEASE_NS
from controller.live.link_state import GRACE_NS
from controller.live.measuring import AS_DECLARED, MeasureSettings, depends_on_profiles
from controller.live.verify import FABRIC_TIME_PROBES, ProbeOptions
from controller.planner import PIN_CAPACITY, Policy
from topo.graph import Topology


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """The core's configuration.

    `verify`: probe the paths of every plan by INT. Flows of fewer than `elephant_bytes` per iteration go by
    ECMP. `pin_capacity` is how many flows one switch can pin by table entries. A switch that has had no
    session for `grace_ns` counts as lost. For `restart_grace_ns` after the start, agents may announce again
    the jobs that an earlier controller knew, and a switch without a session does not count as lost; 0: there
    was no earlier one, and every switch has a session. The jobs of a host end when its agent has had no
    session for `lease_ns`.
    """

    topology: Topology
    policy: Policy
    seed: int
    verify: bool
    elephant_bytes: int
    probe_options: ProbeOptions = FABRIC_TIME_PROBES
    measure: MeasureSettings = AS_DECLARED
    pin_capacity: int = PIN_CAPACITY
    grace_ns: int = GRACE_NS
    lease_ns: int = LEASE_NS
    restart_grace_ns: int = 0

    @property
    def measured_as(self) -> MeasureSettings:
        """How jobs are measured for the policy: not at all where its decisions do not depend on it."""
        return self.measure if depends_on_profiles(self.policy) else AS_DECLARED
