# SPDX-License-Identifier: Apache-2.0
"""Emulated training on a real host: the workers that agent.toml names, and their records."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TextIO

from hostagent.agent import Agent
from hostagent.emulated_worker import EmulatedWorker
from hostagent.host import JOIN_LEAD_NS
from hostagent.job import IterationRecord, JobSpec, jittered_start
from hostagent.loop import AgentLoop
from hostagent.nic.driver import NicDriver
from hostagent.nic.emulated import EmulatedNic
from hostagent.pcie_transfer import PcieTransfer, SharedPcieTransfer
from hostagent.training_config import TrainingJob, TrainingSettings
from polyrhythm_files import InvalidValueError

log = logging.getLogger(__name__)

START_DELAY_NS = 1_000_000_000
"""When a job without a start time starts, after the agent. Chosen: agents of all hosts are then connected."""
_START_POLL_NS = 20_000_000
"""How often the file with the start time is looked for. Chosen."""


class EmulatedTraining:
    """The emulated workers of one host, on all its NICs.

    A record is written when its iteration ends, as a whole line, so that other programs can read the file
    meanwhile. Raises InvalidValueError for a file that cannot be written, or a job that cannot run here.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        agents: Iterable[tuple[Agent, NicDriver]],
        loop: AgentLoop,
        payload_bps: int,
    ) -> None:
        """`agents`: those of the host's NICs. `payload_bps` is what a NIC of the jobs carries at line rate,
        without headers."""
        self._agents = {agent.host: (agent, nic) for agent, nic in agents}
        self._payload_bps = payload_bps
        self._loop = loop
        self._seed = settings.seed
        self.workers: list[EmulatedWorker] = []
        self._records = _open("records", settings.records)
        self._moves = _open("moves", settings.moves)
        self._waiting: list[tuple[EmulatedWorker, int, int]] = []
        for job in settings.jobs:
            self._add(job, 0 if job.start_ns or settings.start else self._loop.now + START_DELAY_NS)
        if settings.start:
            self._wait_for(Path(settings.start))
        else:
            self._begin(0)

    @property
    def finished(self) -> bool:
        """Whether there are workers and all have ended."""
        return bool(self.workers) and all(worker.done for worker in self.workers)

    def stop(self) -> None:
        """End every worker, report that to the controller, and close the files."""
        not_begun = [worker for worker, _, _ in self._waiting]
        for worker in self.workers:
            if worker not in not_begun:
                worker.stop()
        for file in (self._records, self._moves):
            if file is not None:
                file.close()

    def assigned(self, flow: str, source_port: int, dscp: int) -> None:
        """The controller has assigned a source port and a DSCP to a flow: write it to the file of moves."""
        if self._moves is not None:
            move = {"flow": flow, "source_port": source_port, "dscp": dscp, "heard_ns": self._loop.now}
            self._moves.write(json.dumps(move) + "\n")

    def _wait_for(self, file: Path) -> None:
        """Begin when the file says the time. A line without its end is still being written."""
        try:
            text = file.read_text(encoding="utf-8")
        except OSError:
            text = ""
        if text.endswith("\n") and text.strip().isdecimal():
            self._begin(int(text))
        else:
            self._loop.timer(_START_POLL_NS, self._wait_for, file)

    def _begin(self, origin_ns: int) -> None:
        """Announce and start the workers, at times that count from `origin_ns`. End those that leave."""
        waiting, self._waiting = self._waiting, []
        for worker, join_ns, stop_ns in waiting:
            worker.start_ns += origin_ns
            agent, _ = self._agents[worker.spec.hosts[worker.rank]]
            agent.add_worker(worker, origin_ns + join_ns)
            if stop_ns:
                self._loop.call_at(origin_ns + stop_ns, worker.stop)

    def _add(self, job: TrainingJob, origin_ns: int) -> None:
        """Make the workers of a job. Its start counts from `origin_ns`."""
        spec = job.spec(self._payload_bps)
        start = origin_ns + job.start_ns
        for rank, host in enumerate(spec.hosts):
            if host not in self._agents:
                continue
            agent, nic = self._agents[host]
            jitter = jittered_start(self._seed, spec.name, rank, job.start_jitter_ns)
            if any(made.spec.name == spec.name and made.rank == rank for made in self.workers):
                raise InvalidValueError(
                    ("training", "jobs"), f"job {spec.name}: rank {rank} runs already on {host}"
                )
            try:
                worker = EmulatedWorker(
                    spec, rank, self._loop, start + jitter, job.iterations,
                    on_iteration=partial(self._iteration, agent), on_done=agent.job_left, seed=self._seed,
                    copier=self._copier(spec),
                )  # fmt: skip
                agent.check_worker(worker)
            except ValueError as error:
                raise InvalidValueError(("training", "jobs"), str(error)) from None
            if isinstance(nic, EmulatedNic) and spec.increase_timer != 1.0:
                nic.set_increase_timer(spec.name, spec.increase_timer)
            self.workers.append(worker)
            self._waiting.append((worker, start - JOIN_LEAD_NS, job.stop_ns))

    def _copier(self, spec: JobSpec) -> PcieTransfer | None:
        if spec.pcie is None:
            return None
        try:
            return SharedPcieTransfer(spec.pcie.link, spec.pcie.rate_bps, self._loop)
        except OSError as error:
            raise InvalidValueError(
                ("training", "jobs"),
                f"{spec.name}: PCIe link {spec.pcie.link}: {error.filename}: {error.strerror}",
            ) from None

    def _iteration(self, agent: Agent, record: IterationRecord) -> None:
        agent.report(record)
        if self._records is not None:
            self._records.write(json.dumps(dataclasses.asdict(record)) + "\n")


def _open(key: str, path: str) -> TextIO | None:
    if not path:
        return None
    try:
        return Path(path).open("w", encoding="utf-8", buffering=1)
    except OSError as error:
        raise InvalidValueError(("training", key), f"{path}: {error.strerror}") from None
