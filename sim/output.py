# SPDX-License-Identifier: Apache-2.0
"""The output of a simulation: a summary, and tables of jobs, iterations, flows, links and samples.

All output follows from the inputs, the seed and the named versions: the same seed gives the same bytes.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from sim.simulation import Simulation
from sim.state import JobOutcome
from sim.units import seconds

Table = tuple[tuple[str, ...], list[tuple[Any, ...]]]


MARKED = 0.45


@dataclass(frozen=True, slots=True)
class MarkEstimate:
    """How ECN marks are estimated: of the packets that a flow sends while a switch port holds it back, the
    part `probability` is marked.

    The default was measured in the embedded fabric with its default ramp (20 to 60 packets, 0.2) under DCQCN,
    whose queues swing beyond the ramp: 0.39 to 0.50 over its scenarios.
    """

    packet_bits: float = 8 * 1082
    probability: float = MARKED


def versions() -> dict[str, str]:
    """The versions that the figures depend on; "" for a package that is not installed."""
    found = {}
    for name in ("polyrhythm", "numpy", "numba"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found


def percentile_ps(lengths: Mapping[int, int], part: float) -> int | None:
    """The shortest length that at least `part` of the iterations do not exceed; None if none is known."""
    wanted, seen = part * sum(lengths.values()), 0
    for length, times in sorted(lengths.items()):
        seen += times
        if seen >= wanted:
            return length
    return None


def summary(simulation: Simulation) -> dict[str, Any]:
    """All figures of a simulation as one JSON object."""
    outcomes = list(simulation.memory.outcomes.values())
    done = [o for o in outcomes if o.ended >= 0]
    completion = [seconds(o.ended) - o.request.arrival_ns / 1e9 for o in done]
    elapsed = sum(o.total * o.request.gpus for o in outcomes)
    computed = sum(o.iterations * o.request.shape.compute_ns * 1000 * o.request.gpus for o in outcomes)
    ends = [o.ended for o in done]
    return {
        "policy": simulation.settings.policy,
        "seed": simulation.settings.seed,
        "versions": versions(),
        "settings": asdict(simulation.settings),
        "jobs": len(simulation.requests),
        "finished": len(done),
        "unfinished": len(simulation.requests) - len(done),
        "mean_completion_s": float(np.mean(completion)) if completion else None,
        "p99_completion_s": float(np.percentile(completion, 99)) if completion else None,
        "makespan_s": seconds(max(ends)) if ends else None,
        "gpu_utilisation": computed / elapsed if elapsed else None,
        "mean_slowdown": float(np.mean([o.total / o.iterations / o.ideal for o in done])) if done else None,
        "iterations": sum(o.iterations for o in outcomes),
        "iterations_skipped": simulation.memory.skipped,
        "events": simulation.memory.events,
    }


def job_rows(simulation: Simulation, marking: MarkEstimate) -> Table:
    """One row per job, in order of arrival."""
    columns = (
        "job", "model", "gpus", "hosts", "arrival_s", "started_s", "ended_s", "waited_s", "preempted",
        "iterations", "ideal_iteration_ms", "mean_iteration_ms", "p99_iteration_ms", "max_iteration_ms",
        "held_s", "ecn_marks_per_iteration",
    )  # fmt: skip
    rows = []
    for request in simulation.requests:
        o = simulation.memory.outcomes.get(request.name)
        if o is None:
            row = (request.name, request.model, request.gpus, "", request.arrival_ns / 1e9)
            rows.append((*row, *([None] * (len(columns) - len(row)))))
            continue
        p99 = percentile_ps(o.lengths, 0.99)
        rows.append(
            (
                request.name, request.model, request.gpus, " ".join(o.hosts), request.arrival_ns / 1e9,
                seconds(o.started), seconds(o.ended) if o.ended >= 0 else None, seconds(o.waited),
                o.preempted, o.iterations, o.ideal / 1e9,
                o.total / o.iterations / 1e9 if o.iterations else None,
                p99 / 1e9 if p99 is not None else None, o.longest / 1e9, seconds(o.slot_wait),
                _marks(o, marking),
            )
        )  # fmt: skip
    return columns, rows


def _marks(outcome: JobOutcome, marking: MarkEstimate) -> float | None:
    if not outcome.iterations:
        return None
    congested = sum(flow[4] for flow in outcome.flows)
    return congested / marking.packet_bits * marking.probability / outcome.iterations


def flow_rows(simulation: Simulation, marking: MarkEstimate) -> Table:
    """One row per queue pair, since its job's last start."""
    columns = ("flow", "job", "src", "dst", "bytes", "bytes_held_back", "ecn_marks")
    return columns, [
        (flow, name, src, dst, sent / 8, congested / 8, congested / marking.packet_bits * marking.probability)
        for name, outcome in simulation.memory.outcomes.items()
        for flow, src, dst, sent, congested in outcome.flows
    ]


def link_rows(simulation: Simulation) -> Table:
    """One row per directed link and sample: the share of its capacity that was used, and the mean GPU
    intensity of the jobs that used it. Without samples, one row per link over the whole time."""
    columns = ("link_from", "link_to", "until_s", "bytes", "utilisation", "gpu_intensity")
    memory, network = simulation.memory, simulation.cluster.network
    spans = [(s.at, s.bits, s.intensity) for s in memory.samples]
    spans = spans or [(memory.now, memory.bits, memory.intensity)]
    rows: list[tuple[Any, ...]] = []
    before = 0
    for at, bits, weighted in spans:
        lasted = max(seconds(at - before), 1e-12)
        for i in np.flatnonzero(bits):
            used = float(bits[i] / lasted / network.capacity[i])
            intensity = float(weighted[i] / bits[i])
            rows.append((*network.names[i], seconds(at), float(bits[i]) / 8, used, intensity))
        before = at
    return columns, rows


def sample_rows(simulation: Simulation) -> Table:
    """One row per sample of the cluster."""
    columns = ("at_s", "gpus_given", "gpus_computing", "jobs_running", "jobs_waiting")
    return columns, [
        (seconds(s.at), s.gpus, s.computing, s.running, s.waiting) for s in simulation.memory.samples
    ]


def write_tables(simulation: Simulation, out: Path, marking: MarkEstimate) -> list[Path]:
    """CSV of every table in `out`, and Parquet where pyarrow is installed; returns the files."""
    written = []
    for name, (columns, rows) in {
        "jobs": job_rows(simulation, marking),
        "flows": flow_rows(simulation, marking),
        "links": link_rows(simulation),
        "samples": sample_rows(simulation),
    }.items():
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        written.append(out / f"{name}.csv")
        replace_file(written[-1], text.getvalue().encode())
        if parquet_available():
            written.append(out / f"{name}.parquet")
            write_parquet(written[-1], columns, rows)
    return written


def parquet_available() -> bool:
    """Whether pyarrow, an optional extra, is installed."""
    return find_spec("pyarrow") is not None


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    beside = path.with_name(path.name + ".part")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    except OSError:
        # On a full disk a part of it would only take room.
        beside.unlink(missing_ok=True)
        raise


def write_parquet(path: Path, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Write a table as Parquet, whole or not at all. A column without any value holds floats."""
    import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import pyarrow.parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]

    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    table = pyarrow.table(
        {
            c: pyarrow.array(v, type=None if any(x is not None for x in v) else pyarrow.float64())
            for c, v in zip(columns, values, strict=True)
        }
    )
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    replace_file(path, buffer.getvalue())
