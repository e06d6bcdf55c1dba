# SPDX-License-Identifier: Apache-2.0
"""The row of a scenario, computed by hand: two jobs on one cable, in one span."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from polyrhythm.paper.battery_generator import BatteryScenario, Span
from polyrhythm.paper.battery_metrics import BatteryJob
from polyrhythm.paper.battery_rows import scenario_row

JOBS = (BatteryJob("a", 8, 60.0, "one"), BatteryJob("b", 8, 60.0, "one"))


def scenario() -> BatteryScenario:
    phases = [{"start_ms": 0, "end_ms": 40, "gbps": 50.0}]
    document = {
        "name": "by-hand",
        "fabric": {
            "switches": [{"name": n, "tier": "leaf"} for n in ("leaf1", "leaf2")]
            + [{"name": n, "tier": "spine"} for n in ("spine1", "spine2")],
            "hosts": [{"name": f"h{i}", "leaf": f"leaf{1 + (i > 2)}", "gbps": 50.0} for i in (1, 2, 3, 4)],
            "links": [
                {"a": a, "b": b, "gbps": 50.0} for a in ("leaf1", "leaf2") for b in ("spine1", "spine2")
            ],
        },
        "jobs": [
            {"name": "a", "hosts": ["h1", "h3"], "phases": phases},
            {"name": "b", "hosts": ["h2", "h4"], "phases": phases},
        ],
    }
    return BatteryScenario(7, "compatible", document, (Span(0, 0, 1000, ("a", "b")),))


def session(a_ms: float, b_ms: float, plan: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A session in which the jobs have steady iterations of these lengths."""
    ends = {
        name: [t * each for t in range(int(1000 / each) + 1)] for name, each in (("a", a_ms), ("b", b_ms))
    }
    return {"ends_ms": ends, "plan": plan, "notes": [], "deterministic": True}


def plan(
    a_spine: str, b_spine: str, a_ms: float | None = 100.0, b_ms: float | None = 125.0
) -> dict[str, Any]:
    paths = {"a": ("h1", a_spine, "h3"), "b": ("h2", b_spine, "h4")}
    flows = []
    for name, (source, spine, sink) in paths.items():
        forth = [source, "leaf1", spine, "leaf2", sink]
        flows.append({"flow": f"{name}/{source}>{sink}", "path": forth})
        flows.append({"flow": f"{name}/{sink}>{source}", "path": forth[::-1]})
    jobs = [{"job": "a", "expected_ms": a_ms}, {"job": "b", "expected_ms": b_ms}]
    return {"jobs": jobs, "flows": flows}


def row(ours: Mapping[str, Any], crux: Mapping[str, Any] | None = None) -> dict[str, Any]:
    alone = {"mean_ms": {"a": 100.0, "b": 100.0}, "profiles": {}, "notes": [], "deterministic": True}
    draws = {f"ecmp-{k}": session(125, 125) for k in range(3)}
    others = {"cassini": session(125, 125), "mltcp-dcqcn": session(125, 125)}
    return scenario_row(
        scenario(),
        JOBS,
        {"alone": alone, **draws, "crux": crux or session(125, 125), **others, "polyrhythm-0": ours},
    )


def test_a_gain() -> None:
    found = row(session(100, 125, plan("spine1", "spine2")))
    used = found["gpu_utilisation"]
    assert used["alone"] == pytest.approx(0.6)
    assert used["ecmp"] == pytest.approx(0.48)
    assert used["polyrhythm"] == pytest.approx(0.54)
    assert found["ecmp_loss_pct"] == pytest.approx(20)
    assert found["gain_pct"]["polyrhythm"] == pytest.approx(12.5)
    assert found["gain_pct"]["cassini"] == pytest.approx(0)
    assert not found["worse_than_ecmp"]
    assert not found["worse_than_best"]
    assert found["worst_job"] == {"job": "b", "ratio": pytest.approx(1)}
    assert found["judge"] == {
        "expected": pytest.approx(0.54),
        "measured": pytest.approx(0.54),
        "interval": 0.0,
        "error_pct": pytest.approx(0),
    }
    assert found["mean_iteration_ms"]["b"] == {
        "alone": 100.0,
        "ecmp": [125.0],
        "crux": [125.0],
        "cassini": [125.0],
        "mltcp-dcqcn": [125.0],
        "polyrhythm": [125.0],
        "expected": 125.0,
    }


def test_a_loss() -> None:
    found = row(session(125, 250, plan("spine1", "spine1", 125.0, 125.0)), crux=session(100, 125))
    assert found["gpu_utilisation"]["polyrhythm"] == pytest.approx(0.36)
    assert found["worse_than_ecmp"]
    assert found["worse_than_best"]
    assert found["worse_than_best_in_floor"]
    assert found["worst_job"] == {"job": "b", "ratio": pytest.approx(2)}
    # The judge promised 0.48.
    assert found["judge"]["error_pct"] == pytest.approx(100 / 3)


