# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper interleave`: its instances, its bound, and the evaluator against the simulator."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.instance import Step, plain
from controller.planner.loop.initial_plans import single_mechanism_plans
from controller.planner.loop.search import SearchLimits, solve
from polyrhythm.cli import main
from polyrhythm.paper import interleave, interleave_joint
from polyrhythm.paper.interleave_bound import best_rates, bound_of
from polyrhythm.paper.interleave_cases import (
    LARGE,
    SMALL,
    TESTBED,
    InterleaveCase,
    JobCase,
    draw_case,
    network_of,
)
from polyrhythm.paper.interleave_sim import UNSEEN, simulate_choice

pytest.importorskip("numba")
G = 50_000_000_000
LITTLE = SearchLimits(
    evaluations=40, quick=Effort((1,), 12), thorough=Effort((2, 3), 40), arranged_sets=1, exchanges=200
)


def pair(ups: tuple[float, float], period: int = 200) -> InterleaveCase:
    """Two jobs from one leaf to the other of the small fabric."""
    jobs = tuple(
        JobCase(f"j{i}", (f"h{i + 1}", f"h{i + 4}"), (Step(round(up * 1e6), G, round((period - up) * 1e6)),))
        for i, up in enumerate(ups)
    )
    return InterleaveCase("pair", SMALL, "small", jobs, 3)


def test_the_testbed_is_the_thesis() -> None:
    topology = network_of(TESTBED).topology
    assert (len(topology.hosts), len(topology.switches)) == (24, 13)
    assert len(topology.hosts) + len(topology.links) == 48
    above = {leaf: len(topology.upward[leaf]) for leaf in topology.prefixes}
    assert set(above.values()) == {2}  # four servers below two cables: 2:1


@pytest.mark.parametrize("kind", interleave.KINDS)
def test_cases_are_as_they_are_called(kind: str) -> None:
    case = draw_case(TESTBED, kind, 0, 7)
    assert case == draw_case(TESTBED, kind, 0, 7) != draw_case(TESTBED, kind, 1, 7)
    used = [h for j in case.jobs for h in j.hosts]
    assert 2 <= len(case.jobs) <= 40
    assert (len(set(used)) == len(used)) or kind == "shared servers"
    for flow, (_, member) in zip(case.commodities, case.instance.flows, strict=True):
        assert len(member.candidate_paths) in (1, 2, 12) or flow.src == flow.dst
    assert bound_of(case) <= Evaluator(case.instance).bound * 1.01


def test_large_cases_keep_the_paths_that_are_compared() -> None:
    case = draw_case(LARGE, "random", 1, 1)
    assert 2 <= len(case.jobs) <= 40
    for name, ways in case.starts.items():
        for c, every, way in zip(case.commodities, case.candidates, ways, strict=True):
            assert every[way] == case.routes[name][c.name]


@pytest.mark.parametrize("seed", range(20))
def test_the_simplex_finds_the_optimum(seed: int) -> None:
    highspy = pytest.importorskip("highspy")
    rng = np.random.default_rng(seed)
    count, size = int(rng.integers(1, 8)), int(rng.integers(1, 6))
    rows = np.vstack([rng.random((count, size)) * (rng.random((count, size)) < 0.6), np.eye(size)])
    limit = np.concatenate([rng.random(count), rng.random(size) + 0.1])
    gain = rng.random(size)
    ours = best_rates(gain, rows, limit)
    assert (rows @ ours <= limit + 1e-9).all()
    model = highspy.Highs()
    model.silent()
    x = [model.addVariable(lb=0) for _ in range(size)]
    for row, most in zip(rows, limit, strict=True):
        model.addConstr(sum(float(a) * v for a, v in zip(row, x, strict=True)) <= float(most))
    model.maximize(sum(float(g) * v for g, v in zip(gain, x, strict=True)))
    assert float(gain @ ours) == pytest.approx(model.getObjectiveValue(), abs=1e-7)


def test_the_simulator_agrees_with_the_judge() -> None:
    """Two independent programs: what the search believes is what flows do, MLTCP apart to 2 %."""
    for kind in ("compatible", "looped"):
        case = draw_case(TESTBED, kind, 0, 3)
        evaluator = Evaluator(case.instance)
        for name, choice in single_mechanism_plans(case.instance, case.starts, mltcp=True):
            believed = float(evaluator.utilisation(choice, Effort(UNSEEN, 100)).mean())
            assert simulate_choice(case, choice, iterations=100).utilisation == pytest.approx(
                believed, rel=0.02
            ), name


def test_nothing_exceeds_the_bound() -> None:
    case = pair((110, 120))
    alone = simulate_choice(case, plain(case.instance, case.starts["max-min"]))
    # Two spines: one for each.
    assert alone.utilisation < bound_of(case)
    assert alone.utilisation == pytest.approx(bound_of(case), rel=0.006)
    assert max(alone.slowdown) < 1.02
    assert max(alone.marks) == 0
    together = simulate_choice(case, plain(case.instance, (0,) * 4))
    assert together.utilisation < 0.85 * bound_of(case)
    assert min(together.marks) > 0


