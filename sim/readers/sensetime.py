# SPDX-License-Identifier: Apache-2.0
"""The SenseTime workload of the Dally evaluation: a JSON list of jobs, figures as strings."""

from __future__ import annotations

import json
from pathlib import Path

from sim.cluster import JobRequest
from sim.models import data_parallel
from sim.readers.errors import Row, TraceError, read_text

KEYS = ("job_id", "model", "total_iterations", "time_per_iteration", "max_parallelism")


def read_sensetime(path: Path) -> list[JobRequest]:
    """The jobs of a file. `time_per_iteration` (s) is an iteration's compute and `total_iterations` are of
    one GPU: G GPUs run a G-th of them (Dally's ideal time). `arrival_time` (s) is 0 where it is missing.

    Raises:
        TraceError: names the entry (as row, from 1) and the key (as column).
    """
    text = read_text(path)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}: row {error.lineno}: not JSON: {error.msg}") from error
    except ValueError as error:
        # Python refuses whole numbers of thousands of digits.
        raise TraceError(f"{path}: not JSON: a number of too many digits; legal: at most 4300") from error
    except RecursionError as error:
        raise TraceError(f"{path}: not JSON: too many brackets in brackets; legal: [{{job}}, ...]") from error
    if not isinstance(data, list) or not data:
        raise TraceError(f"{path}: row 1: a list of jobs is needed; legal: [{{job}}, ...]")
    requests: dict[str, JobRequest] = {}
    for number, entry in enumerate(data, start=1):
        if not isinstance(entry, dict):
            raise TraceError(f"{path}: row {number}: a job is an object with {', '.join(KEYS)}")
        row = Row(path, number, {str(k): _cell(v) for k, v in entry.items()})
        missing = [key for key in KEYS if key not in entry]
        if missing:
            raise row.error(missing[0], f"is missing; needed: {', '.join(KEYS)}")
        model, gpus = row.text("model"), row.whole("max_parallelism", 1)
        name = f"job-{row.text('job_id')}"
        if name in requests:
            name = f"{name}-{number}"
        iteration_s = row.number("time_per_iteration", 1e-7, 1e6)
        requests[name] = JobRequest(
            name=name,
            model=model,
            arrival_ns=round(row.number("arrival_time") * 1e9) if "arrival_time" in entry else 0,
            gpus=gpus,
            iterations=max(1, round(row.number("total_iterations", 1) / gpus)),
            shape=data_parallel(model, iteration_s * 1e3),
            source=row.at("max_parallelism"),
        )
    return list(requests.values())


def _cell(value: object) -> str:
    """A value as a cell of a table: null, true, false, lists and objects are empty cells."""
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
