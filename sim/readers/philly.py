# SPDX-License-Identifier: Apache-2.0
"""Muri's form of the Philly traces: one job a row, times in ms."""

from __future__ import annotations

from pathlib import Path

from sim.cluster import JobRequest
from sim.models import data_parallel
from sim.readers.errors import TraceError, rows

COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time")


def read_philly(path: Path) -> list[JobRequest]:
    """The jobs of a file with the columns COLUMNS. `iteration_time` (ms) is taken as compute; what is
    sent follows from the model.

    Raises:
        TraceError: names the row and the column.
    """
    requests: dict[str, JobRequest] = {}
    for row in rows(path, COLUMNS):
        name = f"job-{row.text('job_id')}"
        if name in requests:
            raise row.error("job_id", f"{row.text('job_id')} is listed twice")
        model = row.text("model_name")
        requests[name] = JobRequest(
            name=name,
            model=model,
            arrival_ns=round(row.number("submit_time", most=1e12) * 1e6),
            gpus=row.whole("num_gpu", 1),
            iterations=row.whole("iterations", 1),
            shape=data_parallel(model, row.number("iteration_time", 1e-3, 1e9)),
            source=row.at("num_gpu"),
        )
    if not requests:
        raise TraceError(f"{path}: it holds no jobs")
    return list(requests.values())
