# SPDX-License-Identifier: Apache-2.0
"""Wait until a controller has programmed every switch, as its REST API tells."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request

from topo.mininet import MininetError

PROGRAMMED_TIMEOUT_S = 120.0
"""Chosen: a controller programs a fabric within a few seconds, on a busy machine within a minute."""
_ASK_S = 10.0
_POLL_S = 0.1


def wait_programmed(web: str) -> None:
    """Wait until every switch holds its tables. `web` is the address of the controller's page.

    Raises:
        MininetError: that took longer than `PROGRAMMED_TIMEOUT_S`.
    """
    deadline = time.monotonic() + PROGRAMMED_TIMEOUT_S
    while _unprogrammed(web):
        if time.monotonic() > deadline:
            raise MininetError(f"the switches are not programmed after {PROGRAMMED_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)


def _unprogrammed(web: str) -> bool:
    """Whether a switch has no tables yet, or the controller has no fabric to show, or does not answer."""
    try:
        with urllib.request.urlopen(f"{web}/api/v1/fabric/switches?most=1000", timeout=_ASK_S) as answer:
            switches = json.load(answer)["switches"]
    except OSError:
        return True
    return not switches or any(s["state"] != "ready" or not s["entries"] for s in switches)
