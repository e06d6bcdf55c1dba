# SPDX-License-Identifier: Apache-2.0
"""What is legal as the name of a job, for agents and requests alike."""

from __future__ import annotations

import re
from collections.abc import Sequence

from controller.wire.limits import MAX_NAME_CHARS

LEGAL_JOB_NAME = (
    f"legal: 1 to {MAX_NAME_CHARS} printable characters without '/', not . or .., "
    "not with its first host at the end (@HOST)"
)


def job_name_fault(name: str, hosts: Sequence[str]) -> str:
    """Why a job on `hosts` may not announce itself as `name`; empty: it may."""
    # Clients of the REST API take "." and ".." out of a path.
    wrong = not name.isprintable() or "/" in name or name in (".", "..")
    if wrong or not 1 <= len(name) <= MAX_NAME_CHARS or (hosts and of_host(hosts[0]).search(name)):
        return f"{name!r:.300} is wrong for a job's name; {LEGAL_JOB_NAME}"
    return ""


def of_host(host: str) -> re.Pattern[str]:
    """The end of a name that the controller gives to a further job of one name, with `host` as first host."""
    return re.compile(rf"@{re.escape(host)}(\.\d+)?$")
