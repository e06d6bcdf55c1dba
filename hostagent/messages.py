# SPDX-License-Identifier: Apache-2.0
"""The protocol's messages about the NIC, jobs and iterations of an agent."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

from controller.wire import agent_pb2 as pb
from controller.wire.protocol import PROTOCOL
from hostagent.job import IterationRecord, JobSpec
from hostagent.nic.driver import NicDriver, SendQueue

_INSTANCE = secrets.token_hex(8)


def hello(
    host: str, ip: str, nic: NicDriver, workers: pb.Workers | None, connects: Iterable[int] = ()
) -> pb.AgentMessage:
    """The first message of a session. `workers`: all that have joined; None: some may not yet have.
    `connects`: the IP protocols of which the agent steers connections.
    """
    return pb.AgentMessage(
        hello=pb.Hello(
            host=host,
            ip=ip,
            pinning=nic.pinning,
            dscp=nic.dscp,
            protocol=PROTOCOL,
            counts_bytes=True,
            mltcp=nic.mltcp,
            instance=_INSTANCE,
            workers=workers,
            connects=connects,
        )
    )


def joined_workers(joined: Iterable[tuple[str, int]]) -> pb.Workers:
    """The list of a host's workers, given job and rank of each."""
    return pb.Workers(workers=[pb.Worker(job=job, rank=rank) for job, rank in joined])


def flow_opened(nic: NicDriver, qp: SendQueue, source_port: int) -> pb.AgentMessage | None:
    """Source port and DSCP of an open queue pair; None if the controller's assignment alone decides them. The
    port is 0 if it is unknown here.
    """
    if nic.pinning != "none" and nic.dscp != "fixed":
        return None
    known = nic.sees_flows or nic.pinning != "none"
    opened = pb.FlowOpened(flow=qp.flow, source_port=source_port if known else 0, dscp=qp.dscp)
    return pb.AgentMessage(flow_opened=opened)


def flow_fallback(flow: str, source_port: int, why: str) -> pb.AgentMessage:
    """A flow goes by ECMP instead of by its pin for the reason `why`; with an empty reason it goes by its pin
    again.
    """
    said = pb.FlowFallback(flow=flow, on_ecmp=bool(why), source_port=source_port, why=why)
    return pb.AgentMessage(flow_fallback=said)


def job_join(spec: JobSpec, rank: int) -> pb.JobJoin:
    """The description of a job that each of its workers sends."""
    profile, sizes = spec.announced(), spec.flow_bytes()
    return pb.JobJoin(
        job=spec.name,
        model=spec.model,
        gpus=spec.gpus,
        hosts=spec.hosts,
        rank=rank,
        period_ns=profile.period_ns,
        phases=[pb.Phase(start_ns=p.start_ns, end_ns=p.end_ns, rate_bps=p.rate_bps) for p in profile.phases],
        flops_per_iteration=spec.flops_per_iteration,
        flows=[
            pb.FlowSpec(name=name, src=src, dst=dst, bytes_per_iteration=sizes[name])
            for name, src, dst in spec.flows()
        ],
        silent=spec.silent,
        pcie_link=spec.pcie.link if spec.pcie is not None else "",
        pcie_bps=spec.pcie.rate_bps if spec.pcie is not None else 0,
        sender=spec.sender,
    )


def iteration_report(
    record: IterationRecord, to_fabric: Callable[[int], int], error_ns: int
) -> pb.IterationReport:
    """A record in the host's times, as a report in fabric time, which the host knows to +- `error_ns`."""
    return pb.IterationReport(
        job=record.job,
        rank=record.rank,
        index=record.index,
        start_ns=max(0, to_fabric(record.start_ns)),
        end_ns=max(0, to_fabric(record.end_ns)),
        communication_ns=record.communication_ns,
        bytes_sent=record.bytes_sent,
        ecn_marks=record.ecn_marks,
        retransmits=record.retransmits,
        held_ns=record.held_ns,
        compute_ns=record.compute_ns,
        flops=record.flops,
        drift_ns=record.drift_ns,
        realigned=record.realigned,
        clock_error_ns=error_ns,
    )
