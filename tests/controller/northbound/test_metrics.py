# SPDX-License-Identifier: Apache-2.0
"""/metrics: every metric of the table comes out, with the figures of the view, and few series."""

from __future__ import annotations

from dataclasses import replace

import httpx
from fake_source import FakeStatus, running, view
from prometheus_client.parser import text_string_to_metric_families

from controller.northbound.health import NotReady
from controller.wire.metric_table import CONTROLLER_METRICS, MOST_JOBS


def scrape(client: httpx.Client) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """The samples by name and labels."""
    answer = client.get("metrics").raise_for_status()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_every_metric_of_the_table_comes_out_and_no_other() -> None:
    status = FakeStatus()
    status.answers.add(0.003)
    with running(view(5), status=status) as handle, httpx.Client(base_url=handle.url, timeout=300) as client:
        found = scrape(client)
        names = {m.name + ("_count" if m.kind == "histogram" else "") for m in CONTROLLER_METRICS}
        ours = {n for n in found if n.startswith("polyrhythm_") and not n.endswith(("_bucket", "_sum"))}
        assert ours == names
        assert found["process_resident_memory_bytes"][()] > 1e6
        assert found["polyrhythm_ready"][()] == 1
        assert found["polyrhythm_switch_ready"][("switch", "leaf1"),] == 1
        assert found["polyrhythm_plan_version"][()] == view(5).plan.version
        for job in view(5).jobs:
            assert found["polyrhythm_job_iteration_seconds"][("job", job.name),] == job.mean_ms / 1e3
        packets = sum(q.packets for q in view(5).counters if q.switch == "leaf1" and q.qid == 7)
        assert found["polyrhythm_queue_packets_total"][("queue", "7"), ("switch", "leaf1")] == packets
        assert found["polyrhythm_flow_answer_seconds_bucket"][("le", "0.005"),] == 1
        assert found["polyrhythm_flow_answer_seconds_bucket"][("le", "0.002"),] == 0
        assert found["polyrhythm_flow_answer_seconds_sum"][()] == 0.003
        status.missing = (NotReady("switch", "leaf1", "gone"), NotReady("store", "state", "full"))
        found = scrape(client)
        assert found["polyrhythm_ready"][()] == 0
        assert found["polyrhythm_switch_ready"][("switch", "leaf1"),] == 0
        assert found["polyrhythm_switch_ready"][("switch", "leaf2"),] == 1
        assert found["polyrhythm_not_ready"][("part", "store"),] == 1
        assert client.head("metrics").status_code == 200


def test_before_the_first_view_the_process_is_there() -> None:
    with running(None) as handle, httpx.Client(base_url=handle.url, timeout=300) as client:
        found = scrape(client)
        assert "polyrhythm_jobs" not in found
        assert found["polyrhythm_hosts"][()] == 8


def test_jobs_cannot_make_the_series_grow_without_bound() -> None:
    names = [f'job {n:05d} "\\\n\u2028{chr(0xD800)}' for n in range(1_000)]
    jobs = tuple(replace(view(5).jobs[0], name=name) for name in names)
    many = replace(view(5), jobs=jobs)
    with running(many) as handle, httpx.Client(base_url=handle.url, timeout=300) as client:
        found = scrape(client)
    assert sum(found["polyrhythm_jobs"].values()) == 1_000
    assert len(found["polyrhythm_job_level"]) == MOST_JOBS
    assert sum(len(samples) for samples in found.values()) < 2_000
