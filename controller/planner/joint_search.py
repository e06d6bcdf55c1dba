# SPDX-License-Identifier: Apache-2.0
"""The joint search of paths, levels, time-shifts and senders, for jobs that still overlap in time.

The search starts from the built candidate, from the plan in force and from the plans of baseline policies. It
evaluates changes of them, and makes a new candidate of the best.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from controller.interleave.affinity import LinkFit
from controller.interleave.circle import score
from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance, plain
from controller.interleave.link_sharing import SLACK, SLOT_SCORE, contended
from controller.interleave.slot_schedule import JobSlot, SlotSchedule
from controller.model import Phase
from controller.planner.candidate import Candidate, Expected, PathsAndShifts
from controller.planner.demand import Demands
from controller.planner.ecmp_reference import ecmp_lengths
from controller.planner.levels_only import LIMITS as LEVEL_LIMITS
from controller.planner.levels_only import levels_only
from controller.planner.loop.search import SearchLimits, SearchResult, solve
from controller.planner.pinned_flows import kept_ports
from controller.planner.priority_stage import assign_levels
from controller.planner.reasons import search_reason
from controller.planner.routing_stage import RoutingStage
from controller.planner.search_instance import JITTER, choice_of, instance_of
from controller.planner.starting_points import StartingPoint, starting_points
from controller.planner.time_shifts import TimeShifts, only
from controller.routing.assign import Assignment, free_port
from controller.routing.ecmp import draw_port
from controller.routing.paths import Path, path_of, paths
from controller.wire.senders import as_mltcp, uses_mltcp

LIMITS = SearchLimits(
    evaluations=48,
    max_work=60_000,
    starts=1,
    quick=Effort((101,), 16),
    # Long enough for time-shifts without gaps to show that they do not last.
    thorough=Effort((201, 202, 203), 80),
    arranged_sets=1,
    exchanges=300,
    min_gain=0.01,
)
"""Chosen: a live plan with a search takes about a second. The limit is work, not time, so that the result
does not depend on a clock."""
MLTCP_MIN_GAIN = 0.03
"""The part of GPU utilisation that a plan with MLTCP for some jobs must gain over the best plan without it.
Chosen: the evaluator lets shares follow MLTCP's F at once, while real senders need some iterations."""
_WITHOUT_MLTCP = "the best without MLTCP"
_MOST_JOBS, _MOST_FLOWS = 32, 1_500
"""With more jobs or more flows only levels are searched. Chosen: a search at these sizes takes about a
second."""
_MOST_PATHS = 16
"""The most candidate paths of a flow."""
_FEW_JOBS = 6
"""Up to this number of jobs the evaluator's plain Python loops are faster than loading the compiled ones.
Measured."""
_MOST_COST = 1_000_000
"""The most work of one thorough evaluation, in the unit of `Evaluator.cost`. Chosen: about a second."""


