# SPDX-License-Identifier: Apache-2.0
"""The joint search of paths, levels, time-shifts and senders, for jobs that still overlap in time.

The search starts from the built candidate, from the plan in force and from the plans of baseline policies. It
evaluates changes of them, and makes a new candidate of the best.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance, plain
from controller.interleave.joint.timings import rotation_cache_of
from controller.interleave.slot_schedule import RotationCache
from controller.kernel import available
from controller.planner.candidate import Candidate, Expected, PathsAndShifts
from controller.planner.demand import Demands
from controller.planner.drawn_paths import drawn_ways
from controller.planner.ecmp_reference import EcmpLengths, EcmpReference
from controller.planner.floor import equal_shares, expected_of, longest_periods, objective_of
from controller.planner.levels_only import levels_only
from controller.planner.loop.objective import Objective
from controller.planner.loop.plan_values import Measured, PlanValues, Stop, never
from controller.planner.loop.search import SearchLimits, SearchResult, solve
from controller.planner.pinned_flows import kept_ports
from controller.planner.priority_stage import assign_levels
from controller.planner.reasons import search_reason
from controller.planner.routing_stage import RoutingStage
from controller.planner.search_instance import JITTER, choice_of, instance_of, previous_choice
from controller.planner.searched_slots import searched_schedule, tight
from controller.planner.starting_points import StartingPoint, starting_points
from controller.planner.time_shifts import TimeShifts
from controller.routing.assign import Assignment, free_port
from controller.routing.cable_links import Way
from controller.routing.paths import Path, paths
from controller.wire.senders import as_mltcp

LONGER = 0.02
"""Thorough evaluations also look at Up phases that are longer by this part. Chosen: about twice the
evaluator's mean error. A plan whose bursts fit only just fails on packets, and this shows it."""
LIMITS = SearchLimits(
    evaluations=48,
    max_work=60_000,
    starts=1,
    quick=Effort((101,), 16),
    # Several start times show how far a job may be from its mean. 40 iterations are long enough to show that
    # time-shifts without gaps do not last.
    thorough=Effort((201, 202, 203, 204, 205, 206), 40, LONGER),
    arranged_sets=1,
    exchanges=300,
    min_gain=0.01,
)
"""Chosen: a live plan with a search takes about a second. The limit is work, not time, so that the result
does not depend on a clock."""
MLTCP_MIN_GAIN = 0.04
"""The part of GPU utilisation that a plan with MLTCP for some jobs must gain over the best plan without it.
Chosen: the evaluator lets shares follow MLTCP's F at once, while real senders need some iterations. On
packets, plans of which it expects 4 % or more gained 4 %, all others nothing in the mean, and from -9 to
+16 % each (docs/battery.md)."""
_WITHOUT_MLTCP = "the best without MLTCP"
_MOST_JOBS, _MOST_FLOWS = 32, 1_500
"""With more jobs or more flows only levels are searched. Chosen: a search at these sizes takes about a
second."""
_MOST_PATHS = 16
"""The most candidate paths of a flow."""
_FEW_JOBS = 3
"""For so few jobs the plain search of rotations takes less time than loading the compiled one. Measured."""
_MOST_COST = 20_000
"""The most work of one thorough evaluation, in the unit of `Evaluator.work_done`. Chosen: a search evaluates
about 40 times as much, and the compiled loops do about a million a second."""
_PLAIN = 30
"""How many times less work is done without the compiled loops, which are about that much faster. Measured."""
_FEWEST_ITERATIONS = 16
"""A thorough evaluation has at least this number of iterations, however long each takes to compute.
Chosen."""


