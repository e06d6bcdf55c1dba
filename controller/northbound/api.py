# SPDX-License-Identifier: Apache-2.0
"""The REST API under /api/v1, its OpenAPI document, and the page beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, Header, HTTPException, Query, Request
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from fastapi_offline import FastAPIOffline
from sse_starlette import EventSourceResponse

from controller.northbound import render, schema
from controller.northbound.access import AccessCheck
from controller.northbound.access_rules import AccessRules
from controller.northbound.audit_routes import audit_routes
from controller.northbound.circle_routes import circle_routes
from controller.northbound.cut_routes import cut_routes
from controller.northbound.drain_routes import drain_routes
from controller.northbound.etags import tag_of
from controller.northbound.event_feed import EventFeed
from controller.northbound.explain import ExplainedOut, explained
from controller.northbound.fabric_routes import fabric_routes
from controller.northbound.flow_routes import flow_routes
from controller.northbound.fresh import READING_S, FreshViews
from controller.northbound.health import HEALTH_PATHS, health_routes
from controller.northbound.history_routes import history_routes
from controller.northbound.job_routes import job_routes
from controller.northbound.metrics import METRICS_PATH, MetricsSource, metrics_routes
from controller.northbound.open_requests import OpenRequests
from controller.northbound.operations import Operations
from controller.northbound.paging import USUAL, Most, Start
from controller.northbound.placement_routes import placement_routes
from controller.northbound.plan_routes import plan_routes
from controller.northbound.policy_routes import policy_routes
from controller.northbound.problems import add_handlers, problems
from controller.northbound.request_rate import RequestRate
from controller.northbound.source import ViewSource, current_view
from controller.northbound.table_routes import table_routes
from controller.northbound.web import ASKS_FOR_HEAD, ResponseHeaders
from controller.northbound.what_if_routes import what_if_routes
from controller.wire.limits import MAX_WEB_REQUESTS
from polyrhythm_files import listed

PREFIX = "/api/v1"
_DOCS = f"{PREFIX}/docs"
EVENT_STREAM = "text/event-stream"
# Whoever watches whether the process lives has no token.
PUBLIC_PATHS = frozenset({*HEALTH_PATHS, *(f"{PREFIX}{path}" for path in HEALTH_PATHS)})
_ABOUT = """\
The state of the Polyrhythm controller: jobs, plan, fabric and counters.

