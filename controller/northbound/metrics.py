# SPDX-License-Identifier: Apache-2.0
"""`/metrics`: the controller's figures for Prometheus, taken from its view and counts at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Protocol

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from controller.model.durations import Durations
from controller.model.view import View
from controller.northbound.health import StatusSource, ready
from controller.northbound.source import ViewSource
from controller.wire import metric_table as table
from controller.wire.metric_table import MOST_JOBS

METRICS_PATH = "/metrics"


@dataclass(frozen=True, slots=True)
class ControllerCounts:
    """What the controller has counted since its start; of a standby, nothing. The mappings go by switch."""

    sessions_lost: Mapping[str, int] = field(default_factory=dict)
    refused_updates: Mapping[str, int] = field(default_factory=dict)
    corrected_updates: Mapping[str, int] = field(default_factory=dict)
    agents: int = 0
    agent_sessions: int = 0
    agent_refusals: int = 0
    flow_answers: Durations = field(default_factory=lambda: Durations(()))
    plans: Durations = field(default_factory=lambda: Durations(()))
    writes: Durations = field(default_factory=lambda: Durations(()))
    jobs: Durations = field(default_factory=lambda: Durations(()))
    pauses: Durations = field(default_factory=lambda: Durations(()))
    plan_failures: int = 0
    step_s: float = 0.0
    log_lines_left_out: int = 0


class MetricsSource(StatusSource, Protocol):
    """The controller's status and counts."""

    def counts(self) -> ControllerCounts:
        """The counts now."""


class ControllerCollector:
    """Makes the metrics of the controller at each scrape."""

    def __init__(self, views: ViewSource, status: MetricsSource) -> None:
        self._views = views
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Every metric of the table that has a value now."""
        found, counts = self._status.readiness(), self._status.counts()
        missing = Counter(n.part for n in found.not_ready)
        yield table.BUILD_INFO.family([((version("polyrhythm"),), 1)])
        yield table.READY.family([((), ready(found).ready)])
        yield table.LEADS.family([((), found.place.role != "standby")])
        yield table.NOT_READY.family(
            ((part,), missing[part]) for part in ("leader", "switch", "agent", "store", "plan")
        )
        yield table.STEP.family([((), counts.step_s)])
        yield table.LOG_LINES.family([((), counts.log_lines_left_out)])
        silent = {n.name for n in found.not_ready if n.part == "switch"}
        yield table.SWITCH_LOSSES.family(_by_name(counts.sessions_lost))
        yield table.SWITCH_REFUSED.family(_by_name(counts.refused_updates))
        yield table.SWITCH_CORRECTED.family(_by_name(counts.corrected_updates))
        yield table.SWITCH_READY.family(((name,), name not in silent) for name in counts.sessions_lost)
        yield table.HOSTS.family([((), found.hosts)])
        yield table.AGENTS.family([((), counts.agents)])
        yield table.AGENT_SESSIONS.family([((), counts.agent_sessions)])
        yield table.AGENT_REFUSALS.family([((), counts.agent_refusals)])
        for kind, durations in (
            (table.FLOW_ANSWERS, counts.flow_answers),
            (table.PAUSES, counts.pauses),
            (table.JOB_SECONDS, counts.jobs),
            (table.PLAN_SECONDS, counts.plans),
            (table.WRITE_SECONDS, counts.writes),
        ):
            yield kind.histogram(durations.cumulative(), durations.total_s)
        yield table.PLAN_FAILURES.family([((), counts.plan_failures)])
        view = self._views.snapshot()
        if view is not None:
            yield from _of_view(view)


def _by_name(values: Mapping[str, int]) -> Iterable[tuple[tuple[str], int]]:
    return (((name,), value) for name, value in values.items())


def _of_view(view: View) -> Iterator[Metric]:
    yield table.SWITCH_ENTRIES.family(((s.name,), s.entries) for s in view.switches)
    yield table.LINKS_DOWN.family([((), sum(not link.up for link in view.links))])
    yield table.PLAN_VERSION.family([((), view.plan.version if view.plan is not None else 0)])
    yield table.PATHS.family([(("verified",), view.verified_paths), (("unverified",), view.unverified_paths)])
    yield table.FALLBACK_FLOWS.family([((), len(view.fallback_flows))])
    states = Counter(
        "left_out" if j.left_out else "measuring" if j.measuring else "planned" for j in view.jobs
    )
    yield table.JOBS.family(((state,), states[state]) for state in ("planned", "measuring", "left_out"))
    jobs = sorted(view.jobs, key=lambda j: j.name)[:MOST_JOBS]
    yield table.JOB_ITERATION.family(((j.name,), j.mean_ms / 1e3) for j in jobs if j.mean_ms is not None)
    yield table.JOB_ITERATIONS.family(((j.name,), j.iterations) for j in jobs)
    yield table.JOB_LEVEL.family(((j.name,), j.level) for j in jobs if j.level is not None)
    yield table.JOB_BREACHES.family(((j.name,), j.breaches) for j in jobs)
    if view.counters:
        yield table.SWITCH_STRAYS.family(
            ((s.name,), sum(stray.packets for stray in s.strays)) for s in view.switches
        )
        yield table.PORT_STRAYS.family(
            ((s.name, str(stray.port), stray.reason), stray.packets)
            for s in view.switches
            for stray in s.strays
        )
        totals: dict[tuple[str, str], list[int]] = {}
        for q in view.counters:
            sums = totals.setdefault((q.switch, str(q.qid)), [0, 0, 0])
            for i, value in enumerate((q.packets, q.bytes, q.marks)):
                sums[i] += value
        kinds = (table.QUEUE_PACKETS, table.QUEUE_BYTES, table.QUEUE_MARKS)
        for i, kind in enumerate(kinds):
            yield kind.family((at, sums[i]) for at, sums in totals.items())


def metrics_routes(views: ViewSource, status: MetricsSource) -> APIRouter:
    """The route, in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ControllerCollector(views, status))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    router = APIRouter()

    @router.get(METRICS_PATH, include_in_schema=False)
    async def get_metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return router
