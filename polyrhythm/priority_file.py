# SPDX-License-Identifier: Apache-2.0
"""The file of `polyrhythm priority`: jobs and the links they share, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.priority.jobs import LinkJob
from polyrhythm_files import ConfigError

_LARGE = 1e30


@dataclass(frozen=True, slots=True)
class Contest:
    """What a file says: the jobs, and each link's rate in bit/s."""

    jobs: tuple[LinkJob, ...]
    rate_bps: Mapping[str, float]


def load_contest(path: Path) -> Contest:
    """The jobs and links of a file. Raises ConfigError with file, path and the legal values."""
    try:
        raw = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; legal: a JSON file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; legal: a JSON file") from error
    try:
        given = json.loads(raw, object_pairs_hook=_unique, parse_constant=_no_constant)
        return _contest(given)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{path}: {place}: {error.msg}; legal: JSON") from error
    except RecursionError as error:
        raise ConfigError(f'{path}: nested too deeply; legal: {{"links": ..., "jobs": ...}}') from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        _encodable(key, "a key")
        if key in result:
            raise ValueError(f"{key}: there are two of this name in one object; legal: each once")
        result[key] = value
    return result


def _encodable(text: str, where: str) -> None:
    """Half a character (a lone surrogate, which JSON can spell) cannot be printed."""
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError(f"{where}: {json.dumps(text)[:40]} has half a character; legal: whole ones")


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no number; legal: finite numbers")


def _contest(given: Any) -> Contest:
    top = _object(given, "the file", required=("links", "jobs"))
    rates: dict[str, float] = {}
    for name, link in _object(top["links"], "links").items():
        where = f"links.{name}"
        rate = _object(link, where, required=("gbps",))["gbps"]
        rates[name] = 1e9 * _number(rate, f"{where}.gbps", 1e-9, 1e9)
    if not isinstance(top["jobs"], list):
        raise ValueError(f"jobs: {_kind(top['jobs'])}; legal: a list of jobs")
    jobs: dict[str, LinkJob] = {}
    for i, item in enumerate(top["jobs"]):
        job = _job(item, f"jobs[{i}]", rates)
        if job.name in jobs:
            raise ValueError(f"jobs[{i}].name: there are two jobs {job.name!r}; legal: a name of its own")
        jobs[job.name] = job
    return Contest(tuple(jobs.values()), rates)


def _job(item: Any, where: str, rates: Mapping[str, float]) -> LinkJob:
    given = _object(
        item,
        where,
        required=("name", "gpus", "flops_per_iteration", "compute_ms"),
        optional=("overlap_start", "bytes"),
    )
    name = given["name"]
    if not isinstance(name, str) or not name:
        raise ValueError(f"{where}.name: {_kind(name)}; legal: a text of at least one character")
    _encodable(name, f"{where}.name")
    gpus = given["gpus"]
    if not isinstance(gpus, int) or isinstance(gpus, bool) or not 1 <= gpus <= 10**7:
        raise ValueError(f"{where}.gpus: {_kind(gpus)}; legal: a whole number from 1 to 10000000")
    sent: dict[str, float] = {}
    for link, value in _object(given.get("bytes", {}), f"{where}.bytes").items():
        if link not in rates:
            legal = ", ".join(list(rates)[:20]) or "none, the file has no links"
            raise ValueError(f"{where}.bytes.{link}: no such link; legal: {legal}")
        sent[link] = _number(value, f"{where}.bytes.{link}", 0, _LARGE)
        if 0 < sent[link] < 1:
            raise ValueError(f"{where}.bytes.{link}: {value}; legal: 0, or from 1 to {_LARGE:g}")
    return LinkJob(
        name=name,
        gpus=gpus,
        work=_number(given["flops_per_iteration"], f"{where}.flops_per_iteration", 0, _LARGE),
        compute_s=_number(given["compute_ms"], f"{where}.compute_ms", 0, 1e12) / 1e3,
        bytes_on=sent,
        overlap_start=_number(given.get("overlap_start", 1), f"{where}.overlap_start", 0, 1),
        distance=sum(v > 0 for v in sent.values()),
    )


def _object(
    value: Any, where: str, required: Sequence[str] | None = None, optional: Sequence[str] = ()
) -> Mapping[str, Any]:
    """A JSON object with exactly these keys, or with any if `required` is None."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {_kind(value)}; legal: an object")
    if required is not None:
        legal = ", ".join([*required, *optional])
        missing = [key for key in required if key not in value]
        if missing:
            raise ValueError(f"{where}: {missing[0]} is missing; legal: {legal}")
        unknown = [key for key in value if key not in required and key not in optional]
        if unknown:
            raise ValueError(f"{where}.{unknown[0]}: unknown key; legal: {legal}")
    return value


def _number(value: Any, where: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{where}: {_kind(value)}; legal: a number from {low:g} to {high:g}")
    return float(value)


def _kind(value: Any) -> str:
    """A wrong value in an error: scalars as they are (shortened), the others by their kind."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
