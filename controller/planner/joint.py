# SPDX-License-Identifier: Apache-2.0
"""Time and space as one loop: what still overlaps in time is routed, ordered and shifted anew."""

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
from controller.planner.demand import Demands
from controller.planner.levels_only import levels_only
from controller.planner.loop.search import SearchLimits, SearchResult, solve
from controller.planner.pinned_flows import kept_ports
from controller.planner.priority_stage import PriorityStage
from controller.planner.reasons import loop_why
from controller.planner.routing_stage import RoutingStage
from controller.planner.search_instance import JITTER, composed, instance_of
from controller.planner.starting_points import StartingPoint, starting_points
from controller.planner.time_shifts import TimeShifts, only
from controller.routing.assign import Assignment, free_port
from controller.routing.ecmp import draw_port
from controller.routing.paths import Path, path_of, paths

# What is planned on the fly must be quick: the search is bounded by what it looks at.
LIMITS = SearchLimits(
    evaluations=48,
    max_work=60_000,
    starts=1,
    quick=Effort((101,), 16),
    # Long enough for rhythms to fall apart that are too tight to last.
    thorough=Effort((201, 202, 203), 80),
    arranged_sets=1,
    exchanges=300,
    min_gain=0.01,
)
SENDERS_WORTH = 0.03
"""What MLTCP for some jobs has to gain over the best plan without: by the judge shares follow F at once,
while senders on packets take some iterations."""
_PLAIN = "the best without MLTCP"
_MOST_JOBS, _MOST_FLOWS, _MOST_WAYS, _FEW_JOBS = 32, 1_500, 16, 6
_MOST_COST = 1_000_000
"""Of one sure look, by the judge's measure of work: about a second."""


