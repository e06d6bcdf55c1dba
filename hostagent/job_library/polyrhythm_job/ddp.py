# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel: its all-reduces mark the Up phases of the job by themselves.

Needs torch, which only this module imports.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from polyrhythm_job.job import polyrhythm_job

Hook = Callable[[Any, Any], Any]


def mark_communication(
    job: polyrhythm_job,
    model: DistributedDataParallel,
    hook: Hook = allreduce_hook,
    state: Any = None,
) -> None:
    """Register `hook` as the communication hook of `model`, and mark as an Up phase of `job` each stretch of
    time in which some bucket of gradients is under way.

    `hook(state, bucket)` returns a future, as in DistributedDataParallel.register_comm_hook; the default
    averages gradients as a model without a hook does. Call this once, before the first backward pass. It
    marks gradients in the memory of the host (gloo). With CUDA a future is ready when the work is queued and
    not when it is done, so nothing is marked; use `job.communicating()` around what is synchronised.
    """
    marks = _BucketMarks(job)

    def marked(hook_state: Any, bucket: Any) -> Any:
        if bucket.buffer().is_cuda:
            return hook(hook_state, bucket)
        marks.begin()
        try:
            future = hook(hook_state, bucket)
        except BaseException:
            marks.end()
            raise
        return future.then(done)

    def done(future: Future[Any]) -> Any:
        marks.end()
        return future.value()

    # torch checks the annotations of the bucket and of what is returned, if there are any.
    marked.__annotations__ = {}
    model.register_comm_hook(state, marked)


class _BucketMarks:
    """Joins the times of buckets that overlap. Futures end on threads of the backend."""

    def __init__(self, job: polyrhythm_job) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._open = 0
        self._began_ns = 0

    def begin(self) -> None:
        """A bucket is sent."""
        with self._lock:
            if not self._open:
                self._began_ns = time.monotonic_ns()
            self._open += 1

    def end(self) -> None:
        """A bucket has arrived."""
        with self._lock:
            self._open -= 1
            if not self._open:
                self._job.mark(self._began_ns, time.monotonic_ns())
