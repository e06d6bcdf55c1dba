# SPDX-License-Identifier: Apache-2.0
"""The flows of a job that says what it is, by the expansion that scenarios and the simulator use too."""

from __future__ import annotations

from controller.wire.traffic import Traffic, TrafficFlow, busy_s, flows_of, phases_of, spread
from controller.wire.traffic_config import TrafficConfig
from hostagent.job import PhaseSpec, one_or_each


def expanded(
    job: str, config: TrafficConfig, hosts: tuple[str, ...], gpus: int, rails: int
) -> tuple[Traffic, tuple[TrafficFlow, ...]]:
    """What a job is, and its flows. `hosts` are NICs, `rails` neighbours of them in one server each.

    Raises:
        ValueError: hosts, GPUs and parallelism do not fit together, or nothing is sent over the fabric.
    """
    if len(set(hosts)) < len(hosts) or len(hosts) % rails:
        raise ValueError(
            f"job {job}: {len(hosts)} hosts, {rails} rails; legal: each host once, and so many on each rail"
        )
    servers = [(hosts[k], hosts[k : k + rails]) for k in range(0, len(hosts), rails)]
    try:
        traffic = config.traffic(gpus)
        return traffic, flows_of(traffic, spread(servers, gpus))
    except ValueError as error:
        raise ValueError(f"job {job}: traffic: {error}") from None


def phase_specs(
    traffic: Traffic, flows: tuple[TrafficFlow, ...], compute_ns: int, payload_bps: int
) -> tuple[PhaseSpec, ...]:
    """The phases of an iteration. Each Up phase is as long as the busiest NIC needs for it, if every NIC
    carries `payload_bps` bit/s of payload."""
    bps = {nic: max(1, payload_bps) for f in flows for nic in (f.src, f.dst)}
    return tuple(
        PhaseSpec(
            max(1, round(1e9 * busy_s(flows, phase.sizes, bps))),
            one_or_each(phase.sizes),
            0,
            phase.compute_ns,
        )
        for phase in phases_of(flows, traffic.exchanges, compute_ns)
    )
