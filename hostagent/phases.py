# SPDX-License-Identifier: Apache-2.0
"""Period and Up phases of a job from what was recorded of it, without its cooperation.

Three sources: the lines of NCCL's inspector (a JSON object for each collective, with its end and length),
the trace of NCCL's example profiler (Chrome's trace format), and readings of `port_xmit_data` (lines
`time_ns,value`). The period is where the record resembles itself shifted (CRUX, section 5, takes Fourier's
transform of the same; the autocorrelation has no leakage from a window that is no whole number of periods).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from pathlib import Path
from typing import Any

from hostagent.counts import OCTETS
from hostagent.declared import ConfigError

_LONGEST_RECORD = 4096
"""Bins a record is searched in; longer ones get coarser bins."""
_LIKE = 0.8
"""A shift counts as the period from this part of the best likeness on: of its multiples, the shortest."""
_UP = 0.4
"""A bin of the folded period is Up from this part of the fullest bin on."""
_EVENTS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AllToAll", "Send", "Recv")


@dataclass(frozen=True, slots=True)
class Busy:
    """A stretch of communication: bytes from `start_ns` to `end_ns`, evenly."""

    start_ns: int
    end_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class Folded:
    """A period, and its Up phases (start, end) in ns from the first one's start."""

    period_ns: int
    phases: tuple[tuple[int, int], ...]


def profile_files(paths: Sequence[Path]) -> dict[str, Any]:
    """Period and phases of a job from files of one kind, as `polyrhythm_job` takes them.

    Raises ConfigError for a file that is none of the three kinds, or shows no period.
    """
    busy: list[Busy] = []
    for path in paths:
        try:
            busy += read_record(path.read_text(encoding="utf-8", errors="replace"))
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
    try:
        found = fold(busy)
    except ValueError as error:
        raise ConfigError(f"{', '.join(map(str, paths))}: {error}") from None
    phases = [[start / 1e6, end / 1e6] for start, end in found.phases]
    return {"period_ms": found.period_ns / 1e6, "phases_ms": phases}


def read_record(text: str) -> list[Busy]:
    """The communication that a record shows. Raises ValueError, with the line, for what is no record."""
    head = text.lstrip()[:1]
    if head == "[":
        return _trace(text)
    if head == "{":
        return [b for n, line in enumerate(text.splitlines(), 1) if line.strip() for b in _inspector(line, n)]
    return _counters(text)