@dataclass(frozen=True)
class JointSearch:
    """The search of one planning run. `built` is what the policy's three objects decided."""

    built: PathsAndShifts

    @property
    def _demands(self) -> Demands:
        return self.built.routing.demands

    @cached_property
    def wanted(self) -> bool:
        """Whether to search: the policy asks for it, some jobs still overlap in time (or would with a little
        jitter), and all jobs have a profile."""
        policy = self._demands.inputs.policy
        if not policy.joint_search or not policy.priority.searchable or self.built.routing.by_hash:
            return False
        if not (self.built.shifts.contending or self._tight):
            return False
        return self._evaluable

    @cached_property
    def too_large(self) -> bool:
        """Whether there are more jobs, flows or iterations than the search can evaluate in time. There are
        many iterations where jobs of short and long periods run together."""
        if len({f.job for f in self._demands.elephants}) > _MOST_JOBS or len(self._flows) > _MOST_FLOWS:
            return True
        assignments = self.built.routing.assignments
        paths = {name: (assignments[name].path or (),) for name in self._flows}
        instance = instance_of(self._demands, paths)
        return Evaluator(instance).cost(plain(instance, (0,) * len(paths)), LIMITS.thorough) > _MOST_COST

    @cached_property
    def start(self) -> Candidate:
        """The built candidate with its levels."""
        return self.built.with_levels()

    def chosen(self) -> Candidate:
        """The best candidate.

        It is the built candidate if no search is wanted or the search finds nothing better. If the problem is
        too large for the search, only levels are searched.
        """
        candidate = self._chosen()
        return replace(candidate, expected=self._expected(candidate))

    def _chosen(self) -> Candidate:
        if self.wanted and self.too_large and self.built.shifts.contending:
            return levels_only(self._demands)
        found = self.found
        if found is None:
            return self.start
        if found.choice == self._start_choice:
            return replace(self.start, reason=search_reason(found))
        return self._candidate(found)

    @cached_property
    def ecmp(self) -> Mapping[str, float] | None:
        """The mean iteration of each job in ns under plain ECMP; None if that cannot be evaluated."""
        if not self._evaluable:
            return None
        effort = LEVEL_LIMITS.thorough if self.too_large else LIMITS.thorough
        few = len(self.built.shifts.periods) <= _FEW_JOBS
        return ecmp_lengths(self._demands, self._flows, effort.iterations, _MOST_COST, fast=not few)

    @property
    def _evaluable(self) -> bool:
        """Whether the evaluator can compute plans: all jobs with elephants have a profile."""
        return all(self._demands.jobs[f.job].profile.phases for f in self._demands.elephants)

    def _expected(self, candidate: Candidate) -> Mapping[str, Expected]:
        """What the evaluator expects of a candidate; empty where the policy has no joint search, or where it
        cannot be evaluated."""
        policy = self._demands.inputs.policy
        if not policy.joint_search or self.ecmp is None:
            return {}
        assignments = candidate.routing.assignments
        instance = instance_of(
            self._demands, {name: (path,) for name in self._flows if (path := assignments[name].path)}
        )
        choice = choice_of(instance, candidate)
        evaluator = Evaluator(instance, plain=len(instance.jobs) <= _FEW_JOBS)
        effort = LEVEL_LIMITS.thorough if self.too_large else LIMITS.thorough
        if evaluator.cost(choice, effort) > _MOST_COST:
            return {}
        found = evaluator.lengths(choice, effort).mean(axis=0)
        most = policy.max_slowdown
        return {
            p.name: Expected(float(ns), self.ecmp[p.name], None if most is None else most * self.ecmp[p.name])
            for p, ns in zip(instance.jobs, found, strict=True)
        }

    @cached_property
    def _tight(self) -> bool:
        """Whether jobs that share a link in time leave no gaps there: they would overlap if each phase were
        longer by JITTER of its period at both ends."""
        slots = self.built.shifts.schedule.slots
        for link in self.built.routing.shared:
            periods = {j: slots[j].period_ns for j in link.demands if j in slots}
            if len(periods) < 2 or not contended(link, SLACK):
                continue
            more = {j: round(2 * JITTER * t) for j, t in periods.items()}
            demands = {j: _longer(link.demands[j], more[j], t) for j, t in periods.items()}
            shifts = {j: slots[j].shift_ns - more[j] // 2 for j in periods}
            if score(replace(link, demands=demands), periods, shifts, slack=SLACK) < SLOT_SCORE:
                return True
        return False

    @cached_property
    def found(self) -> SearchResult | None:
        """The result of the search; None where it is not wanted or the problem is too large."""
        if not self.wanted or self.too_large:
            return None
        given = {"as composed": self._start_choice}
        before = self._before
        if before is not None:
            given = {"as before": before} | given
        found = self._solved(given, LIMITS, mltcp=False)
        capable = any(p.mltcp_capable for p in self.instance.jobs)
        if not capable or found.utilisation * (1 + MLTCP_MIN_GAIN) >= found.bound:
            return found
        limits = replace(LIMITS, min_gain=MLTCP_MIN_GAIN)
        with_mltcp = self._solved({_WITHOUT_MLTCP: found.choice}, limits, mltcp=True)
        evaluations = found.evaluations + with_mltcp.evaluations
        if with_mltcp.choice == found.choice:
            return replace(found, evaluations=evaluations)
        return replace(
            with_mltcp, evaluations=evaluations, baselines={**found.baselines, **with_mltcp.baselines}
        )

    def _solved(self, given: Mapping[str, Choice], limits: SearchLimits, *, mltcp: bool) -> SearchResult:
        return solve(
            self.instance,
            {"ecmp": self._ecmp, "composed": self._start_choice.path_choice},
            given=given,
            others=self._others,
            mltcp=mltcp,
            limits=limits,
            plain=len(self.instance.jobs) <= _FEW_JOBS,
            seed=self._demands.inputs.seed,
        )

    @cached_property
    def _flows(self) -> tuple[str, ...]:
        """The names of the elephants that have a path, grouped by job."""
        placed = self.built.routing.assignments
        return tuple(f.name for f in self._demands.elephants if f.name in placed and placed[f.name].path)

    @cached_property
    def _candidate_paths(self) -> Mapping[str, tuple[Path, ...]]:
        """The candidate paths of each flow: the built candidate's first, then ECMP's, those of the baseline
        policies, and all others."""
        x, table = self._demands.inputs, self._demands.forwarding
        flow_of = self._demands.elephant
        found = {}
        for name in self._flows:
            flow, now = flow_of[name], self.built.routing.assignments[name].path
            drawn = self._drawn(name, flow.src, flow.dst)
            others = [r.paths[name] for r in self._baselines if name in r.paths]
            every = paths(x.topology, table, flow.src, flow.dst)
            listed = [p for p in (now, drawn, *others) if p in every]
            found[name] = tuple(dict.fromkeys((*listed, *every)))[:_MOST_PATHS]
        return found

    def _drawn(self, flow: str, src: str, dst: str) -> Path:
        """ECMP's path of the flow, by the source port that it draws. Empty if the hash is unknown."""
        x = self._demands.inputs
        return path_of(x.topology, self._demands.forwarding, src, dst, draw_port(flow, x.seed))

    @cached_property
    def instance(self) -> Instance:
        """The input of the search: the jobs with elephants, and the candidate paths of their flows."""
        return instance_of(self._demands, self._candidate_paths)

    @cached_property
    def _ecmp(self) -> tuple[int, ...]:
        """The number of ECMP's path among the candidate paths of each flow; 0 if it is not one of them."""
        path_choice = []
        for name in self._flows:
            listed = self._candidate_paths[name]
            drawn = self._drawn(name, listed[0][0], listed[0][-1])
            path_choice.append(listed.index(drawn) if drawn in listed else 0)
        return tuple(path_choice)

    @cached_property
    def _baselines(self) -> tuple[StartingPoint, ...]:
        """The plans of baseline policies."""
        return tuple(starting_points(self._demands.inputs))

    @cached_property
    def _others(self) -> Mapping[str, Choice]:
        """The decisions of the baseline policies as choices, by name. A flow that a baseline leaves to ECMP
        has ECMP's path."""
        count = len(self.instance.jobs)
        found = {}
        for baseline in self._baselines:
            path_choice = tuple(
                self._candidate_paths[name].index(baseline.paths[name])
                if baseline.paths.get(name) in self._candidate_paths[name]
                else by_ecmp
                for name, by_ecmp in zip(self._flows, self._ecmp, strict=True)
            )
            level = tuple(baseline.levels[p.name] for p in self.instance.jobs)
            found[f"policy {baseline.policy}"] = Choice(
                path_choice, level, (UNSCHEDULED,) * count, (False,) * count
            )
        return found

    @cached_property
    def _start_choice(self) -> Choice:
        return choice_of(self.instance, self.start)

    @cached_property
    def _before(self) -> Choice | None:
        """The plan in force as a choice. None if another policy made it, or a part of it is no longer
        possible."""
        x = self._demands.inputs
        old = x.previous
        if old is None or old.policy != x.policy.reference:
            return None
        path_choice, level, timings, mltcp = [], [], [], []
        for name in self._flows:
            was = old.flows.get(name)
            if was is None or was.path not in self._candidate_paths[name]:
                return None
            path_choice.append(self._candidate_paths[name].index(was.path))
        for own in self.instance.jobs:
            job = old.jobs.get(own.name)
            if job is None:
                return None
            level.append(job.level)
            mltcp.append(uses_mltcp(job.sender))
            if mltcp[-1] and not own.mltcp_capable:
                return None
            period = job.period_ns
            if period is None:
                timings.append(UNSCHEDULED)
            elif own.alone_ns * 0.9995 <= period <= self.instance.slowest * own.alone_ns:
                timings.append((period, (job.shift_ns + old.epoch_ns - x.epoch_ns) % period))
            else:
                return None
        return Choice(tuple(path_choice), tuple(level), tuple(timings), tuple(mltcp))

    def _candidate(self, found: SearchResult) -> Candidate:
        """The candidate with the decisions of a search result."""
        demands, choice = self._demands, found.choice
        routing = RoutingStage(demands, self._placed(found), by_hash=False)
        shifts = TimeShifts(demands, routing.shared, self._schedule(found, routing))
        names = [p.name for p in self.instance.jobs]
        searched = dict(zip(names, choice.level, strict=True))
        priorities = assign_levels(demands, self.built.order, shifts).changed(searched)
        own = {j.name: j.sender for j in self._demands.inputs.jobs}
        senders = {n: as_mltcp(own[n]) for n, on in zip(names, choice.mltcp, strict=True) if on}
        return Candidate(routing, shifts, priorities, senders, search_reason(found))

    def _placed(self, found: SearchResult) -> Mapping[str, Assignment]:
        """Path and source port of each flow. The port is None where no free port is known to lead along the
        path."""
        x = self._demands.inputs
        result = dict(self.built.routing.placed)
        before = x.previous.flows if x.previous else {}
        fixed = kept_ports(x.queue_pairs)
        moved = [
            (name, self._candidate_paths[name][number])
            for name, number in zip(self._flows, found.choice.path_choice, strict=True)
            if self._candidate_paths[name][number] != result[name].path
        ]
        for name, _ in moved:
            del result[name]
        used: dict[tuple[str, str], set[int]] = defaultdict(set)
        for a in result.values():
            if a.path and a.source_port:
                used[a.path[0], a.path[-1]].add(a.source_port)
        for name, path in moved:
            ends, was = (path[0], path[-1]), before.get(name)
            kept = was is not None and was.path == path and was.source_port not in used[ends]
            port = fixed.get(name) or (was.source_port if was and kept else None)
            if port is None:
                port = free_port(x.topology, self._demands.forwarding, path, used[ends], x.learned)
            if port is not None:
                used[ends].add(port)
            result[name] = Assignment(path, port, kept, "")
        return {f.name: result[f.name] for f in self._demands.elephants if f.name in result}

    def _schedule(self, found: SearchResult, routing: RoutingStage) -> SlotSchedule:
        """The slots that the search chose, as one group: their shifts are relative to one another."""
        slots: dict[str, JobSlot] = {}
        reasons: dict[str, str] = {}
        for job, timing in zip(self.instance.jobs, found.choice.timings, strict=True):
            if timing != UNSCHEDULED:
                slots[job.name] = JobSlot(timing[0], timing[1], 0)
            elif any(job.name in pair for pair in self.built.shifts.contending):
                reasons[job.name] = "in the joint search it gained nothing from sharing links in time"
        fits = []
        for link in routing.shared:
            jobs = [j for j in link.demands if j in slots]
            if len(jobs) < 2 or not contended(link, SLACK):
                continue
            periods = {j: slots[j].period_ns for j in jobs}
            got = score(only(link, jobs), periods, {j: slots[j].shift_ns for j in jobs}, slack=SLACK)
            fits.append(LinkFit(link.name, tuple(jobs), got, got))
        sharing = {j for f in fits for j in f.jobs}
        return SlotSchedule({j: s for j, s in slots.items() if j in sharing}, reasons, tuple(fits), ())


def _longer(phases: Sequence[Phase], by: int, period: int) -> tuple[Phase, ...]:
    """The phases, each ending `by` ns later, but not after the start of the next phase."""
    until = [p.start_ns for p in phases[1:]] + [period]
    return tuple(replace(p, end_ns=min(p.end_ns + by, t)) for p, t in zip(phases, until, strict=True))
