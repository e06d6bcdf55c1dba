# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm priority`: compute and explain the priority level of each of several jobs that share links."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.model import TRAFFIC_CLASSES
from controller.priority.crux import Contender, RankedJob, reference_job, rounded
from controller.priority.fairness import FairAssignment, fair_assignment
from controller.priority.methods import METHODS, LevelAssignment, Setting
from polyrhythm.priority_file import PriorityTask, load_priority_task
from polyrhythm.progress import working
from polyrhythm_files import ConfigError

# A list of jobs in an explanation names this many. Chosen.
_NAMED = 8
# The fairness rule simulates every assignment that it tries. With more jobs that takes minutes (measured).
_MOST_FAIR = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm priority`."""
    parser.add_argument(
        "file", metavar="FILE.json", help="file with jobs and links (docs/priority.md has the format)"
    )
    parser.add_argument(
        "--levels",
        metavar="K",
        help="compress the order to K levels, 1 to 1000000 (default: one level for each job)",
    )
    parser.add_argument(
        "--method", choices=sorted(METHODS), default="crux", help="how to order the jobs (default crux)"
    )
    parser.add_argument(
        "--loss-cap",
        metavar="PART",
        help="no job may lose more than this part of its throughput, 0 to 1 (only with --method crux; "
        "default: no cap)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the sampled orders, 0 or more (default 0)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Read the file, order the jobs, compress to levels, and print. Returns 2 for bad input."""
    try:
        if args.seed < 0:
            raise ConfigError(f"--seed: {args.seed}; legal: a whole number from 0")
        levels = _levels(args.levels)
        cap = _cap(args.loss_cap, args.method)
        contest = load_priority_task(Path(args.file))
        if cap is not None and len(contest.jobs) > _MOST_FAIR:
            raise ConfigError(
                f"{args.file}: jobs: {len(contest.jobs)}; legal with --loss-cap: at most {_MOST_FAIR}"
            )
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    setting = Setting(levels=levels, seed=args.seed)
    if cap is None:
        with working("ordering the jobs"):
            assigned = METHODS[args.method].assign(contest.jobs, contest.rate_bps, setting)
        report = to_json(contest, assigned, args.method, levels)
    else:
        with working("ordering the jobs"):
            fairly = fair_assignment(contest.jobs, contest.rate_bps, cap, setting)
        report = to_json(contest, fairly.assignment, args.method, levels, fairly.outcome.weight)
        report["fairness"] = _fairness(fairly, cap)
    print(json.dumps(report, indent=2) if args.json else to_text(report))
    return 0


def to_json(
    contest: PriorityTask,
    assigned: LevelAssignment,
    method: str,
    levels: int | None,
    weight: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The assignment as JSON values, jobs in order of priority.

    `weight` is the factor that the fairness rule gives each job; None without a loss cap.
    """
    words = _Words(contest, assigned, method, weight or {})
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
    """The report as text, one line for each job."""
    lines = [
        f"level {j['level']}  dscp {'-' if j['dscp'] is None else j['dscp']:>2}  {j['name']}: {j['why']}"
        for j in report["jobs"]
    ]
    if "fairness" in report:
        fairness = report["fairness"]
        lines.append(
            f"loss cap {fairness['cap']:g} {'met' if fairness['met'] else 'not met'}; possible assignments:"
        )
        lines += [
            f"  utilisation {p['utilisation']:.3f}, worst loss {p['worst_loss']:.3f}"
            for p in fairness["pareto"]
        ]
    total = report["cut"] + report["lost"]
    part = f", {100 * report['lost'] / total:.1f} % of it lost to shared levels" if total else ""
    return "\n".join([*lines, f"contention {total:.3g} flop/s{part}"])


def _fairness(fairly: FairAssignment, cap: float) -> dict[str, Any]:
    """The utilisation and the losses of the assignment, and the Pareto frontier of all tried assignments."""
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
    """Makes the text that explains each job's place in the order, and its level."""

    contest: PriorityTask
    assigned: LevelAssignment
    method: str
    weight: Mapping[str, float]

    @cached_property
    def _reference(self) -> Contender | None:
        return reference_job([j.contender(self.contest.rate_bps) for j in self.contest.jobs])

    @cached_property
    def _slack(self) -> Mapping[str, float]:
        """The compute that is left to overlap the communication, in s, by job."""
        return {j.name: (1 - j.overlap_start) * j.compute_s for j in self.contest.jobs}

    @cached_property
    def _equals(self) -> Mapping[float, Sequence[str]]:
        """The jobs that send, by priority rounded to twelve digits."""
        equals: dict[float, list[str]] = {}
        for r in self.assigned.ranked:
            if r.intensity is not None:
                equals.setdefault(rounded(r.priority), []).append(r.name)
        return equals

    @cached_property
    def _slacks(self) -> Mapping[float, set[float]]:
        """The different values of `_slack` among the jobs of each priority."""
        return {p: {self._slack[name] for name in names} for p, names in self._equals.items()}

    @cached_property
    def _place(self) -> Mapping[str, int]:
        return {r.name: i for i, r in enumerate(self.assigned.ranked)}

    def why(self, ranked: RankedJob, no_queue: bool) -> str:
        """The explanation of a job. `no_queue`: no DSCP exists for its level."""
        name, level = ranked.name, self.assigned.level
        if ranked.intensity is None:
            words = ["it sends nothing, so it has no intensity and the lowest level"]
        else:
            words = [self._order(ranked)]
            if self.weight.get(name, 1.0) > 1:
                words.append(f"x {self.weight[name]:.3g} by the loss cap")
            others = self._others(name)
            same = self._levels[others] == level[name]
            above = others < self._place[name]
            words += [
                f"{word} {self._listed(name, them)}"
                for word, them in (
                    ("before", others[~same & ~above]),
                    ("after", others[~same & above]),
                    ("on one level with", others[same]),
                )
                if len(them)
            ]
            words += [] if len(others) else ["it shares no link, so its level has no effect"]
        if no_queue:
            words.append(f"no DSCP: the switches keep {len(TRAFFIC_CLASSES.levels)} levels for jobs")
        return "; ".join(words)

    @cached_property
    def _levels(self) -> NDArray[np.int64]:
        """The level of each job, by its place in the order."""
        return np.array([self.assigned.level[r.name] for r in self.assigned.ranked], dtype=np.int64)

    @cached_property
    def _links(self) -> Mapping[str, Sequence[str]]:
        """The links on which each job sends."""
        return {j.name: [k for k, sent in j.bytes_on.items() if sent > 0] for j in self.contest.jobs}

    @cached_property
    def _members(self) -> Mapping[str, NDArray[np.int64]]:
        """The places in the order of the jobs that send on each link."""
        on: dict[str, list[int]] = {}
        for name, links in self._links.items():
            for link in links:
                on.setdefault(link, []).append(self._place[name])
        return {link: np.array(sorted(places), dtype=np.int64) for link, places in on.items()}

    def _others(self, name: str) -> NDArray[np.int64]:
        """The places of the jobs that share a link with a job, highest first."""
        sharing = [self._members[link] for link in self._links[name]]
        found = np.unique(np.concatenate(sharing)) if sharing else np.array([], dtype=np.int64)
        return np.asarray(found[found != self._place[name]])

    def _listed(self, name: str, others: NDArray[np.int64]) -> str:
        """Other jobs, each with the links that it shares. Long lists are cut."""
        named = []
        for place in others[:_NAMED].tolist():
            other = self.assigned.ranked[place].name
            # Links in the order of the job that comes first in the file.
            first, second = sorted((name, other), key=self._file.__getitem__)
            shared = [link for link in self._links[first] if link in set(self._links[second])]
            named.append(f"{other} ({_short(shared, 3)})")
        return _short(named, _NAMED, len(others))

    @cached_property
    def _file(self) -> Mapping[str, int]:
        return {j.name: i for i, j in enumerate(self.contest.jobs)}

    def _order(self, ranked: RankedJob) -> str:
        """The reason for a job's place in the order."""
        if self.method != "crux":
            return f"{self.method} gives it {ranked.priority:.3g}"
        text = f"intensity {ranked.intensity:.3g} flop/s x correction {ranked.correction:.3g}"
        if self._reference is not None:
            most = ranked.name == self._reference.name
            against = f"against {self._reference.name}"
            text += f" ({'the most bytes, so it is the reference' if most else against})"
        alike = self._equals[rounded(ranked.priority)]
        equal = [o for o in alike[: _NAMED + 1] if o != ranked.name]
        if equal:
            other = len(self._slacks[rounded(ranked.priority)]) > 1
            by = (
                "the job with less compute to overlap is first, then the names decide"
                if other
                else "names decide"
            )
            text += f", equal to {_short(equal, _NAMED, len(alike) - 1)}: {by}"
        return text


def _short(words: Sequence[str], most: int, count: int | None = None) -> str:
    """The first `most` words of a list, and how many more there are. The whole list has `count` words."""
    more = (len(words) if count is None else count) - most
    return ", ".join(words[:most]) + (f" and {more} more" if more > 0 else "")


def _levels(given: str | None) -> int | None:
    if given is None:
        return None
    if not given.isdecimal() or not 1 <= int(given) <= 1_000_000:
        raise ConfigError(f"--levels: {given!r}; legal: a whole number from 1 to 1000000")
    return int(given)


def _cap(given: str | None, method: str) -> float | None:
    if given is None:
        return None
    if method != "crux":
        raise ConfigError(f"--loss-cap: not with --method {method}; legal: crux")
    try:
        cap = float(given)
    except ValueError:
        cap = -1.0
    if not 0 <= cap <= 1:
        raise ConfigError(f"--loss-cap: {given!r}; legal: a number from 0 to 1")
    return cap
