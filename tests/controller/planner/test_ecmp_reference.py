# SPDX-License-Identifier: Apache-2.0
"""The reference under plain ECMP is computed anew when anything that it depends on has changed, and only then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.model import Flow, Job, Phase, Profile
from controller.planner import POLICIES, PlanInput
from controller.planner.demand import Demands
from controller.planner.ecmp_reference import EcmpLengths, EcmpReference, _known
from topo.generate import leaf_spine

MS, G = 1_000_000, 10_000_000_000
FABRIC = leaf_spine(2, 2, 4, host_bps=G, fabric_bps=G)


def job(name: str, hosts: tuple[str, ...], up_ms: int = 60, period_ms: int = 100) -> Job:
    pairs = [(a, hosts[(i + 1) % len(hosts)]) for i, a in enumerate(hosts)]
    flows = tuple(Flow(f"{name}/{a}>{b}", name, a, b, G * up_ms // 8000) for a, b in pairs)
    return Job(name, "m", 8, hosts, Profile(period_ms * MS, (Phase(0, up_ms * MS, G),)), 1e12, flows)


TWO = (job("a", ("h1", "h5")), job("b", ("h2", "h6")))
INPUTS = PlanInput(FABRIC, TWO, POLICIES["polyrhythm"], 0, seed=1)


def reference(inputs: PlanInput, iterations: int = 8) -> EcmpReference:
    demands = Demands(inputs)
    return EcmpReference(demands, tuple(f.name for f in demands.elephants), iterations)


def anew(inputs: PlanInput, iterations: int = 8) -> EcmpLengths:
    _known.clear()
    return reference(inputs, iterations).lengths()


@pytest.mark.parametrize(
    "other",
    [
        replace(INPUTS, seed=2),
        replace(INPUTS, down_switches=frozenset({"spine1"})),
        replace(INPUTS, down_links=frozenset({("leaf1", "spine2")})),
        replace(INPUTS, elephant_bytes=10**9),
        replace(INPUTS, jobs=(TWO[0], job("b", ("h2", "h6"), 80, 130))),
        replace(INPUTS, jobs=(TWO[0], job("c", ("h2", "h6")))),
        replace(INPUTS, jobs=(TWO[0], job("b", ("h3", "h7", "h8")))),
        replace(INPUTS, jobs=TWO[:1]),
        replace(INPUTS, jobs=TWO[::-1]),
        replace(INPUTS, jobs=tuple(replace(j, pcie_link="p0", pcie_bps=G // 2) for j in TWO)),
        replace(INPUTS, topology=leaf_spine(2, 2, 4, host_bps=G, fabric_bps=2 * G)),
    ],
)
def test_what_a_plan_before_asked_answers_no_other_question(other: PlanInput) -> None:
    wanted = anew(other)
    anew(INPUTS)
    assert reference(other).lengths() == wanted
    assert reference(other, 12).lengths() == anew(other, 12)


def test_a_job_without_flows_changes_nothing_and_costs_nothing() -> None:
    first = anew(INPUTS)
    alone = Job("c", "m", 8, ("h3",), Profile(100 * MS, ()), 1e12, ())
    assert reference(replace(INPUTS, jobs=(*TWO, alone), epoch_ns=10**9)).lengths() is first


def test_a_limit_of_work_takes_iterations_but_no_draws() -> None:
    jobs = tuple(job(f"j{k}", (f"h{k}", f"h{k + 4}"), 40 + 5 * k, 90 + 20 * k) for k in range(1, 5))
    whole = reference(replace(INPUTS, jobs=jobs), 12)
    less = replace(whole, work=whole.cost // 2)
    least = replace(whole, work=1)
    assert replace(whole, work=whole.cost).lengths() == whole.lengths()
    assert 0.3 * whole.cost <= least.cost < less.cost <= 0.55 * whole.cost
    # Another question, so another answer, though not by much: all have the same draws of ports.
    for name, ns in whole.lengths().mean.items():
        assert ns != least.lengths().mean[name] == pytest.approx(ns, rel=0.15)