@pytest.mark.slow
def test_the_loop_is_near_the_best_of_all_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleave_joint, "SHIFTS", 3)
    monkeypatch.setattr(interleave_joint, "_LAPS", 1)
    monkeypatch.setattr(interleave_joint, "solve", lambda i, s: solve(i, s, limits=LITTLE))
    found = interleave_joint.measure(0, 5)
    assert found["enumerated"] > 1_000
    assert found["optimum"] >= max(found["grid"], found["loop"])
    assert found["loop"] > 0.97 * found["optimum"]


def test_enumerated_periods_keep_step_and_go_as_far_as_the_loop_may() -> None:
    own = [100_000_000, 240_000_000, 130_000_001]
    found = list(interleave_joint.periods(own, 2.0))
    assert len(found) == len(set(found)) > 20
    for listed in found:
        assert all(t < period <= 2 * t for t, period in zip(own, listed, strict=True))
        assert math.lcm(*listed) <= 12 * max(listed)
    assert max(max(p / t for p, t in zip(listed, own, strict=True)) for listed in found) > 1.9
    # Alike jobs come once a round each, from their own pace to the slowest.
    rounds = sorted({p[0] for p in interleave_joint.periods([10**8] * 2, 1.2) if p[0] == p[1]})
    assert rounds[0] == 100_400_000
    assert rounds[-1] > 115_000_000


def row(name: str, ours: float, best: float, bound: float, **words: object) -> dict[str, object]:
    used = dict.fromkeys(interleave.METHODS, 0.9 * best) | {"crux": best, "loop": ours}
    base = {"name": name, "fabric": "testbed", "looped": True, "incompatible": False, "jobs": 3, "flows": 6}
    more = {
        "slowdown": dict.fromkeys(interleave.METHODS, (1.0, 1.5)) | {"ecmp": (2.0, 3.0)},
        "marks": dict.fromkeys(interleave.METHODS, (1.0,)) | {"ecmp": (4.0,)},
        "from": "crux",
        "steps": [],
        "judged": 9,
    }
    return {**base, **more, "utilisation": used, "bound": bound} | words


def test_what_is_reported(tmp_path: Path) -> None:
    rows = [
        row("gains half", 0.6, 0.5, 0.7),
        row("loses 2 %", 0.49, 0.5, 0.7),
        row("loses a little", 0.4999, 0.5, 0.7),
        row("nothing to gain", 0.5, 0.5, 0.505),
        row("neither", 0.6, 0.5, 0.7, looped=False),
        row("large", 0.6, 0.5, 0.7, fabric="64x32"),
    ]
    small = [
        {"number": i, "loop": 0.5, "grid": 0.5, "optimum": 0.5 + i / 100, "enumerated": 9} for i in range(2)
    ]
    report = interleave.summary(rows, small)
    assert (report["worse_than_best"], report["worse"]) == (1, ["loses 2 %"])
    assert report["looped_instances"] == 3
    assert report["looped_gain"] == pytest.approx((0.5 - 0.05 - 0.0005) / 3, abs=1e-4)
    assert report["joint_pct"] == pytest.approx((100 + 100 * 0.5 / 0.51) / 2, abs=1e-3)
    assert report["joint_grid_pct"] == 100
    assert report["verdicts"] == {"worse_than_best": False, "looped_gain": False, "joint_pct": True}
    assert report["against_ecmp"]["loop"]["mean_speedup"] == 2
    assert report["against_ecmp"]["loop"]["marks_pct"] == 25
    names = interleave.write(tmp_path, rows, small)
    assert {p.name for p in tmp_path.iterdir()} == {*names, "instances.csv", "joint.csv", "plans.txt"}
    assert "NOT met" in interleave.to_text(report | {"seconds": 1})
    for only in (interleave.summary(rows, []), interleave.summary([], small)):
        assert "NOT met" in interleave.to_text(only | {"seconds": 1})
    assert interleave.write(tmp_path, [], small) == []


def test_the_command_on_its_smallest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interleave, "QUICK", (0, 1, 0))
    monkeypatch.setattr(interleave, "summary", lambda rows, small: {"rows": len(rows)})
    assert main(["paper", "interleave", "--quick", "--json", "--workers", "1", "--out", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] == 1
    assert (report["quick"], report["seed"]) == (True, 1)
    assert (tmp_path / "report.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workers", "0"], "--workers: 0; legal"),
        (["--seed", "-1"], "--seed: -1; legal"),
        (["--sets", "-1"], "--sets: -1; legal"),
        (["--sets", "0", "--large", "0", "--small", "0"], "all 0; legal: at least one"),
    ],
)
def test_bad_options_are_told_in_a_line(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["paper", "interleave", *words]) == 2
    assert said in capsys.readouterr().err


def test_two_cases_of_one_seed_differ() -> None:
    rng = random.Random(0)
    assert len({draw_case(TESTBED, "random", rng.randrange(99), 1).jobs for _ in range(8)}) > 5
