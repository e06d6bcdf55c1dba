# SPDX-License-Identifier: Apache-2.0
"""What hosts send into the fabric, from their workers' iteration reports: no switch counts it coming in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.live.iterations import SILENT_ITERATIONS
from controller.live.messages import IterationReport
from controller.live.notices import IterationDone, JobLeft, Notice

# A report says nothing about a later time than this after its end, in ns, or than SILENT_ITERATIONS of its
# iterations. Chosen: as for silent jobs.
_STALE_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Sent:
    """A worker's mean rate over its last iteration; None: its agent does not know it."""

    until_ns: int
    rate_bps: float | None


class HostUplinks:
    """The mean rate of every host over the last iteration of each of its workers."""

    def __init__(self) -> None:
        self._sent: dict[str, dict[tuple[str, int], _Sent]] = {}

    def noticed(self, notice: Notice) -> None:
        """Take up a report, or forget a job that has left."""
        match notice:
            case IterationDone(iteration=report):
                self._add(report)
            case JobLeft(job=job):
                for host in set(job.hosts):
                    workers = self._sent.get(host, {})
                    for key in [key for key in workers if key[0] == job.name]:
                        del workers[key]

    def _add(self, report: IterationReport) -> None:
        length_ns = report.end_ns - report.start_ns
        if length_ns <= 0:
            return
        # An agent that sees communication, but no bytes, does not count them.
        known = report.bytes_sent > 0 or report.communication_ns == 0
        until_ns = report.end_ns + max(_STALE_NS, SILENT_ITERATIONS * length_ns)
        sent = _Sent(until_ns, report.bytes_sent * 8e9 / length_ns if known else None)
        self._sent.setdefault(report.host, {})[report.job, report.rank] = sent

    def rates(self, now_ns: int) -> Mapping[str, float]:
        """The rate of each host that is known, in bit/s, payload only."""
        found = {}
        for host, workers in self._sent.items():
            rates = [sent.rate_bps for sent in workers.values() if sent.until_ns >= now_ns]
            known = [rate for rate in rates if rate is not None]
            if rates and len(known) == len(rates):
                found[host] = sum(known)
        return found
