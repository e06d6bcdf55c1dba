# SPDX-License-Identifier: Apache-2.0
"""Write the configuration file agent.toml of each agent of the Mininet fabric. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hostagent.job import one_or_each
from polyrhythm.scenario import Scenario, Workload


@dataclass(frozen=True, slots=True)
class AgentJob:
    """A job for the agents of its hosts.

    `start_ns` is the start of its workers, `start_jitter_ns` the most that is added to it. `iterations` 0
    means without end, `stop_ns` 0 at no fixed time. `profile` is what an earlier run measured, or None.
    """

    workload: Workload
    start_ns: int
    start_jitter_ns: int
    iterations: int
    profile: Mapping[str, Any] | None
    stop_ns: int = 0


def agent_config(
    scenario: Scenario,
    host: str,
    controller: str,
    records: str,
    moves: str,
    seed: int,
    jobs: Sequence[AgentJob],
    start: str = "",
    own: str = "",
) -> str:
    """The text of agent.toml for one host, with those of the jobs that have a worker there.

    With `own`, a folder of the host, programs of the host may join over its socket, and it has a socket map
    there. Times of the jobs count from the time in the file `start`, or from 0 of the monotonic clock.
    """
    node = scenario.topology.host[host]
    document: dict[str, Any] = {
        "agent": {"host": host, "ip": node.ip, "controller": controller, "socket": ""},
        "hosts": {h.name: h.ip for h in scenario.topology.hosts},
        "nic": {"driver": "udp", "rate_mbps": node.rate_bps / 1e6, "mtu": scenario.packet_bytes},
        "training": {
            "records": records,
            "moves": moves,
            "start": start,
            "seed": seed,
            "jobs": [
                _job(job) for job in jobs if host in job.workload.job.hosts and not job.workload.on_kernel_tcp
            ],
        },
    }
    if own:
        document["agent"]["socket"] = f"{own}/agent.sock"
        document["sockets"] = {"map": f"{own}/sockets"}
    return "".join(
        f"[{section}]\n" + "".join(f"{_toml(key)} = {_toml(value)}\n" for key, value in table.items())
        for section, table in document.items()
    )


def _job(agent_job: AgentJob) -> dict[str, Any]:
    job = agent_job.workload.job
    entry: dict[str, Any] = {
        "name": job.name,
        "model": job.model,
        "gpus": job.gpus,
        "hosts": list(job.hosts),
        "ring": [[flow.src, flow.dst] for flow in job.flows],
        "phases": [
            {
                "up_ns": phase.end_ns - phase.start_ns,
                "bytes_per_flow": size if isinstance(size := one_or_each(step.sizes), int) else list(size),
                "rate_bps": step.rate_bps,
                "down_ns": step.compute_ns,
            }
            for phase, step in zip(job.profile.phases, agent_job.workload.steps, strict=True)
        ],
        "flops_per_iteration": float(job.flops_per_iteration),
        "start_ns": agent_job.start_ns,
        "start_jitter_ns": agent_job.start_jitter_ns,
        "iterations": agent_job.iterations,
        "stop_ns": agent_job.stop_ns,
        "compute_jitter_pct": agent_job.workload.jitter * 100,
        "sender": job.sender,
        "increase_timer": agent_job.workload.increase_timer,
        "silent": agent_job.workload.silent,
    }
    use = agent_job.workload.pcie
    if use is not None:
        entry["pcie"] = {"link": use.link, "rate_mbps": use.rate_bps / 1e6}
    if agent_job.profile is not None:
        entry["profile"] = {
            "period_ns": agent_job.profile["period_ns"],
            "phases": [list(phase) for phase in agent_job.profile["phases"]],
        }
    return entry


def _toml(value: object) -> str:
    """A key or value in TOML. Strings and numbers are written as in JSON, except DEL and surrogates."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
