# SPDX-License-Identifier: Apache-2.0
"""The training processes of `polyrhythm chaos`: a thread for each worker of each job, with the job library.

`python -m polyrhythm.chaos.trainers JOBS` takes the jobs as JSON: name -> host -> path of the agent's socket.
For each line that it reads it prints one line of JSON, with what happened since the last one:

- `answers_ms`: the times of `flow()` that an agent answered; `alone`: how many were answered without one.
- `longest_call_ms`: by worker, the longest call of `flow()`, or of `step()` beyond the job's period.
- `placements`: the last source port and DSCP of each flow.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import defaultdict
from typing import Any

from polyrhythm_job.job import polyrhythm_job

PERIOD_MS = 100.0
# Questions about new flows in each iteration of a worker.
_QUESTIONS = 2
_BYTES = 1 << 30


class _Results:
    """What the workers have seen since the last report."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._placements: dict[str, tuple[int, int]] = {}
        self._clear()

    def _clear(self) -> None:
        self._answers_ms: list[float] = []
        self._alone = 0
        self._longest_ms: dict[str, float] = defaultdict(float)

    def answered(self, worker: str, flow: str, took_ms: float, by: str, port: int, dscp: int) -> None:
        with self._lock:
            if by == "nobody":
                self._alone += 1
            else:
                self._answers_ms.append(took_ms)
                self._placements[flow] = (port, dscp)
            self._longest_ms[worker] = max(self._longest_ms[worker], took_ms)

    def waited(self, worker: str, took_ms: float) -> None:
        with self._lock:
            self._longest_ms[worker] = max(self._longest_ms[worker], took_ms - PERIOD_MS)

    def report(self) -> dict[str, Any]:
        with self._lock:
            found = {
                "answers_ms": self._answers_ms,
                "alone": self._alone,
                "longest_call_ms": dict(self._longest_ms),
                "placements": dict(self._placements),
            }
            self._clear()
        return found


def _train(name: str, hosts: list[str], rank: int, agent: str, results: _Results) -> None:
    host, peer = hosts[rank], hosts[(rank + 1) % len(hosts)]
    worker, flow = f"{name}/{rank}", f"{name}/{host}>{peer}"
    job = polyrhythm_job(
        name,
        hosts,
        rank=rank,
        model="chaos",
        gpus=len(hosts),
        flops_per_iteration=1e12,
        bytes_per_flow=_BYTES,
        period_ms=PERIOD_MS,
        phases_ms=[(0.0, PERIOD_MS / 4)],
        agent=agent,
    )
    with job:
        while True:
            for _ in range(_QUESTIONS):
                time.sleep(PERIOD_MS / 1e3 / (_QUESTIONS + 1))
                began = time.monotonic()
                answer = job.flow(flow, _BYTES)
                took_ms = 1e3 * (time.monotonic() - began)
                results.answered(worker, flow, took_ms, answer.by, answer.source_port, answer.dscp)
                job.end_flow(flow)
            began = time.monotonic()
            job.step()
            results.waited(worker, 1e3 * (time.monotonic() - began))


def main(jobs: dict[str, dict[str, str]]) -> None:
    """Train until the input is closed."""
    # The library warns of each agent that has ended; here they end all the time.
    logging.disable(logging.WARNING)
    results = _Results()
    for name, sockets in jobs.items():
        for rank, agent in enumerate(sockets.values()):
            arguments = (name, list(sockets), rank, agent, results)
            threading.Thread(target=_train, args=arguments, daemon=True).start()
    for _ in sys.stdin:
        print(json.dumps(results.report()), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
