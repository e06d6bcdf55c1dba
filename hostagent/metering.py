# SPDX-License-Identifier: Apache-2.0
"""Which jobs of a host are being measured: a sampler for each worker whose job the controller asks about."""

from __future__ import annotations

from collections.abc import Callable

from controller.wire import agent_pb2 as pb
from hostagent.clock import EventClock
from hostagent.counts import ByteSampler, ByteSource, Counts
from hostagent.fabric_time import FabricTime
from hostagent.worker import Worker


class Metering:
    """Keeps the controller's requests, and the samplers that answer them.

    `profiled` are the jobs here that have had their turn alone. `send(counts)` takes each report.
    `byte_source(job)` gives another source of a job's bytes than the
    one that comes with its worker.
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

    def request(self, said: pb.MeasureRequest) -> None:
        """Measure a job from now on, or no more."""
        if said.profiling:
            self._profiling.add(said.job)
        elif said.job in self._profiling:
            self._profiling.discard(said.job)
            self.profiled.add(said.job)
        if said.bin_ns:
            self._requests[said.job] = said
        else:
            self._requests.pop(said.job, None)
        for key in [key for key in self._workers if key[0] == said.job]:
            self._sample(key)

    def joined(self, trainer: Worker, source: ByteSource) -> None:
        """A worker is there; `source` reads its flows."""
        key = (trainer.spec.name, trainer.rank)
        if self._byte_source is not None:
            source = self._byte_source(trainer.spec.name)
        self._workers[key] = (trainer, source)
        self._sample(key)

    def left(self, trainer: Worker) -> None:
        """A worker is gone; with the last one of its job goes what was asked about it."""
        job = trainer.spec.name
        self._stop((job, trainer.rank))
        self._workers.pop((job, trainer.rank), None)
        if all(name != job for name, _ in self._workers):
            self._requests.pop(job, None)
            self._profiling.discard(job)
            self.profiled.discard(job)

    def clear(self) -> None:
        """Nobody asks any more: the session is gone."""
        self._requests.clear()
        for key in list(self._samplers):
            self._stop(key)

    def _stop(self, key: tuple[str, int]) -> None:
        sampler = self._samplers.pop(key, None)
        if sampler is not None:
            sampler.stop()

    def _sample(self, key: tuple[str, int]) -> None:
        self._stop(key)
        asked = self._requests.get(key[0])
        if asked is None:
            return
        trainer, source = self._workers[key]
        self._samplers[key] = ByteSampler(
            self._clock,
            source,
            lambda: trainer.flops,
            bin_ns=asked.bin_ns,
            report_ns=asked.report_ns,
            to_fabric=self._time.to_fabric,
            to_local=self._time.to_local,
            on_counts=lambda counts: self._counted(key, counts),
        )

    def _counted(self, key: tuple[str, int], counts: Counts) -> None:
        flows = [pb.FlowBytes(flow=flow, bytes=sent) for flow, sent in counts.flows.items()]
        said = pb.ByteCounts(
            job=key[0],
            rank=key[1],
            start_ns=max(0, counts.start_ns),
            bin_ns=counts.bin_ns,
            flows=flows,
            flops=counts.flops,
        )
        self._send(said)
