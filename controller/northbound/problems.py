# SPDX-License-Identifier: Apache-2.0
"""Errors of the REST API as problem documents (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from http import HTTPStatus
from typing import Any, TypeVar, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.exceptions import HTTPException

from controller.northbound.examples import add_examples
from controller.northbound.schema import Out

T = TypeVar("T")
STANDBY = "this controller is standby: ask the one that leads"
PROBLEM_JSON = "application/problem+json"
# Chosen: what an answer names at most of a request that is wrong in many places.
_MOST_FAULTS = 20


class FaultOut(Out):
    """One place of a request that is wrong."""

    where: str = Field(description='The place, as "body.hosts.0" or "query.most".')
    what: str = Field(description="What is wrong there.")


class ProblemOut(Out):
    """The body of every error, a problem document of RFC 9457."""

    type: str = Field(description='Always "about:blank": the status says what kind of problem it is.')
    title: str = Field(description="The status in words.")
    status: int
    detail: str = Field(description="What is wrong, and what would be legal.")
    faults: tuple[FaultOut, ...] = Field((), description="With 422: the places that are wrong.")


class OperationError(Exception):
    """An operation is not possible; `code` is the HTTP status, the message says why."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def leading(operations: T | None) -> T:
    """The operations of a controller that leads. Raises OperationError (503) for None: it is standby."""
    if operations is None:
        raise OperationError(503, STANDBY)
    return operations


class Problem(JSONResponse):
    """An error as a problem document.

    It is in ASCII: it may quote half of a surrogate pair, which JSON can say and UTF-8 cannot.
    """

    media_type = PROBLEM_JSON

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        faults: tuple[FaultOut, ...] = (),
    ) -> None:
        content: dict[str, Any] = {
            "type": "about:blank",
            "title": _title(status),
            "status": status,
            "detail": detail,
        }
        if faults:
            content["faults"] = [dict(fault) for fault in faults]
        super().__init__(content, status, headers)

    def render(self, content: Any) -> bytes:
        """The document as JSON."""
        return json.dumps(content).encode()


# What is answered before a route is reached.
_BEFORE_READS = {
    "401": "The request shows no valid token, and the server asks for one.",
    "429": "Too many requests a second from this address; `Retry-After` says when the next one may come.",
}
_BEFORE_WRITES = {
    **_BEFORE_READS,
    "403": "The role of the token does not suffice, or another site's page sent the request.",
}


def problems(**whens: str) -> dict[int | str, dict[str, Any]]:
    """The errors of a route for the OpenAPI document, as `problems(_404="No such job.")`."""
    return {
        int(code.removeprefix("_")): {"model": ProblemOut, "description": when}
        for code, when in whens.items()
    }


def add_handlers(app: FastAPI, prefix: str, public: Container[str] = frozenset()) -> None:
    """Let `app` answer every error with a problem document, and say so in its OpenAPI document, which gets
    examples too. `prefix`: what the paths of the API begin with.

    The paths of `public` need no token and have no limit of requests.
    """
    app.add_exception_handler(405, _not_allowed)
    app.add_exception_handler(HTTPException, _refused)  # also what FastAPI itself refuses
    app.add_exception_handler(OperationError, _impossible)
    app.add_exception_handler(RequestValidationError, _invalid)
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_problems(made(), public)
            add_examples(app.openapi_schema, prefix)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


async def _refused(request: Request, error: Exception) -> Problem:
    found = cast(HTTPException, error)
    return Problem(found.status_code, str(found.detail), found.headers)


async def _impossible(request: Request, error: Exception) -> Problem:
    return Problem(cast(OperationError, error).code, str(error))


async def _invalid(request: Request, error: Exception) -> Problem:
    found = cast(RequestValidationError, error).errors()
    faults = tuple(
        FaultOut(where=".".join(str(part) for part in fault["loc"]), what=str(fault["msg"]))
        for fault in found[:_MOST_FAULTS]
    )
    more = len(found) - 1
    others = f", and {more} more {'fault' if more == 1 else 'faults'}" if more > 0 else ""
    return Problem(422, f"{faults[0].where}: {faults[0].what}{others}", faults=faults)


async def _not_allowed(request: Request, error: Exception) -> Problem:
    given = getattr(error, "headers", None) or {}
    methods = {word.strip() for word in given.get("Allow", "GET").split(",")}
    legal = ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))
    return Problem(405, f"{request.method} is not allowed here; legal: {legal}", {"Allow": legal})


def _with_problems(document: dict[str, Any], public: Container[str]) -> dict[str, Any]:
    """The document with every error as a problem document, also those that come before the routes.

    FastAPI describes errors as plain JSON.
    """
    schemas = document["components"]["schemas"]
    problem = {"schema": {"$ref": "#/components/schemas/ProblemOut"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if path not in public:
                for status, when in (_BEFORE_READS if method == "get" else _BEFORE_WRITES).items():
                    refusal = {"description": when, "content": {PROBLEM_JSON: problem}}
                    operation["responses"].setdefault(status, refusal)
            for status, answer in operation["responses"].items():
                body = answer.get("content", {}).get("application/json", {}).get("schema", {})
                if body.get("$ref", "").rpartition("/")[2] in ("ProblemOut", "HTTPValidationError"):
                    answer["content"] = {PROBLEM_JSON: problem}
                    if status == "422":
                        answer["description"] = "The request is wrong; `faults` says where."
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    return document
