# SPDX-License-Identifier: Apache-2.0
"""How large each experiment was, in words, from its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def _routing(report: Mapping[str, Any]) -> str:
    seeds = {case["seed"] for case in report["cases"]}
    return f"{report['cases_run']} mixes of jobs and failed spines, {_count(len(seeds), 'seed')}"


def _mltcp(report: Mapping[str, Any]) -> str:
    return f"{_count(report['starts'], 'start')} of two jobs, {report['iterations']} iterations each"


def _cassini_snapshots(report: Mapping[str, Any]) -> str:
    cases = len(report["snapshots"]) + len(report["groups"])
    return f"{_count(cases, 'case')}, {report['iterations']} iterations of each job, one start"


def _cassini_testbed(report: Mapping[str, Any]) -> str:
    draws = ", ".join(f"{number} {kind}" for kind, number in report["draws"].items())
    return f"draws of jobs by trace: {draws}; {report['jobs_of_a_poisson_trace']} jobs in a Poisson trace"


def _interleave(report: Mapping[str, Any]) -> str:
    return f"{report['instances']} sets of jobs, {report['joint_instances']} small instances, one seed"


def _crux_microbench(report: Mapping[str, Any]) -> str:
    return f"{_count(report['cases'], 'case')} of the paper's 1,500"


def _crux_testbed(report: Mapping[str, Any]) -> str:
    return (
        f"{_count(len(report['cases']), 'case')}, {_count(report['seeds'], 'seed')}, "
        f"{report['simulated_s']:g} simulated s"
    )


def _crux_trace(report: Mapping[str, Any]) -> str:
    return f"{_count(report['samples'], 'moment')} of {report['window_s']:g} s of {report['days']:g} days"


def _untuned(report: Mapping[str, Any]) -> str:
    loads = ", ".join(map(str, dict.fromkeys(row["load"] for row in report["rows"])))
    traces = ", ".join(
        f"{max(w['jobs'])} jobs of {w['trace']} on {w['gpus']} GPUs" for w in report["workloads"]
    )
    left = report["not_run"]
    without = f"; without load {', '.join(map(str, left['loads']))}" if left["loads"] else ""
    fewer = f" of {len(report['seeds']) + left['seeds']}" if left["seeds"] else ""
    return f"{traces}; load {loads}{without}; {_count(len(report['seeds']), 'seed')}{fewer}"


def _dally(report: Mapping[str, Any]) -> str:
    racks = ", ".join(map(str, dict.fromkeys(row["racks"] for row in report["rows"])))
    return f"{_count(report['jobs'], 'job')}, batch and Poisson, on {racks} racks"


SIZES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "routing": _routing,
    "mltcp": _mltcp,
    "cassini-snapshots": _cassini_snapshots,
    "cassini-testbed": _cassini_testbed,
    "interleave": _interleave,
    "crux-microbench": _crux_microbench,
    "crux-testbed": _crux_testbed,
    "crux-trace": _crux_trace,
    "untuned": _untuned,
    "dally": _dally,
}
"""By experiment of `polyrhythm paper`: its report -> its size."""


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