Most of the API only reads. What changes something needs the role operate, where the server asks for tokens.
The end of a field's name is its unit: `_ns`, `_ms`, `_bps`. Times are fabric time.
Rates are those of the running fabric; an emulated fabric is slower than the fabric it stands for.
Until the controller has connected to its fabric, calls answer 503. `stream` waits. `healthz` tells whether
the process lives, and `readyz` what is missing.
"""
_NO_VIEW = problems(_503="The controller has not connected to its fabric yet.")


def create_app(
    source: ViewSource,
    assets: Path | None,
    status: MetricsSource,
    reading_s: float = READING_S,
    rules: AccessRules = AccessRules(),  # noqa: B008 - frozen
    operations: Operations = Operations(),  # noqa: B008 - frozen
    most_open: int = MAX_WEB_REQUESTS,
) -> FastAPI:
    """The web application that shows the views of `source`, and answers health checks from `status`.

    `assets` is the folder of the page that is served at `/`; None: no page, only the API. A request for
    counters or loads waits for `reading_s` at most. At most `most_open` requests are open at once. `rules`
    say who may call; the default serves a port that only this machine reaches. Setting the `asyncio.Event` at
    `app.state.closing` ends all open event streams (`web.serve` does so).
    """
    app = FastAPIOffline(
        docs_url=_DOCS,
        redoc_url=None,
        title="Polyrhythm",
        version="1",
        description=_ABOUT,
        openapi_url=f"{PREFIX}/openapi.json",
        static_url=f"{_DOCS}/assets",
        swagger_ui_oauth2_redirect_url=f"{_DOCS}/oauth2-redirect",
        # Swagger UI would otherwise send the document's address to a public validator.
        swagger_ui_parameters={"validatorUrl": None, "defaultModelsExpandDepth": 0},
    )
    app.state.closing = asyncio.Event()
    # The last one added is the first that sees a request.
    app.add_middleware(AccessCheck, rules=rules, public=PUBLIC_PATHS)
    app.add_middleware(OpenRequests, exempt=PUBLIC_PATHS, stream=f"{PREFIX}/stream", most=most_open)
    app.add_middleware(RequestRate, exempt=PUBLIC_PATHS)
    heads = (*HEALTH_PATHS, METRICS_PATH)
    app.add_middleware(ResponseHeaders, docs_path=_DOCS, api_path=PREFIX, head_paths=heads)
    add_handlers(app, PREFIX, PUBLIC_PATHS)
    # Health checks are where Kubernetes and load balancers look for them, and beside the rest of the API.
    app.include_router(health_routes(status), include_in_schema=False)
    app.include_router(metrics_routes(source, status))
    app.include_router(health_routes(status), prefix=PREFIX)
    app.include_router(plan_routes(operations.plans), prefix=PREFIX)
    app.include_router(placement_routes(operations.placements), prefix=PREFIX)
    app.include_router(flow_routes(source), prefix=PREFIX)
    app.include_router(drain_routes(operations.drains), prefix=PREFIX)
    app.include_router(cut_routes(operations.cuts), prefix=PREFIX)
    app.include_router(what_if_routes(operations.what_if), prefix=PREFIX)
    app.include_router(policy_routes(operations.policy), prefix=PREFIX)
    app.include_router(job_routes(operations.jobs), prefix=PREFIX)
    app.include_router(audit_routes(rules.audit), prefix=PREFIX)
    fresh = FreshViews(source, reading_s)
    app.include_router(fabric_routes(fresh), prefix=PREFIX)
    app.include_router(history_routes(operations.history), prefix=PREFIX)
    app.include_router(table_routes(operations.tables), prefix=PREFIX)
    app.include_router(circle_routes(operations.circles), prefix=PREFIX)
    app.include_router(_routes(source, app.state.closing, fresh), prefix=PREFIX)
    if assets is not None:
        app.mount("/", StaticFiles(directory=assets, html=True), name="page")
    return app


def _routes(source: ViewSource, closing: asyncio.Event, fresh: FreshViews) -> APIRouter:
    router = APIRouter()
    feed = EventFeed(source, closing)

    @router.get(
        "/jobs",
        summary="The live jobs",
        tags=["jobs"],
        responses=_NO_VIEW | problems(_404="No such cursor."),
    )
    async def get_jobs(start: Start, most: Most = USUAL) -> schema.JobsOut:
        return render.jobs(current_view(source), start, most)

    @router.get(
        "/jobs/{name}",
        summary="One job and its flows",
        tags=["jobs"],
        responses=_NO_VIEW | problems(_404="No such job."),
    )
    async def get_job(name: str) -> schema.JobDetailOut:
        view = current_view(source)
        for job in view.jobs:
            if job.name == name:
                return render.job_detail(job, view.plan, view.fallback_flows)
        raise HTTPException(404, f"no job {name!r}; present jobs: {_names(j.name for j in view.jobs)}")

    @router.get(
        "/jobs/{name}/explain",
        summary="Why a job has its paths, level and time-shift, and what else there was",
        description="In sentences, and in numbers: for each flow the live paths that were not taken, and how "
        "full their links would be; the jobs that it meets with their levels; expected times.",
        tags=["jobs"],
        responses=_NO_VIEW | problems(_404="No such job, or no plan contains it."),
    )
    async def get_explanation(name: str) -> ExplainedOut:
        view = current_view(source)
        job = next((job for job in view.jobs if job.name == name), None)
        if job is None:
            raise HTTPException(404, f"no job {name!r}; present jobs: {_names(j.name for j in view.jobs)}")
        planned = view.plan.jobs.get(name) if view.plan is not None else None
        if view.plan is None or planned is None:
            why = job.left_out or "a plan with it is being made"
            raise HTTPException(404, f"no plan contains job {name}: {why}")
        # A plan of many flows takes a while to look through.
        return await asyncio.to_thread(explained, view, job, view.plan, planned)

    @router.get(
        "/plan",
        summary="What the controller has decided, and why",
        tags=["plan"],
        responses=_NO_VIEW | problems(_404="No plan has been made yet, or no such cursor."),
    )
    async def get_plan(response: Response, start: Start, most: Most = USUAL) -> schema.PlanOut:
        view = current_view(source)
        if view.plan is None:
            raise HTTPException(404, "no plan yet: the first one is made when the first job arrives")
        response.headers["ETag"] = tag_of(view.plan.version)
        # A plan of many flows takes a while to sort.
        return await asyncio.to_thread(render.plan_page, view.plan, view.fallback_flows, start, most)

    @router.get(
        "/fabric",
        summary="Nodes, cables and their load",
        tags=["fabric"],
        responses=_NO_VIEW | problems(_404="No such cursor."),
    )
    async def get_fabric(start: Start, most: Most = USUAL) -> schema.FabricOut:
        # A load is the difference between two polls.
        return await asyncio.to_thread(render.fabric, await fresh.after_polls(2), start, most)

    @router.get(
        "/counters",
        summary="Packets, bytes and ECN marks of every queue",
        tags=["fabric"],
        responses=_NO_VIEW | problems(_404="No such switch, or no such cursor."),
    )
    async def get_counters(
        start: Start,
        switch: Annotated[
            list[str] | None, Query(description="Only these switches (may be repeated).")
        ] = None,
        most: Most = USUAL,
    ) -> schema.CountersOut:
        view = current_view(source)
        for name in switch or ():
            if name not in view.topology.switch:
                raise HTTPException(
                    404, f"no switch {name!r}; present switches: {_names(view.topology.switch)}"
                )
        wanted = frozenset(switch) if switch else None
        return await asyncio.to_thread(render.counters, await fresh.after_polls(1), wanted, start, most)

    @router.get(
        "/stream",
        summary="A keyframe, then the differences to it",
        description="Server-sent events: one `keyframe`, then `difference` events, at most one a second and "
        "20,000 bytes. A client that comes back with `Last-Event-ID` gets the differences that it has "
        "missed, or a new keyframe.",
        tags=["events"],
        response_class=EventSourceResponse,
        responses={200: {"description": "An endless stream.", "content": {EVENT_STREAM: {"schema": {}}}}},
    )
    async def get_stream(
        request: Request,
        last_event_id: Annotated[
            str | None, Header(max_length=100, description="`id` of the last event that was seen.")
        ] = None,
        accept_encoding: Annotated[str, Header(include_in_schema=False)] = "",
        resume: Annotated[
            str | None, Query(alias="last_event_id", max_length=100, description="As the header.")
        ] = None,
    ) -> Response:
        if ASKS_FOR_HEAD in request.scope:
            return Response(media_type=EVENT_STREAM)
        return feed.response(last_event_id or resume, accept_encoding)

    @router.get("/{path:path}", include_in_schema=False)
    async def get_nothing(path: str, request: Request) -> None:
        paths = (path for path in request.app.openapi()["paths"] if path.startswith(PREFIX))
        known = ", ".join(path.removeprefix(PREFIX) for path in paths)
        raise HTTPException(404, f"no /{path} under {PREFIX}; legal: {known}, /openapi.json, /docs")

    return router


def _names(names: Iterable[str]) -> str:
    """The first few legal names, for an error message."""
    return listed(sorted(names), render.NAMED)
