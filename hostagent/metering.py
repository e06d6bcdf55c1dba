# SPDX-License-Identifier: Apache-2.0
"""Byte counts for the controller: a sampler for each worker of a job that the controller wants measured."""

from __future__ import annotations

from collections.abc import Callable

from controller.wire import agent_pb2 as pb
from hostagent.clock import EventClock
from hostagent.counts import ByteSampler, ByteSource, Counts
from hostagent.fabric_time import FabricTime
from hostagent.worker import Worker


class Metering:
    """The controller's requests to measure jobs, and the samplers that answer them.

    `profiled`: the jobs here that have been profiled in the profiling queue. `send(counts)` takes each
    report. `byte_source(job)` replaces the source of a job's bytes that comes with its worker.
    """

    def __init__(
        self,
        clock: EventClock,
        time: FabricTime,
        send: Callable[[pb.ByteCounts], None],
        byte_source: Callable[[str], ByteSource] | None,
    ) -> None:
        self._clock = clock
        self._time = time
        self._send = send
        self._byte_source = byte_source
        self._requests: dict[str, pb.MeasureRequest] = {}
        self._profiling: set[str] = set()
        self.profiled: set[str] = set()
        self._workers: dict[tuple[str, int], tuple[Worker, ByteSource]] = {}
        self._samplers: dict[tuple[str, int], ByteSampler] = {}

    def request(self, request: pb.MeasureRequest) -> None:
        """Begin or end to measure a job."""
        if request.profiling:
            self._profiling.add(request.job)
        elif request.job in self._profiling:
            self._profiling.discard(request.job)
            self.profiled.add(request.job)
        if request.bin_ns:
            self._requests[request.job] = request
        else:
            self._requests.pop(request.job, None)
        for key in [key for key in self._workers if key[0] == request.job]:
            self._sample(key)

    def joined(self, worker: Worker, source: ByteSource) -> None:
        """A worker has joined; `source` reads the bytes of its flows."""
        key = (worker.spec.name, worker.rank)
        if self._byte_source is not None:
            source = self._byte_source(worker.spec.name)
        self._workers[key] = (worker, source)
        self._sample(key)

    def left(self, worker: Worker) -> None:
        """A worker has ended. With the last worker of a job the requests for the job are dropped."""
        job = worker.spec.name
        self._stop((job, worker.rank))
        self._workers.pop((job, worker.rank), None)
        if all(name != job for name, _ in self._workers):
            self._requests.pop(job, None)
            self._profiling.discard(job)
            self.profiled.discard(job)

    def clear(self) -> None:
        """Drop all requests: the session has ended."""
        self._requests.clear()
        for key in list(self._samplers):
            self._stop(key)

    def _stop(self, key: tuple[str, int]) -> None:
        sampler = self._samplers.pop(key, None)
        if sampler is not None:
            sampler.stop()

    def _sample(self, key: tuple[str, int]) -> None:
        self._stop(key)
        request = self._requests.get(key[0])
        if request is None:
            return
        worker, source = self._workers[key]
        self._samplers[key] = ByteSampler(
            self._clock,
            source,
            lambda: worker.flops,
            bin_ns=request.bin_ns,
            report_ns=request.report_ns,
            to_fabric=self._time.to_fabric,
            to_local=self._time.to_local,
            on_counts=lambda counts: self._counted(key, counts),
        )

    def _counted(self, key: tuple[str, int], counts: Counts) -> None:
        flows = [pb.FlowBytes(flow=flow, bytes=sent) for flow, sent in counts.flows.items()]
        request = pb.ByteCounts(
            job=key[0],
            rank=key[1],
            start_ns=max(0, counts.start_ns),
            bin_ns=counts.bin_ns,
            flows=flows,
            flops=counts.flops,
        )
        self._send(request)
