# SPDX-License-Identifier: Apache-2.0
"""The table of metrics follows Prometheus' rules, and docs/metrics.md shows all of it and nothing else."""

import re
from pathlib import Path

import pytest

from controller.wire.metric_table import AGENT_METRICS, CONTROLLER_METRICS, MetricType, printable_label

DOC = Path(__file__).parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(polyrhythm_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", re.MULTILINE)
EVERY = (*CONTROLLER_METRICS, *AGENT_METRICS)


def test_the_guide_has_every_metric_with_type_labels_and_help() -> None:
    rows = [(m.name, m.kind, ", ".join(f"`{label}`" for label in m.labels), m.help) for m in EVERY]
    assert ROW.findall(DOC.read_text()) == rows


@pytest.mark.parametrize("metric", sorted(set(EVERY), key=lambda m: m.name), ids=lambda m: m.name)
def test_names_follow_the_rules_of_prometheus(metric: MetricType) -> None:
    assert re.fullmatch(r"polyrhythm_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") is (metric.kind == "counter")
    assert not re.search(r"_(ms|ns|us|milliseconds|kilobytes|mbps|percent)(_|$)", metric.name)
    assert metric.kind != "histogram" or metric.name.endswith("_seconds")
    assert metric.help.strip(". ") == metric.help


def test_names_are_unique() -> None:
    for table in (CONTROLLER_METRICS, AGENT_METRICS):
        assert len({m.name for m in table}) == len(table)


def test_a_label_may_hold_what_json_brings() -> None:
    assert printable_label("a\nb") == "a\nb"  # Prometheus' format escapes it
    assert printable_label("\ud800").encode()
