# SPDX-License-Identifier: Apache-2.0
"""Two controllers on one fabric without etcd: the second waits, unless it is told to take over."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request

import pytest
from control_rig import PATIENCE_S, eventually

SWITCHES = ("leaf1", "leaf2", "spine1", "spine2")


def says_of_all(controller, words):
    eventually(lambda: all(controller.says(words.format(name)) for name in SWITCHES), words)


def not_ready(controller):
    """The switches that /readyz calls not ready, and why."""
    try:
        with urllib.request.urlopen(f"{controller.web}/api/v1/readyz", timeout=PATIENCE_S) as answer:
            body = json.load(answer)
    except urllib.error.HTTPError as error:
        body = json.load(error)
    return {item["name"]: item["why"] for item in body["not_ready"] if item["part"] == "switch"}


@pytest.mark.slow
def test_the_second_waits_or_takes_over_and_the_deposed_one_says_so(fabric, start_controller):
    first = start_controller(fabric.description())
    says_of_all(first, "switch {} is in service")

    second = start_controller(fabric.description())
    says_of_all(second, "switch {}: another controller is its primary with election id 1000; this one waits")
    assert set(not_ready(second)) == set(SWITCHES)
    assert not_ready(first) == {}
    assert not first.says("session is lost")

    third = start_controller(fabric.description(), "--take-over")
    says_of_all(third, "switch {} is in service")
    says_of_all(first, "switch {}: the session is lost (another controller became its primary)")
    says_of_all(first, "switch {}: another controller is its primary with election id 1001; this one waits")
    assert all("another controller is its primary" in why for why in not_ready(first).values())
    assert not_ready(third) == {}

    # When the primary dies, one of those that wait takes its place.
    third.process.send_signal(signal.SIGKILL)
    third.process.wait(PATIENCE_S)
    eventually(
        lambda: not (set(not_ready(first)) & set(not_ready(second))), "each switch has a primary again"
    )