@dataclass(frozen=True)
class JointSearch:
    """The search of one planning run. `built` is what the policy's three objects decided. Once `stop` says
    so, the search ends with the best that it has."""

    built: PathsAndShifts
    stop: Stop = never

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
        return self._cost(_FEWEST_ITERATIONS) > _most_cost()

    def _cost(self, iterations: int) -> int:
        """The work of a thorough evaluation of so many iterations, on the built paths, all jobs on one
        level."""
        built, effort = self._built_evaluator, replace(LIMITS.thorough, iterations=iterations)
        return built.cost(plain(built.instance, (0,) * len(built.instance.flows)), effort)

    @cached_property
    def _on_built_paths(self) -> Instance:
        ways = self.built.routing.ways
        return instance_of(self._demands, {name: (ways[name],) for name in self._flows})

    @cached_property
    def _built_evaluator(self) -> Evaluator:
        return Evaluator(self._on_built_paths)

    @cached_property
    def _limits(self) -> SearchLimits:
        """LIMITS, with fewer iterations in a thorough evaluation where it would be too much work."""
        cost = self._cost(LIMITS.thorough.iterations)
        return replace(LIMITS, thorough=LIMITS.thorough.within(_most_cost(), cost, _FEWEST_ITERATIONS))

    @cached_property
    def start(self) -> Candidate:
        """The built candidate with its levels.

        Slots keep jobs apart, so these jobs need no order, and get one level. If a burst of one lasts longer
        than its profile says, it meets the next one: on equal levels both are a little late, on a lower level
        it would wait for the whole burst and lose its slot, period after period.
        """
        found = self.built.with_levels()
        if not self._demands.inputs.policy.joint_search:
            return found
        return replace(found, priorities=found.priorities.on_one_level(self._apart_in_time))

    @property
    def _apart_in_time(self) -> Iterable[list[str]]:
        """Jobs that keep step with one another and overlap with no job."""
        overlapping = self.built.shifts.overlapping_jobs
        groups: dict[int, list[str]] = defaultdict(list)
        for name, slot in self.built.shifts.schedule.slots.items():
            if not overlapping.get(name):
                groups[slot.group].append(name)
        return groups.values()

    def chosen(self) -> Candidate:
        """The best candidate.

        It is the built candidate if no search is wanted or the search finds nothing better. If the problem is
        too large for the search, only levels are searched. Where nothing is searched or evaluated and jobs
        contend, a policy with a floor puts all jobs on one level.
        """
        if self.wanted and self.too_large:
            return levels_only(self.built, self.stop)
        found = self.found
        if found is None:
            return self._unsearched()
        policy, jobs = self._demands.inputs.policy, self.instance.jobs
        reason = search_reason(found, policy, self._ecmp_lengths.mean, [p.name for p in jobs])
        expected = expected_of(policy, jobs, found.value.lengths, self._ecmp_lengths)
        if found.choice == self._start_choice:
            return replace(self.start, reason=reason, expected=expected)
        return replace(self._candidate(found), reason=reason, expected=expected)

    def _unsearched(self) -> Candidate:
        """The built candidate, unless the policy has a floor that it does not keep."""
        policy, start = self._demands.inputs.policy, self.start
        if not policy.joint_search:
            return start
        expected = self._expected(start) if self._evaluable and not self.too_large else {}
        start = replace(start, expected=expected)
        if policy.max_slowdown is None or not self.built.shifts.contending:
            return start
        if not expected:
            unknown = [n for n, j in self._demands.jobs.items() if j.flows and not j.profile.phases]
            known = "too many jobs and flows to evaluate plans"
            why = f"{', '.join(unknown)} cannot be evaluated without a profile" if unknown else known
            return equal_shares(self._demands, why)
        slow = [n for n, e in expected.items() if e.floor_ns is not None and e.expected_ns > e.floor_ns]
        if slow:
            return equal_shares(self._demands, f"{', '.join(slow)} would be below the floor")
        return start

    @cached_property
    def _ecmp_lengths(self) -> EcmpLengths:
        """The iteration of each job under plain ECMP. Only where plans can be evaluated."""
        iterations = self._limits.thorough.iterations
        return EcmpReference(self._demands, self._flows, iterations).lengths()

    @property
    def _evaluable(self) -> bool:
        """Whether the evaluator can compute plans: all jobs with elephants have a profile."""
        return all(self._demands.jobs[f.job].profile.phases for f in self._demands.elephants)

    def _expected(self, candidate: Candidate) -> Mapping[str, Expected]:
        """What the evaluator expects of the built candidate."""
        instance, policy = self._on_built_paths, self._demands.inputs.policy
        values = PlanValues(self._built_evaluator, self._objective)
        value = values.value(choice_of(instance, candidate), self._limits.thorough)
        return expected_of(policy, instance.jobs, value.lengths, self._ecmp_lengths)

    @cached_property
    def _tight(self) -> bool:
        """Whether jobs that share a link in time would overlap with a little jitter."""
        return tight(self.built.routing.shared, self.built.shifts.schedule.slots, JITTER)

    @cached_property
    def found(self) -> SearchResult | None:
        """The result of the search; None where it is not wanted or the problem is too large."""
        if not self.wanted or self.too_large:
            return None
        given = {"as composed": self._start_choice}
        before = self._before
        if before is not None:
            # Without its MLTCP: jobs that keep it would be exempt from the gain that it has to show below.
            given = {"as before": replace(before, mltcp=self._start_choice.mltcp)} | given
        found = self._solved(given, mltcp=False)
        capable = any(p.mltcp_capable for p in self.instance.jobs)
        hopeless = found.value.met and found.utilisation * (1 + MLTCP_MIN_GAIN) >= found.bound
        if found.stopped or not capable or hopeless:
            return found
        given = {_WITHOUT_MLTCP: found.choice} | ({} if before is None else {"as before": before})
        with_mltcp = self._solved(given, mltcp=True)
        evaluations = found.evaluations + with_mltcp.evaluations
        gained = with_mltcp.utilisation >= found.utilisation * (1 + MLTCP_MIN_GAIN)
        if not gained and with_mltcp.value.rank >= found.value.rank:
            return replace(found, evaluations=evaluations)
        return replace(
            with_mltcp, evaluations=evaluations, baselines={**found.baselines, **with_mltcp.baselines}
        )

    def _solved(self, given: Mapping[str, Choice], *, mltcp: bool) -> SearchResult:
        return solve(
            self.instance,
            {"ecmp": self._ecmp, "composed": self._start_choice.path_choice},
            objective=self._objective,
            given=given,
            others=self._others,
            measured=self._measured,
            mltcp=mltcp,
            limits=self._limits,
            evaluator=self._evaluator,
            cache=self._rotations,
            stop=self.stop,
            seed=self._demands.inputs.seed,
        )

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.instance)

    @cached_property
    def _rotations(self) -> RotationCache:
        fast = len(self.instance.jobs) > _FEW_JOBS
        return rotation_cache_of(self.instance, fast=fast, seed=self._demands.inputs.seed)

    @cached_property
    def _flows(self) -> tuple[str, ...]:
        """The names of the elephants that have a path, grouped by job."""
        placed = self.built.routing.assignments
        return tuple(f.name for f in self._demands.elephants if f.name in placed and placed[f.name].path)

    @cached_property
    def _candidates(self) -> Mapping[str, Mapping[Way, Path]]:
        """The candidate paths of each flow by their links: the built candidate's first, then ECMP's, those of
        the baseline policies, and all others. A path over parallel cables is there once for each cable."""
        x, table = self._demands.inputs, self._demands.forwarding
        flow_of, cables = self._demands.elephant, self._demands.cable_links
        found = {}
        for name in self._flows:
            flow, now = flow_of[name], self.built.routing.ways[name]
            drawn = self._drawn[name]
            others = [r.ways[name] for r in self._baselines if name in r.ways]
            every = paths(x.topology, table, flow.src, flow.dst)
            known = ((way, cables.path(way)) for way in (now, drawn, *others))
            listed = {way: path for way, path in known if path in every}
            for path in every:
                # The ways along a path take time to find, so no more are looked for than are kept.
                left = _MOST_PATHS - len(listed)
                if left <= 0:
                    break
                listed |= dict.fromkeys(cables.ways(path, _MOST_PATHS)[:left], path)
            found[name] = dict(list(listed.items())[:_MOST_PATHS])
        return found

    @cached_property
    def _listed(self) -> Mapping[str, tuple[Way, ...]]:
        """The candidates of each flow in their order."""
        return {name: tuple(ways) for name, ways in self._candidates.items()}

    @cached_property
    def _drawn(self) -> Mapping[str, Way]:
        """ECMP's links of each flow, by the source port that it draws. Empty if the hash is unknown."""
        return drawn_ways(self._demands, self._flows)[0]

    @cached_property
    def instance(self) -> Instance:
        """The input of the search: the jobs with elephants, and the candidate paths of their flows."""
        instance = instance_of(self._demands, self._listed)
        return replace(instance, longest_ns=longest_periods(self._objective))

    @cached_property
    def _objective(self) -> Objective:
        return objective_of(self._demands.inputs.policy, self._on_built_paths.jobs, self._ecmp_lengths)

    @cached_property
    def _ecmp(self) -> tuple[int, ...]:
        """The number of ECMP's path among the candidate paths of each flow; 0 if it is not one of them."""
        path_choice = []
        for name in self._flows:
            listed, drawn = self._listed[name], self._drawn[name]
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
                self._listed[name].index(baseline.ways[name])
                if baseline.ways.get(name) in self._listed[name]
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
    def _measured(self) -> Measured | None:
        """The plan in force, and the jobs that were measured below their floors; None if none was."""
        measured = self._demands.inputs.measured_ns
        found = {j: float(measured[p.name]) for j, p in enumerate(self.instance.jobs) if p.name in measured}
        return (self._before, found) if self._before is not None and found else None

    @cached_property
    def _before(self) -> Choice | None:
        return previous_choice(self._demands, self.instance, self._flows, self._listed)

    def _candidate(self, found: SearchResult) -> Candidate:
        """The candidate with the decisions of a search result."""
        demands, choice = self._demands, found.choice
        routing = RoutingStage(demands, self._placed(found), by_hash=False)
        names = [p.name for p in self.instance.jobs]
        timings = dict(zip(names, choice.timings, strict=True))
        contending = {job for pair in self.built.shifts.contending for job in pair}
        shifts = TimeShifts(demands, routing.shared, searched_schedule(timings, routing.shared, contending))
        searched = dict(zip(names, choice.level, strict=True))
        priorities = assign_levels(demands, self.built.order, shifts).changed(searched)
        own = {j.name: j.sender for j in self._demands.inputs.jobs}
        senders = {n: as_mltcp(own[n]) for n, on in zip(names, choice.mltcp, strict=True) if on}
        return Candidate(routing, shifts, priorities, senders)

    def _placed(self, found: SearchResult) -> Mapping[str, Assignment]:
        """Path and source port of each flow. The port is None where no free port is known to lead along the
        path."""
        x, cables = self._demands.inputs, self._demands.cable_links
        result = dict(self.built.routing.placed)
        before = x.previous.flows if x.previous else {}
        fixed = kept_ports(x.queue_pairs)
        chosen = [
            (name, self._listed[name][number])
            for name, number in zip(self._flows, found.choice.path_choice, strict=True)
        ]
        moved = [
            (name, way, self._candidates[name][way])
            for name, way in chosen
            if way != cables.way(result[name].path or (), result[name].source_port)
        ]
        for name, _, _ in moved:
            del result[name]
        used: dict[tuple[str, str], set[int]] = defaultdict(set)
        for a in result.values():
            if a.path and a.source_port:
                used[a.path[0], a.path[-1]].add(a.source_port)
        for name, way, path in moved:
            ends, was = (path[0], path[-1]), before.get(name)
            kept = was is not None and was.path == path and was.source_port not in used[ends]
            kept = kept and was is not None and cables.way(path, was.source_port) == way
            port = fixed.get(name) or (was.source_port if was and kept else None)
            if port is None and x.topology.bundles and x.topology.hash.known:
                port = cables.port(path, way, used[ends])
            if port is None:
                port = free_port(x.topology, self._demands.forwarding, path, used[ends], x.learned)
            if port is not None:
                used[ends].add(port)
            result[name] = Assignment(path, port, kept, "")
        return {f.name: result[f.name] for f in self._demands.elephants if f.name in result}


def _most_cost() -> int:
    """The most work of one thorough evaluation, with the loops that are installed."""
    return _MOST_COST if available() else _MOST_COST // _PLAIN
