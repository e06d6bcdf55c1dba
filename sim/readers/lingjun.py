# SPDX-License-Identifier: Apache-2.0
"""The Lingjun (CRUX) data set: its jobs, a snapshot and the mix of models (`topo.lingjun`: its fabric)."""

from __future__ import annotations

from pathlib import Path
from random import Random

from sim.cluster import JobRequest
from sim.models import data_parallel, model_named
from sim.readers.errors import TraceError, rows

SNAPSHOT_COLUMNS = ("job_id", "model", "gmt_job_running", "gmt_job_finished", "total_gpu")
JOB_COLUMNS = ("job_name", "model", "gmt_job_running", "gmt_job_finished")
WORKER_COLUMNS = ("job_name", "host_ip", "RES")

_MOST_DIGITS = 9


def read_snapshot(path: Path) -> list[JobRequest]:
    """The jobs that ran at once, all at time 0, for as long as they ran. The collective columns are
    synthetic and not read.

    Raises:
        TraceError: names the row and the column.
    """
    requests = []
    for row in rows(path, SNAPSHOT_COLUMNS):
        length = row.moment("gmt_job_finished") - row.moment("gmt_job_running")
        if length <= 0:
            raise row.error("gmt_job_finished", "is not after gmt_job_running")
        requests.append(
            _request(
                row.text("job_id"),
                row.text("model"),
                0.0,
                row.whole("total_gpu", 1),
                length,
                row.at("total_gpu"),
            )
        )
    if not requests:
        raise TraceError(f"{path}: it holds no jobs")
    return requests


def read_lingjun_jobs(jobs: Path, workers: Path) -> list[JobRequest]:
    """The two weeks of `job.csv` and `worker.csv`: a job's GPUs are the sum over its workers' RES, which
    says "...gpu=8..." or a number. Jobs without GPUs are left out; times count from the first.

    Raises:
        TraceError: names the row and the column.
    """
    gpus: dict[str, int] = {}
    for row in rows(workers, WORKER_COLUMNS):
        name, text = row.text("job_name"), row.text("RES").lower()
        _, marked, tail = text.partition("gpu")
        digits = "".join(c if c.isdecimal() else " " for c in (tail if marked else text)).split()
        if not digits or len(digits[0]) > _MOST_DIGITS:
            raise row.error("RES", f"{text[:40]!r} holds no number of GPUs; legal: cpu=8,gpu=8 or 8")
        gpus[name] = gpus.get(name, 0) + int(digits[0])
    found = []
    for row in rows(jobs, JOB_COLUMNS):
        name, start = row.text("job_name"), row.moment("gmt_job_running")
        length = row.moment("gmt_job_finished") - start
        if length < 0:
            raise row.error("gmt_job_finished", "is before gmt_job_running")
        if gpus.get(name) and length:
            found.append((name, row.text("model"), start, gpus[name], length, row.at("job_name")))
    if not found:
        raise TraceError(f"{jobs}: no job of it has GPUs in {workers}")
    first = min(job[2] for job in found)
    return [
        _request(name, model, start - first, n, length, source)
        for name, model, start, n, length, source in found
    ]


def read_model_mix(path: Path, jobs: int, seed: int, *, horizon_s: float, hours: float) -> list[JobRequest]:
    """`jobs` jobs drawn from the (model, total_gpu) pairs of a file, Poisson over `horizon_s`, `hours` long
    each; rows without GPUs are left out.

    Raises:
        TraceError: names the row and the column.
    """
    pairs = [
        (row.text("model"), gpus, row.at("total_gpu"))
        for row in rows(path, ("model", "total_gpu"))
        if (gpus := row.whole("total_gpu"))
    ]
    if not pairs:
        raise TraceError(f"{path}: no row has GPUs")
    random = Random(f"{seed}/mix")
    at, requests = 0.0, []
    for i in range(jobs):
        at += random.expovariate(jobs / horizon_s)
        model, gpus, source = random.choice(pairs)
        requests.append(_request(str(i), model, at, gpus, hours * 3600, source))
    return requests


def _request(name: str, model: str, arrival_s: float, gpus: int, length_s: float, source: str) -> JobRequest:
    compute_ms = model_named(model).compute_ms
    return JobRequest(
        name=f"job-{name}",
        model=model,
        arrival_ns=round(arrival_s * 1e9),
        gpus=gpus,
        iterations=max(1, round(length_s * 1e3 / compute_ms)),
        shape=data_parallel(model),
        source=source,
    )