def fold(busy: Sequence[Busy]) -> Folded:
    """The period of a record, and where in it the job communicates. Raises ValueError if there is none."""
    if len(busy) < 2:
        raise ValueError("a period needs at least two stretches of communication")
    first, last = min(b.start_ns for b in busy), max(b.end_ns for b in busy)
    bin_ns = max(1, -(-(last - first) // _LONGEST_RECORD))
    bins = _bins(busy, first, bin_ns, (last - first) // bin_ns + 1)
    period = _period(bins)
    shift = max(1, round(period))
    folded = _folded(bins, period, shift)
    least = _UP * max(folded)
    up = [value >= least for value in folded]
    if all(up):
        return Folded(round(period * bin_ns), ((0, round(period * bin_ns)),))
    # Time 0 is the start of the first Up phase after the longest Down phase.
    starts = [i for i in range(shift) if up[i] and not up[i - 1]]
    start = max(starts, key=lambda i: next(d for d in range(1, shift + 1) if up[i - d]))
    phases: list[tuple[int, int]] = []
    for offset in range(shift):
        if up[(start + offset) % shift]:
            began = phases.pop()[0] if phases and phases[-1][1] == offset * bin_ns else offset * bin_ns
            phases.append((began, (offset + 1) * bin_ns))
    period_ns = round(period * bin_ns)
    return Folded(period_ns, tuple((start, min(end, period_ns)) for start, end in phases))


def _folded(bins: Sequence[float], period: float, shift: int) -> list[float]:
    """The mean of the bins at each place of the period, which need not be a whole number of bins."""
    sums, counts = [0.0] * shift, [0] * shift
    for index, value in enumerate(bins):
        place = int(index % period * shift / period) % shift
        sums[place] += value
        counts[place] += 1
    return [total / max(1, count) for total, count in zip(sums, counts, strict=True)]


def _bins(busy: Sequence[Busy], first: int, bin_ns: int, count: int) -> list[float]:
    bins = [0.0] * count
    for stretch in busy:
        length = max(1, stretch.end_ns - stretch.start_ns)
        at = stretch.start_ns - first
        end = at + length
        while at < end:
            index = at // bin_ns
            until = min(end, (index + 1) * bin_ns)
            bins[min(index, count - 1)] += stretch.size * (until - at) / length
            at = until
    return bins


def _period(bins: Sequence[float]) -> float:
    """The shift, in bins, at which the record is most like itself: of several as good, the shortest peak.

    Peaks at its multiples then tell it more finely than a bin.
    """
    mean = sum(bins) / len(bins)
    centred = [value - mean for value in bins]
    power = sum(map(mul, centred, centred)) / len(bins)
    if power <= 0:
        raise ValueError("no period: the rate never changes")
    longest = len(bins) // 2
    like = [sum(map(mul, centred, centred[d:])) / (len(bins) - d) / power for d in range(longest + 1)]
    # Behind the first trough, or the likeness of neighbours would win.
    trough = next((d for d in range(1, longest) if like[d] < 0), 0)
    if not trough:
        raise ValueError("no period: the record shows less than two iterations")
    best = max(like[trough:])
    if best < 0.2:
        raise ValueError("no period: the record is not like itself at any shift")
    peak = next(d for d in range(trough, longest + 1) if like[d] >= _LIKE * best)
    while peak < longest and like[peak + 1] > like[peak]:
        peak += 1
    period, times = float(peak), 1
    while 2 * times * period + 2 <= longest:
        times *= 2
        near = round(times * period)
        period = max(range(near - 2, near + 3), key=like.__getitem__) / times
    return period


def _inspector(line: str, number: int) -> list[Busy]:
    try:
        said = json.loads(line)
        performance = said.get("coll_perf") or said.get("p2p_perf")
        if performance is None:
            return []
        kind = "coll" if "coll_perf" in said else "p2p"
        end = int(said["metadata"]["dump_timestamp_us"]) * 1000
        length = int(float(performance[f"{kind}_exec_time_us"]) * 1000)
        return [Busy(end - length, end, int(performance[f"{kind}_msg_size_bytes"]))]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"line {number} is none of NCCL's inspector: {error!r}") from None


def _trace(text: str) -> list[Busy]:
    """Pairs of begin ("b") and end ("e") of the collectives' and point-to-point events; `ts` is in us."""
    text = text.rstrip().rstrip(",]").rstrip() or "["
    try:
        # The plugin writes its list without care for the last comma and bracket.
        events = json.loads(f"{text}]")
    except ValueError as error:
        raise ValueError(f"no trace of NCCL's profiler: {error}") from None
    begun: dict[tuple[Any, ...], dict[str, Any]] = {}
    busy = []
    for event in events:
        if (
            not isinstance(event, dict)
            or event.get("name") not in _EVENTS
            or event.get("cat", "").endswith("_API")
        ):
            continue
        key = tuple(event.get(k) for k in ("name", "cat", "id", "pid", "tid"))
        try:
            if event["ph"] == "b":
                begun[key] = event
            elif event["ph"] == "e" and key in begun:
                start = begun.pop(key)
                size = int(start.get("args", {}).get("Count", 1))
                busy.append(
                    Busy(int(float(start["ts"]) * 1000), int(float(event["ts"]) * 1000), max(1, size))
                )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"an event of the trace is not complete: {error!r}") from None
    return busy


def _counters(text: str) -> list[Busy]:
    """Readings of port_xmit_data, which counts words of four octets; one that goes back has begun anew."""
    busy = []
    before: tuple[int, int] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        said = line.partition("#")[0].strip()
        if not said:
            continue
        try:
            time_ns, value = map(int, said.split(","))
        except ValueError:
            raise ValueError(f"line {number} is not time_ns,value") from None
        if before is not None:
            if time_ns <= before[0]:
                raise ValueError(f"line {number}: time stands still or goes back")
            grown = value - before[1] if value >= before[1] else value
            busy.append(Busy(before[0], time_ns, OCTETS * grown))
        before = (time_ns, value)
    return busy
