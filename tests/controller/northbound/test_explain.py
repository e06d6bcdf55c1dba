# SPDX-License-Identifier: Apache-2.0
"""What the API says about the decisions for a job: numbers against a count by hand, and words against numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from control_rig import RATE_BPS, job
from fake_source import CAPACITY, TOPOLOGY, view

from controller.live.core import Core
from controller.live.messages import WorkerJoined
from controller.live.settings import CoreSettings
from controller.live.views import ViewBuilder
from controller.northbound.explain import explained
from controller.planner import POLICIES, plan
from topo.generate import leaf_spine

SMALL = leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


class NoFleet:
    """A southbound without switches."""

    clients: dict = {}  # noqa: RUF012

    def not_ready(self):
        return {}


def lived(*jobs, policy="polyrhythm"):
    core = Core(CoreSettings(SMALL, POLICIES[policy], 1, verify=False, elephant_bytes=0))
    for member in jobs:
        for rank, host in enumerate(member.hosts):
            core.handle(WorkerJoined(host, rank, member))
    core.adopt(plan(core.plan_input()))
    return ViewBuilder(core, "test").view(NoFleet())


def explain(shown, name):
    found = next(j for j in shown.jobs if j.name == name)
    return explained(shown, found, shown.plan, shown.plan.jobs[name])


def by_hand(shown, link):
    """What a link carries, and the jobs on it."""
    rates = {j.name: max(p.rate_bps for p in j.profile.phases) for j in shown.jobs}
    on = [name for name, f in shown.plan.flows.items() if f.path and link in pairwise(f.path)]
    return sum(rates[name.split("/")[0]] for name in on), {name.split("/")[0] for name in on}


@pytest.mark.parametrize("name", ["vgg19", "vgg16", "resnet50"])
def test_loads_and_alternatives_are_those_of_a_count_by_hand(name) -> None:
    shown = view(5)
    found = explain(shown, name)
    assert found.flows_in_all == len(found.flows) == 2
    for flow in found.flows:
        load, jobs = by_hand(shown, flow.chosen.link)
        assert (flow.chosen.load_bps, set(flow.chosen.jobs)) == (load, jobs - {name})
        assert flow.chosen.path == shown.plan.flows[flow.flow].path
        assert {p.path[2] for p in flow.rejected} | {flow.chosen.path[2]} == {
            f"spine{n}" for n in (1, 2, 3, 4)
        }
        own = max(p.rate_bps for j in shown.jobs if j.name == name for p in j.profile.phases)
        kept = set(pairwise(flow.chosen.path))
        for path in flow.rejected:
            load, jobs = by_hand(shown, path.link)
            assert path.load_bps == load + (0 if path.link in kept else own)
            assert set(path.jobs) == jobs - {name}
        parts = [p.load_bps / p.capacity_bps for p in flow.rejected]
        assert parts == sorted(parts)


def test_words_say_what_the_numbers_say() -> None:
    said = " ".join(explain(view(5), "vgg16").sentences)
    assert "leaf1-spine2, which it uses together with vgg19" in said
    assert "carries 42 of 25 Mbit/s if all send at once" in said
    assert "the fullest link would carry 21 of 25 Mbit/s, which is less" in said
    assert "On level 2 (GPU intensity 2.2e+12 flop/s) it gives way to vgg19." in said
    assert "It starts to send at 168.0 of every 336.0 ms." in said
    assert "vgg19 1.00" in said
    alone = " ".join(explain(view(5), "resnet50").sentences)
    assert "it meets no other job on a link" in alone
    assert "which is no less" in alone


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (40, ("carries 1.68 of 1 Gbit/s", "carry 0.84 of 1 Gbit/s")),
        (20_000, ("carries 840 of 500 Gbit/s", "carry 420 of 500 Gbit/s")),
        (39.9, ("carries 1,676 of 998 Mbit/s", "carry 838 of 998 Mbit/s")),
    ],
)
def test_rates_of_an_answer_have_one_unit(factor: float, words: tuple[str, str]) -> None:
    shown = view(5)
    jobs = tuple(
        replace(
            j,
            profile=replace(
                j.profile,
                phases=tuple(replace(p, rate_bps=int(p.rate_bps * factor)) for p in j.profile.phases),
            ),
        )
        for j in shown.jobs
    )
    rate_bps = int(CAPACITY * factor)
    topology = leaf_spine(2, 4, 4, host_bps=rate_bps, fabric_bps=rate_bps)
    said = " ".join(explain(replace(shown, jobs=jobs, topology=topology), "vgg16").sentences)
    for some in words:
        assert some in said


def test_a_path_over_what_is_down_is_no_alternative() -> None:
    shown = replace(view(5), down_links=frozenset({("leaf1", "spine4")}), down_switches=frozenset({"spine1"}))
    flow = explain(shown, "vgg19").flows[0]
    assert {p.path[2] for p in flow.rejected} == {"spine3"}


def test_a_real_plan_is_explained_and_so_is_one_by_ecmp() -> None:
    jobs = job("a", "h1", "h3"), job("b", "h2", "h4")
    found = explain(lived(*jobs), "a")
    assert found.policy == "polyrhythm"
    assert found.flows[0].chosen is not None
    assert len(found.flows[0].rejected) == 1
    assert all(sentence.endswith(".") for sentence in found.sentences)
    by_hash = explain(lived(*jobs, policy="ecmp"), "a")
    assert by_hash.flows[0].chosen is None
    assert by_hash.sentences[0].startswith("Its 2 flows are left to ECMP: ")
    assert "It runs at its own pace." in by_hash.sentences


def test_a_job_without_flows_or_profile_is_explained() -> None:
    nothing = replace(job("n", "h1"), flows=())
    found = explain(lived(nothing, job("a", "h1", "h3")), "n")
    assert found.sentences[0] == "It sends nothing over the fabric."
    assert found.neighbours == ()
    shown = view(5)
    unknown = replace(shown, jobs=tuple(replace(j, profile=None) for j in shown.jobs))
    assert explain(unknown, "vgg19").flows[0].chosen.load_bps == 0
    assert TOPOLOGY is shown.topology
