# SPDX-License-Identifier: Apache-2.0
"""The descriptions of jobs that agents have sent last.

Every worker of a job sends the whole description, which may name 65,536 flows. It is translated once, and the
workers that follow cost little more than reading their messages.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

from controller.agents.translate import MessageError, check_size, described_job
from controller.model.job import Job
from controller.wire import agent_pb2 as wire

LONG = 256
"""With more flows and hosts, a description is translated in a thread, so that no agent waits for it. Chosen:
it takes less than a millisecond."""
MOST_FLOWS = 1 << 17
"""How many flows of descriptions are kept. Chosen: those of the two largest jobs."""


class JobDescriptions:
    """Translates descriptions of jobs. It may be used by several threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Job | str] = OrderedDict()
        self._lock = threading.Lock()
        self._flows = 0

    def job(self, join: wire.JobJoin) -> Job | str:
        """The job, the same object for equal descriptions, or in words why its description is refused.

        The rank of the worker does not count.
        """
        try:
            check_size(join)
        except MessageError as error:
            return str(error)
        rank, join.rank = join.rank, 0
        digest = hashlib.blake2b(join.SerializeToString(deterministic=True), digest_size=32).digest()
        join.rank = rank
        with self._lock:
            known = self._known.get(digest)
            if known is not None:
                self._known.move_to_end(digest)
                return known
        try:
            known = described_job(join)
        except MessageError as error:
            known = str(error)
        with self._lock:
            if digest in self._known:
                return self._known[digest]
            self._known[digest] = known
            self._flows += _size(known)
            while self._flows > MOST_FLOWS and len(self._known) > 1:
                self._flows -= _size(self._known.popitem(last=False)[1])
        return known


def accepted(found: Job | str) -> Job:
    """The job that `JobDescriptions.job` has found. Raises MessageError if its description is refused."""
    if isinstance(found, str):
        raise MessageError(found)
    return found


def _size(known: Job | str) -> int:
    """How much a description counts: its flows and hosts, and something for one without any."""
    return len(known.flows) + len(known.hosts) + 1 if isinstance(known, Job) else 1
