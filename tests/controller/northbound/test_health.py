# SPDX-License-Identifier: Apache-2.0
"""/healthz and /readyz: status, body and what they name, for every combination of missing parts."""

from __future__ import annotations

import httpx
import pytest
from fake_source import FakeStatus, running

from controller.northbound.health import MOST_NAMED, NotReady, Readiness, ready


@pytest.mark.parametrize("prefix", ["", "api/v1/"])
def test_both_places_answer_before_there_is_a_fabric(prefix: str) -> None:
    status = FakeStatus(missing=(NotReady("switch", "leaf1", "no session: gone"),))
    with running(None, status=status) as handle, httpx.Client(base_url=handle.url, timeout=300) as client:
        answer = client.get(f"{prefix}healthz")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok", "why": ""})
        answer = client.get(f"{prefix}readyz")
        assert answer.status_code == 503
        assert answer.json() == {
            "ready": False,
            "switches": {"ready": 5, "needed": 6, "of": 6},
            "agents": {"ready": 8, "needed": 8, "of": 8},
            "store": "ready",
            "controller": {
                "role": "alone",
                "leader": "",
                "leader_web": "",
                "election_id": "",
                "jobs": None,
                "plan": None,
            },
            "not_ready": [{"part": "switch", "name": "leaf1", "why": "no session: gone"}],
        }
        status.missing = ()
        assert client.get(f"{prefix}readyz").status_code == 200
        assert client.get(f"{prefix}readyz").json()["ready"] is True
        status.why = "a step of the control loop has run for 12 s"
        answer = client.get(f"{prefix}healthz")
        assert (answer.status_code, answer.json()) == (503, {"status": "stalled", "why": status.why})
        assert client.post(f"{prefix}healthz").status_code == 405
        assert client.head(f"{prefix}healthz").status_code == 503


def missing(part: str, number: int) -> tuple[NotReady, ...]:
    return tuple(NotReady(part, f"{part}{n}", "why") for n in range(number))


@pytest.mark.parametrize(
    ("gone", "needed", "is_ready"), [(0, 8, True), (1, 8, False), (1, 7, True), (8, 0, True)]
)
def test_as_many_agents_as_are_needed_are_enough(gone: int, needed: int, is_ready: bool) -> None:
    answer = ready(Readiness(missing("agent", gone), switches=2, hosts=8, agents_needed=needed))
    assert answer.ready is is_ready
    assert answer.agents.model_dump() == {"ready": 8 - gone, "needed": needed, "of": 8}
    # What is not needed is not named as the reason.
    assert len(answer.not_ready) == (0 if is_ready else gone)


@pytest.mark.parametrize("part", ["store", "plan"])
def test_each_part_alone_is_a_reason(part: str) -> None:
    answer = ready(Readiness(missing(part, 1), switches=2, hosts=8, agents_needed=8))
    assert not answer.ready
    assert answer.store == ("not ready" if part == "store" else "ready")


def test_a_large_fabric_has_a_short_answer() -> None:
    found = (*missing("agent", 200_000), *missing("switch", 500), *missing("store", 1))
    answer = ready(Readiness(found, switches=500, hosts=200_000, agents_needed=200_000))
    assert len(answer.not_ready) == 2 * MOST_NAMED + 1
    assert (answer.agents.ready, answer.switches.ready) == (0, 0)
    # The few come before the many.
    assert answer.not_ready[0].part == "store"