@dataclass(frozen=True)
class Joint:
    """The loop for one planning run, on what the stages one after another have come to."""

    space: RoutingStage
    rhythms: TimeShifts
    order: PriorityStage

    @property
    def _demands(self) -> Demands:
        return self.space.demands

    @cached_property
    def wanted(self) -> bool:
        """Whether the policy has all three mechanisms, some jobs still meet in time or would by a little
        jitter, and all are measured."""
        policy = self._demands.inputs.policy
        if policy.routing == "ecmp" or policy.priority != "crux" or policy.interleave != "circles":
            return False
        # The loop's judge knows no cap on losses.
        if not policy.compress or policy.loss_cap is not None:
            return False
        if not (self.rhythms.contending or self._tight):
            return False
        return all(self._demands.jobs[f.job].profile.phases for f in self._demands.elephants)

    @cached_property
    def crowded(self) -> bool:
        """Whether there are more jobs, flows or (of jobs quick and slow together) iterations than the loop
        can judge in time."""
        if len({f.job for f in self._demands.elephants}) > _MOST_JOBS or len(self._flows) > _MOST_FLOWS:
            return True
        paths = {name: (self.space.assignments[name].path or (),) for name in self._flows}
        instance = instance_of(self._demands, paths)
        return Evaluator(instance).cost(plain(instance, (0,) * len(paths)), LIMITS.thorough) > _MOST_COST

    @property
    def due(self) -> bool:
        """Whether the loop decides."""
        return self.wanted and not self.crowded

    @cached_property
    def _tight(self) -> bool:
        """Whether jobs that take turns on some link leave no gaps: they would meet if their phases grew by
        JITTER of a period either way."""
        held = self.rhythms.holding.slots
        for link in self.space.shared:
            periods = {j: held[j].period_ns for j in link.demands if j in held}
            if len(periods) < 2 or not contended(link, SLACK):
                continue
            more = {j: round(2 * JITTER * t) for j, t in periods.items()}
            demands = {j: _longer(link.demands[j], more[j], t) for j, t in periods.items()}
            shifts = {j: held[j].shift_ns - more[j] // 2 for j in periods}
            if score(replace(link, demands=demands), periods, shifts, slack=SLACK) < SLOT_SCORE:
                return True
        return False

    @cached_property
    def found(self) -> SearchResult | None:
        """What the loop decides; None where it is not due."""
        if not self.due:
            return None
        given = {"as composed": self._composed}
        before = self._before
        if before is not None:
            given = {"as before": before} | given
        found = self._solved(given, LIMITS, mltcp=False)
        able = any(p.mltcp_capable for p in self.instance.jobs)
        if not able or found.utilisation * (1 + SENDERS_WORTH) >= found.bound:
            return found
        limits = replace(LIMITS, min_gain=SENDERS_WORTH)
        weighed = self._solved({_PLAIN: found.choice}, limits, mltcp=True)
        judged = found.evaluations + weighed.evaluations
        if weighed.choice == found.choice:
            return replace(found, evaluations=judged)
        return replace(weighed, evaluations=judged, baselines={**found.baselines, **weighed.baselines})

    def _solved(self, given: Mapping[str, Choice], limits: SearchLimits, *, mltcp: bool) -> SearchResult:
        return solve(
            self.instance,
            {"ecmp": self._ecmp, "composed": self._composed.path_choice},
            given=given,
            others=self._others,
            mltcp=mltcp,
            limits=limits,
            plain=len(self.instance.jobs) <= _FEW_JOBS,
            seed=self._demands.inputs.seed,
        )

    @cached_property
    def _flows(self) -> tuple[str, ...]:
        """The elephants that have a way, job by job."""
        placed = self.space.assignments
        return tuple(f.name for f in self._demands.elephants if f.name in placed and placed[f.name].path)

    @cached_property
    def _ways(self) -> Mapping[str, tuple[Path, ...]]:
        """The paths of each flow: the one it has first, then ECMP's, then as many as are tried."""
        x, table = self._demands.inputs, self.space.table
        flow_of = {f.name: f for f in self._demands.elephants}
        found = {}
        for name in self._flows:
            flow, now = flow_of[name], self.space.assignments[name].path
            drawn = self._drawn(name, flow.src, flow.dst)
            theirs = [r.paths[name] for r in self._rivals if name in r.paths]
            every = paths(x.topology, table, flow.src, flow.dst)
            listed = [p for p in (now, drawn, *theirs) if p in every]
            found[name] = tuple(dict.fromkeys((*listed, *every)))[:_MOST_WAYS]
        return found

    def _drawn(self, flow: str, src: str, dst: str) -> Path:
        """ECMP's path, by the port that the flow would draw; empty where nobody knows the hash."""
        x = self._demands.inputs
        return path_of(x.topology, self.space.table, src, dst, draw_port(flow, x.seed))

    @cached_property
    def instance(self) -> Instance:
        """The jobs with elephants, as the loop sees them."""
        return instance_of(self._demands, self._ways)

    @cached_property
    def _ecmp(self) -> tuple[int, ...]:
        ways = []
        for name in self._flows:
            drawn = self._drawn(name, self._ways[name][0][0], self._ways[name][0][-1])
            ways.append(self._ways[name].index(drawn) if drawn in self._ways[name] else 0)
        return tuple(ways)

    @cached_property
    def _rivals(self) -> tuple[StartingPoint, ...]:
        """What other policies would decide."""
        return tuple(starting_points(self._demands.inputs))

    @cached_property
    def _others(self) -> Mapping[str, Choice]:
        """The rivals' decisions as whole plans; where a rival leaves a flow to ECMP, it goes ECMP's way."""
        count = len(self.instance.jobs)
        found = {}
        for rival in self._rivals:
            ways = tuple(
                self._ways[name].index(rival.paths[name])
                if rival.paths.get(name) in self._ways[name]
                else way
                for name, way in zip(self._flows, self._ecmp, strict=True)
            )
            level = tuple(rival.levels[p.name] for p in self.instance.jobs)
            found[f"policy {rival.policy}"] = Choice(ways, level, (UNSCHEDULED,) * count, (False,) * count)
        return found

    @cached_property
    def _composed(self) -> Choice:
        return composed(self.instance, self.rhythms, self.order)

    @cached_property
    def _before(self) -> Choice | None:
        """The plan in force, if all of it still stands."""
        x = self._demands.inputs
        old = x.previous
        if old is None or old.policy != x.policy:
            return None
        ways, level, rhythm, mltcp = [], [], [], []
        for name in self._flows:
            was = old.flows.get(name)
            if was is None or was.path not in self._ways[name]:
                return None
            ways.append(self._ways[name].index(was.path))
        for player in self.instance.jobs:
            job = old.jobs.get(player.name)
            if job is None:
                return None
            level.append(job.level)
            mltcp.append(job.sender == "mltcp")
            if mltcp[-1] and not player.mltcp_capable:
                return None
            period = job.period_ns
            if period is None:
                rhythm.append(UNSCHEDULED)
            elif player.alone_ns * 0.9995 <= period <= self.instance.slowest * player.alone_ns:
                rhythm.append((period, (job.shift_ns + old.epoch_ns - x.epoch_ns) % period))
            else:
                return None
        return Choice(tuple(ways), tuple(level), tuple(rhythm), tuple(mltcp))

    def stages(self) -> tuple[RoutingStage, TimeShifts, PriorityStage]:
        """The stages as the loop has them; as they were where it changes nothing. Unjudged ones where it
        would be too much for it."""
        if self.wanted and self.crowded and self.rhythms.contending:
            return levels_only(self._demands)
        found = self.found
        if found is None:
            return self.space, self.rhythms, self.order
        if found.choice == self._composed:
            return self.space, self.rhythms, replace(self.order, why=loop_why(found))
        space = replace(self.space, given=self._placed(found))
        rhythms = TimeShifts(space.demands, space.shared, self.rhythms.order)
        rhythms = replace(rhythms, given=self._holding(found, rhythms))
        names = [p.name for p in self.instance.jobs]
        levels = dict(zip(names, found.choice.level, strict=True))
        senders = {n: "mltcp" for n, on in zip(names, found.choice.mltcp, strict=True) if on}
        order = replace(self.order, rhythms=rhythms, given=levels, why=loop_why(found), senders=senders)
        return space, rhythms, order

    def _placed(self, found: SearchResult) -> Mapping[str, Assignment]:
        """Paths and ports by flow; a path that no free port is known to lead along is left without."""
        x = self._demands.inputs
        result = dict(self.space.placed)
        before = x.previous.flows if x.previous else {}
        fixed = kept_ports(x.queue_pairs)
        moved = [
            (name, self._ways[name][way])
            for name, way in zip(self._flows, found.choice.path_choice, strict=True)
            if self._ways[name][way] != result[name].path
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
                port = free_port(x.topology, self.space.table, path, used[ends], x.learned)
            if port is not None:
                used[ends].add(port)
            result[name] = Assignment(path, port, kept, "")
        return {f.name: result[f.name] for f in self._demands.elephants if f.name in result}

    def _holding(self, found: SearchResult, rhythms: TimeShifts) -> SlotSchedule:
        """The loop's rhythms in the planner's terms; those who keep step on a link are one group."""
        held: dict[str, JobSlot] = {}
        reasons: dict[str, str] = {}
        for player, rhythm in zip(self.instance.jobs, found.choice.timings, strict=True):
            if rhythm != UNSCHEDULED:
                held[player.name] = JobSlot(rhythm[0], rhythm[1], 0)
            elif any(player.name in pair for pair in self.rhythms.contending):
                reasons[player.name] = "taking turns would gain nothing, by the loop's judge"
        fits = []
        for link in rhythms.shared:
            jobs = [j for j in link.demands if j in held]
            if len(jobs) < 2 or not contended(link, SLACK):
                continue
            periods = {j: held[j].period_ns for j in jobs}
            got = score(only(link, jobs), periods, {j: held[j].shift_ns for j in jobs}, slack=SLACK)
            fits.append(LinkFit(link.name, tuple(jobs), got, got))
        meeting = {j for f in fits for j in f.jobs}
        return SlotSchedule({j: h for j, h in held.items() if j in meeting}, reasons, tuple(fits), ())


def _longer(phases: Sequence[Phase], by: int, period: int) -> tuple[Phase, ...]:
    """Phases that end so much (ns) later, but before the next begins."""
    until = [p.start_ns for p in phases[1:]] + [period]
    return tuple(replace(p, end_ns=min(p.end_ns + by, t)) for p, t in zip(phases, until, strict=True))
