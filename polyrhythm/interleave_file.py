# SPDX-License-Identifier: Apache-2.0
"""The input of `polyrhythm interleave`: reads it, and says what is wrong by file, path and legal values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from controller.interleave.angles import angle_count
from controller.interleave.circle import SharedLink
from controller.model import Phase
from polyrhythm_files import ConfigError

MAX_FILE_BYTES = 64 << 20
_LEAST_MS, _MOST_MS = 0.001, 1e9
_MOST_GBPS = 1e6
_MOST_PHASES = 100_000


@dataclass(frozen=True, slots=True)
class Task:
    """`links` with (name, "") as their names; `periods` in ns by job, in the file's order."""

    links: tuple[SharedLink, ...]
    periods: Mapping[str, int]
    step_deg: float


def load(path: Path) -> Task:
    """Read and check a file. Raises ConfigError."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB, the most that is read")
        data = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply") from error
    except _BadError as error:
        raise ConfigError(f"{path}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    try:
        return _task(data)
    except _BadError as error:
        raise ConfigError(f"{path}: {error}") from error


class _BadError(ValueError):
    """What is wrong, from the path in the file on."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if sum(k == key for k, _ in pairs) > 1)
        raise _BadError(f"{twice}: said twice in one object")
    return found


def _object(
    value: Any, where: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    legal = ", ".join((*needed, *optional))
    at = where or "the file"
    if not isinstance(value, dict):
        raise _BadError(f"{at}: must be an object with {legal}, not {_shown(value)}")
    dot = f"{where}." if where else ""
    for key in value:
        if key not in needed and key not in optional:
            raise _BadError(f"{dot}{key}: no such key; the keys here are {legal}")
    for key in needed:
        if key not in value:
            raise _BadError(f"{dot}{key}: missing; {at} needs {', '.join(needed)}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _BadError(f"{where}: must be a list, not {_shown(value)}")
    return value


def _number(value: Any, where: str, least: float, most: float, unit: str) -> float:
    legal = f"a number from {least:g} to {most:g}{f' ({unit})' if unit else ''}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _BadError(f"{where}: must be {legal}, not {_shown(value)}")
    if not (math.isfinite(value) if isinstance(value, float) else True) or not least <= value <= most:
        raise _BadError(f"{where}: must be {legal}, not {_shown(value)}")
    return float(value)


def _name(value: Any, where: str, taken: Mapping[str, Any]) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise _BadError(f"{where}: must be a name of printable characters, not {_shown(value)}")
    if value in taken:
        raise _BadError(f"{where}: there are two of the name {_shown(value)}; names must differ")
    return value


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a number of that size"
    return text if len(text) <= 60 else text[:57] + "..."


def _task(data: Any) -> Task:
    top = _object(data, "", ("links", "jobs"), ("step_deg",))
    step = _number(top.get("step_deg", 5), "step_deg", 0.01, 360, "degrees")
    try:
        angle_count(step)
    except ValueError as error:
        raise _BadError(f"step_deg: {error}") from error
    periods: dict[str, int] = {}
    phases: dict[str, tuple[Phase, ...]] = {}
    for i, value in enumerate(_list(top["jobs"], "jobs")):
        where = f"jobs[{i}]"
        job = _object(value, where, ("name", "period_ms", "phases"))
        name = _name(job["name"], f"{where}.name", periods)
        period = _number(job["period_ms"], f"{where}.period_ms", _LEAST_MS, _MOST_MS, "ms")
        periods[name] = round(period * 1e6)
        phases[name] = _phases(job["phases"], f"{where}.phases", period)
    links: dict[str, SharedLink] = {}
    for i, value in enumerate(_list(top["links"], "links")):
        where = f"links[{i}]"
        link = _object(value, where, ("name", "gbps", "jobs"))
        name = _name(link["name"], f"{where}.name", links)
        rate = round(_number(link["gbps"], f"{where}.gbps", 1e-6, _MOST_GBPS, "Gbit/s") * 1e9)
        demands: dict[str, tuple[Phase, ...]] = {}
        for k, job_name in enumerate(_list(link["jobs"], f"{where}.jobs")):
            _name(job_name, f"{where}.jobs[{k}]", demands)
            if job_name not in phases:
                known = _shown(", ".join(phases))
                raise _BadError(f"{where}.jobs[{k}]: no job {_shown(job_name)}; the jobs are {known}")
            demands[job_name] = phases[job_name]
        links[name] = SharedLink((name, ""), rate, demands)
    return Task(tuple(links.values()), periods, step)


def _phases(value: Any, where: str, period_ms: float) -> tuple[Phase, ...]:
    found = []
    given = _list(value, where)
    if len(given) > _MOST_PHASES:
        raise _BadError(f"{where}: {len(given)} phases, and {_MOST_PHASES} are the most")
    for i, entry in enumerate(given):
        at = f"{where}[{i}]"
        phase = _object(entry, at, ("start_ms", "end_ms", "gbps"))
        start = _number(phase["start_ms"], f"{at}.start_ms", 0, period_ms, "ms, inside the period")
        end = _number(phase["end_ms"], f"{at}.end_ms", 0, period_ms, "ms, inside the period")
        rate = _number(phase["gbps"], f"{at}.gbps", 0, _MOST_GBPS, "Gbit/s")
        if end < start:
            raise _BadError(
                f"{at}.end_ms: {end:g} is before start_ms, {start:g}; a phase over the period's end is "
                "written as two"
            )
        found.append((round(start * 1e6), round(end * 1e6), round(rate * 1e9), i))
    # An empty half-open phase sends nothing, so it needs no room.
    found = sorted(phase for phase in found if phase[0] < phase[1] and phase[2])
    for before, after in pairwise(found):
        if after[0] < before[1]:
            raise _BadError(
                f"{where}[{after[3]}].start_ms: {after[0] / 1e6:g} is inside phases[{before[3]}], which ends "
                f"at {before[1] / 1e6:g}; phases of a job must not overlap"
            )
    return tuple(Phase(start, end, rate) for start, end, rate, _ in found)