def test_the_figures_of_several_draws_are_their_means() -> None:
    alone = {"mean_ms": {"a": 100.0, "b": 100.0}, "profiles": {}, "notes": [], "deterministic": True}
    sessions = {f"ecmp-{k}": session(125, 125) for k in range(3)} | {"alone": alone}
    one, other = plan("spine1", "spine1"), plan("spine1", "spine2", 125.0, 125.0)
    sessions["polyrhythm-0"] = session(100, 125, one)
    sessions["polyrhythm-1"] = session(125, 100, one)
    found = scenario_row(scenario(), JOBS, sessions)
    assert found["gpu_utilisation"]["polyrhythm"] == pytest.approx(0.54)
    assert found["mean_iteration_ms"]["a"]["polyrhythm"] == [pytest.approx(112.5)]
    assert found["worst_job"]["ratio"] == pytest.approx(0.9)
    # In each draw the twins are 25 % apart, in the mean they are not.
    assert found["twins_apart"] == []
    sessions["polyrhythm-1"] = session(100, 125, other)
    found = scenario_row(scenario(), JOBS, sessions)
    # The plans expect 0.54 and 0.48.
    assert found["judge"]["expected"] == pytest.approx(0.51)
    assert found["judge"]["interval"] == pytest.approx(0)
    assert found["mean_iteration_ms"]["a"]["expected"] == pytest.approx(112.5)
    assert [pair["slower"] for pair in found["twins_apart"]] == ["b"]
    sessions["polyrhythm-1"] = session(125, 125, other)
    found = scenario_row(scenario(), JOBS, sessions)
    # 0.54 and 0.48 are measured: Student's t is 12.7 for two draws.
    assert found["judge"]["interval"] == pytest.approx(12.706 * 0.03, rel=0.001)


def test_the_best_policy_may_have_broken_the_floor() -> None:
    found = row(session(125, 125, plan("spine1", "spine2")), crux=session(100, 200))
    assert found["worst_ratio"]["crux"] == pytest.approx(1.6)
    assert not found["worse_than_best"]
    found = row(session(125, 125, plan("spine1", "spine2")), crux=session(80, 200))
    assert found["worse_than_best"]
    assert not found["worse_than_best_in_floor"]


def test_a_loss_within_the_spread_of_ecmp_is_none() -> None:
    sessions = {f"ecmp-{k}": session(each, each) for k, each in enumerate((100, 125, 250))}
    sessions |= {name: session(200, 200) for name in ("crux", "cassini", "mltcp-dcqcn", "polyrhythm-0")}
    sessions["alone"] = {"mean_ms": {"a": 100.0, "b": 100.0}, "notes": [], "deterministic": True}
    found = scenario_row(scenario(), JOBS, sessions)
    assert found["gain_pct"]["polyrhythm"] < -20
    assert found["ecmp_interval"] > 0.4
    assert not found["worse_than_ecmp"]


def test_unequal_twins_are_named() -> None:
    found = row(session(100, 125, plan("spine1", "spine1")))
    assert found["twins_apart"] == [
        {"slower": "b", "faster": "a", "ratio": pytest.approx(1.25), "unequal": True}
    ]


def test_a_third_job_makes_strangers_of_twins() -> None:
    third = {"name": "c", "hosts": ["h5", "h6"], "phases": [{"start_ms": 0, "end_ms": 40, "gbps": 50.0}]}
    base = scenario()
    document = dict(base.document)
    document["jobs"] = [*document["jobs"], third]
    fabric = dict(document["fabric"])
    fabric["hosts"] = [
        *fabric["hosts"],
        *({"name": f"h{i}", "leaf": f"leaf{i - 4}", "gbps": 50.0} for i in (5, 6)),
    ]
    document["fabric"] = fabric
    met = BatteryScenario(7, "compatible", document, (Span(0, 0, 1000, ("a", "b", "c")),))
    jobs = (*JOBS, BatteryJob("c", 2, 60.0, "other"))

    def recorded(b_ms: float, chosen: Mapping[str, Any] | None = None) -> dict[str, Any]:
        made = session(100, b_ms, chosen)
        made["ends_ms"]["c"] = made["ends_ms"]["a"]
        return made

    both = plan("spine1", "spine2")
    both["jobs"].append({"job": "c", "expected_ms": None})
    path = ["h5", "leaf1", "spine1", "leaf2", "h6"]
    both["flows"] += [{"flow": "c/h5>h6", "path": path}, {"flow": "c/h6>h5", "path": path[::-1]}]
    sessions = {f"ecmp-{k}": recorded(125) for k in range(3)}
    sessions |= {name: recorded(125) for name in ("crux", "cassini", "mltcp-dcqcn")}
    sessions["polyrhythm-0"] = recorded(125, both)
    sessions["alone"] = {"mean_ms": dict.fromkeys("abc", 100.0), "notes": [], "deterministic": True}
    found = scenario_row(met, jobs, sessions)
    # c contends with a on spine1; b has a spine for itself.
    assert found["twins_apart"] == []
    # The plan expects nothing of c.
    assert found["judge"]["error_pct"] is None


def test_a_run_without_a_plan() -> None:
    found = row(session(100, 125))
    judge = {"expected": None, "measured": pytest.approx(0.54), "interval": 0.0, "error_pct": None}
    assert found["judge"] == judge
