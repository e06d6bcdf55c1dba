# SPDX-License-Identifier: Apache-2.0
"""A scheduler's job as a body of POST /api/v1/jobs, with what its user says about its traffic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

KEYS = ("model", "gpus", "period_ms", "phases", "flops_per_iteration", "flows", "traffic", "sender")
"""What a user may say. The scheduler knows the name and the hosts."""
UNKNOWN_TRAFFIC: Mapping[str, Any] = {"collective": "ring", "data_bytes": 1 << 30}
"""For a job about which nothing is said. Chosen: data-parallel training is the usual job. Its bytes weigh
paths against those of other jobs until its profile is measured."""


class DescriptionError(ValueError):
    """A job's description cannot be used. The message is one line: what is wrong, and what is legal."""


def job_body(name: str, hosts: Sequence[str], gpus: int, said: str, where: str) -> dict[str, Any] | None:
    """The body that declares a job; None: it sends nothing between hosts.

    `hosts` are those of its workers by rank; a host with several workers counts once. `said` is JSON with
    some of KEYS, or empty; `where` names it in an error.

    Raises:
        DescriptionError: `said` is no such JSON.
    """
    distinct = list(dict.fromkeys(hosts))
    if len(distinct) < 2:
        return None
    given = _given(said, where) if said.strip() else {}
    body = {"name": name, "gpus": max(gpus, 1), "hosts": distinct, **given}
    if "flows" not in body and "traffic" not in body:
        body["traffic"] = dict(UNKNOWN_TRAFFIC)
    return body


def _given(said: str, where: str) -> dict[str, Any]:
    try:
        given = json.loads(said)
    except (ValueError, RecursionError):
        raise DescriptionError(f"{where}: not JSON; legal: an object with {', '.join(KEYS)}") from None
    if not isinstance(given, dict):
        raise DescriptionError(f"{where}: no object; legal: an object with {', '.join(KEYS)}")
    unknown = next((key for key in given if key not in KEYS), None)
    if unknown is not None:
        raise DescriptionError(f"{where}: {unknown!r:.60}: unknown key; legal: {', '.join(KEYS)}")
    return given
