# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm priority`: who goes first among jobs that share links, on which level, and why."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from controller.model import TRAFFIC_CLASSES
from controller.priority.crux import Contender, Ranked, reference_job, rounded
from controller.priority.fairness import Fair, fair
from controller.priority.jobs import LinkJob, shared_links
from controller.priority.methods import METHODS, Assignment, Setting

_LARGE = 1e30
_NAMED = 8
# Fairness plays every assignment that it tries through in time: with more jobs that takes minutes.
_MOST_FAIR = 200


class PriorityError(ValueError):
    """Input that has no answer: one line for the user with file, path and the legal values."""


@dataclass(frozen=True, slots=True)
class Contest:
    """What a file says: the jobs, and each link's rate in bit/s."""

    jobs: tuple[LinkJob, ...]
    rate_bps: Mapping[str, float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm priority`."""
    parser.add_argument("file", metavar="FILE.json", help="jobs and links; docs/priority.md has the format")
    parser.add_argument("--levels", metavar="K", help="compress to K levels (default: one for each job)")
    parser.add_argument("--method", choices=sorted(METHODS), default="crux")
    parser.add_argument(
        "--loss-cap", metavar="PART", help="no job may lose more than this part of its throughput (0 to 1)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sampled orders (default 0)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Read, rank, compress and print; 2 for bad input."""
    try:
        if args.seed < 0:
            raise PriorityError(f"--seed: {args.seed}; legal: a whole number from 0")
        levels = _levels(args.levels)
        cap = _cap(args.loss_cap, args.method)
        contest = load_contest(Path(args.file))
        if cap is not None and len(contest.jobs) > _MOST_FAIR:
            raise PriorityError(
                f"{args.file}: jobs: {len(contest.jobs)}; legal with --loss-cap: at most {_MOST_FAIR}"
            )
    except PriorityError as error:
        print(error, file=sys.stderr)
        return 2
    setting = Setting(levels=levels, seed=args.seed)
    if cap is None:
        assigned = METHODS[args.method].assign(contest.jobs, contest.rate_bps, setting)
        report = to_json(contest, assigned, args.method, levels)
    else:
        fairly = fair(contest.jobs, contest.rate_bps, cap, setting)
        report = to_json(contest, fairly.assignment, args.method, levels, fairly.outcome.weight)
        report["fairness"] = _fairness(fairly, cap)
    print(json.dumps(report, indent=2) if args.json else to_text(report))
    return 0


def to_json(
    contest: Contest,
    assigned: Assignment,
    method: str,
    levels: int | None,
    weight: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The assignment as JSON values, the jobs by priority; `weight` is fairness' share in each priority."""
    meets: dict[str, dict[str, Sequence[str]]] = {j.name: {} for j in contest.jobs}
    for (a, b), links in shared_links(contest.jobs).items():
        meets[a][b] = meets[b][a] = links
    words = _Words(contest, assigned, method, meets, weight or {})
    jobs = []
    for ranked in assigned.ranked:
        level = assigned.level[ranked.name]
        known = levels is not None and level < len(TRAFFIC_CLASSES.levels)
        jobs.append(
            {
                "name": ranked.name,
                "intensity": ranked.intensity,
                "correction": ranked.correction,
                "priority": ranked.priority,
                "level": level,
                "dscp": TRAFFIC_CLASSES.levels[level] if known else None,
                "why": words.why(ranked, no_queue=levels is not None and not known),
            }
        )
    return {"jobs": jobs, "cut": assigned.cut, "lost": assigned.lost}


def to_text(report: Mapping[str, Any]) -> str:
    """The report for reading, a line for each job."""
    lines = [
        f"level {j['level']}  dscp {'-' if j['dscp'] is None else j['dscp']:>2}  {j['name']}: {j['why']}"
        for j in report["jobs"]
    ]
    if "fairness" in report:
        fairness = report["fairness"]
        lines.append(
            f"loss cap {fairness['cap']:g} {'met' if fairness['met'] else 'not met'}; to choose from:"
        )
        lines += [
            f"  utilisation {p['utilisation']:.3f}, worst loss {p['worst_loss']:.3f}"
            for p in fairness["pareto"]
        ]
    total = report["cut"] + report["lost"]
    part = f", {100 * report['lost'] / total:.1f} % of it lost to shared levels" if total else ""
    return "\n".join([*lines, f"contention {total:.3g} flop/s{part}"])


def _fairness(fairly: Fair, cap: float) -> dict[str, Any]:
    """What the cap costs: the assignment's worth, and the others that none beats in both."""
    return {
        "cap": cap,
        "met": fairly.met,
        "utilisation": fairly.outcome.utilisation,
        "worst_loss": fairly.outcome.worst,
        "loss": dict(fairly.outcome.loss),
        "pareto": [
            {"utilisation": o.utilisation, "worst_loss": o.worst, "level": dict(o.level)}
            for o in fairly.frontier
        ],
    }


@dataclass(frozen=True)
class _Words:
    """Each job's place and level in words. `meets` has the links that each job shares with each other."""

    contest: Contest
    assigned: Assignment
    method: str
    meets: Mapping[str, Mapping[str, Sequence[str]]]
    weight: Mapping[str, float]

    @cached_property
    def _reference(self) -> Contender | None:
        return reference_job([j.contender(self.contest.rate_bps) for j in self.contest.jobs])

    @cached_property
    def _slack(self) -> Mapping[str, float]:
        """Compute left to overlap the communication, in s."""
        return {j.name: (1 - j.overlap_start) * j.compute_s for j in self.contest.jobs}

    @cached_property
    def _equals(self) -> Mapping[float, Sequence[str]]:
        """Jobs that send, by priority in twelve digits."""
        equals: dict[float, list[str]] = {}
        for r in self.assigned.ranked:
            if r.intensity is not None:
                equals.setdefault(rounded(r.priority), []).append(r.name)
        return equals

    @cached_property
    def _place(self) -> Mapping[str, int]:
        return {r.name: i for i, r in enumerate(self.assigned.ranked)}

    def why(self, ranked: Ranked, no_queue: bool) -> str:
        """`no_queue`: there is no DSCP for the job's level."""
        name, level = ranked.name, self.assigned.level
        if ranked.intensity is None:
            words = ["it sends nothing: no intensity, the lowest level"]
        else:
            words = [self._order(ranked)]
            if self.weight.get(name, 1.0) > 1:
                words.append(f"x {self.weight[name]:.3g} for what it would lose")
            others = sorted(self.meets[name], key=self._place.__getitem__)
            beside = [o for o in others if level[o] == level[name]]
            above = [o for o in others if level[o] != level[name] and self._place[o] < self._place[name]]
            below = [o for o in others if level[o] != level[name] and self._place[o] > self._place[name]]
            words += [
                f"{word} {self._listed(name, them)}"
                for word, them in (("before", below), ("after", above), ("on one level with", beside))
                if them
            ]
            words += [] if others else ["it shares no link, so any level would do"]
        if no_queue:
            words.append(f"no DSCP: the switches keep {len(TRAFFIC_CLASSES.levels)} levels for jobs")
        return "; ".join(words)

    def _listed(self, name: str, others: Sequence[str]) -> str:
        """Other jobs, each with the links shared; long lists are cut."""
        named = [f"{o} ({_short(self.meets[name][o], 3)})" for o in others[:_NAMED]]
        return _short(named, _NAMED, len(others))

    def _order(self, ranked: Ranked) -> str:
        """What a job's place in the order comes from."""
        if self.method != "crux":
            return f"{self.method} gives it {ranked.priority:.3g}"
        text = f"intensity {ranked.intensity:.3g} flop/s x correction {ranked.correction:.3g}"
        if self._reference is not None:
            most = ranked.name == self._reference.name
            against = f"against {self._reference.name}"
            text += f" ({'the most bytes, so it is the reference' if most else against})"
        equal = [o for o in self._equals[rounded(ranked.priority)] if o != ranked.name]
        if equal:
            other = any(self._slack[o] != self._slack[ranked.name] for o in equal)
            by = "less compute to overlap goes first, then names" if other else "names decide"
            text += f", equal to {_short(equal, _NAMED)}: {by}"
        return text


def _short(words: Sequence[str], most: int, count: int | None = None) -> str:
    """The first words of a list, and how many more there are (of `count`, if these are not all)."""
    more = (len(words) if count is None else count) - most
    return ", ".join(words[:most]) + (f" and {more} more" if more > 0 else "")


def _levels(given: str | None) -> int | None:
    if given is None:
        return None
    if not given.isdecimal() or not 1 <= int(given) <= 1_000_000:
        raise PriorityError(f"--levels: {given!r}; legal: a whole number from 1 to 1000000")
    return int(given)


def _cap(given: str | None, method: str) -> float | None:
    if given is None:
        return None
    if method != "crux":
        raise PriorityError(f"--loss-cap: not with --method {method}; legal: crux")
    try:
        cap = float(given)
    except ValueError:
        cap = -1.0
    if not 0 <= cap <= 1:
        raise PriorityError(f"--loss-cap: {given!r}; legal: a number from 0 to 1")
    return cap


def load_contest(path: Path) -> Contest:
    """The jobs and links of a file. Raises PriorityError with file, path and the legal values."""
    try:
        raw = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PriorityError(f"{path}: {error.strerror or error}; legal: a JSON file") from error
    except UnicodeDecodeError as error:
        raise PriorityError(f"{path}: byte {error.start} is not UTF-8; legal: a JSON file") from error
    try:
        given = json.loads(raw, object_pairs_hook=_unique, parse_constant=_no_constant)
        return _contest(given)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise PriorityError(f"{path}: {place}: {error.msg}; legal: JSON") from error
    except RecursionError as error:
        raise PriorityError(f'{path}: nested too deeply; legal: {{"links": ..., "jobs": ...}}') from error
    except ValueError as error:
        raise PriorityError(f"{path}: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"{key}: there are two of this name in one object; legal: each once")
        result[key] = value
    return result


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
