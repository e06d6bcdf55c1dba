# SPDX-License-Identifier: Apache-2.0
"""What `polyrhythm.plan` refuses, in one line each; every other error would be a traceback for the caller."""

import argparse
import math
from dataclasses import replace
from typing import Any

import pytest
from plan_rig import MS, G, job

from controller.planner import explain
from controller.planner.options import add_policy_options, policy_arguments, policy_of
from controller.planner.policy import PolicyError
from controller.planner.registry import resolve
from polyrhythm import POLICIES, Flow, Phase, PlanInput, Policy, Profile, leaf_spine, plan

FABRIC = leaf_spine(2, 2, 4, host_bps=G, fabric_bps=G)
A, B = job("a", ["h1", "h5"], 260, 120), job("b", ["h2", "h6"], 260, 100)
GOOD = PlanInput(FABRIC, (A, B), POLICIES["polyrhythm"], 0)


def profile(*phases: tuple[float, float, float], period: float = 260 * MS) -> Profile:
    """A profile with values that its types do not allow."""
    values: Any = [Phase(*p) for p in phases]  # type: ignore[arg-type]
    return Profile(period, tuple(values))  # type: ignore[arg-type]


def flow(**changes: Any) -> PlanInput:
    """The first flow of the first job, changed."""
    return replace(GOOD, jobs=(replace(A, flows=(replace(A.flows[0], **changes), *A.flows[1:])), B))


def jobs(**changes: Any) -> PlanInput:
    """The first job, changed."""
    return replace(GOOD, jobs=(replace(A, **changes), B))


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (jobs(flows=(*A.flows, A.flows[0])), "flow a/h1>h5: there are two of this name"),
        (jobs(flows=(replace(B.flows[0], job="a"),)), "flow b/h2>h6: there are two of this name"),
        (replace(GOOD, jobs=(A, A)), "job a: there are two of this name"),
        (jobs(profile=profile((0, 20, G), (10, 30, G))), r"job a: phase .* overlaps"),
        (jobs(profile=profile((50, 60, G), (10, 30, G))), r"job a: phase .* should be listed before"),
        (jobs(profile=profile((20, 20, G))), "is empty or outside the period"),
        (jobs(profile=profile((0, 9, -G))), "is empty or outside the period"),
        (jobs(profile=profile((0, 9, math.nan))), "must be a finite number, not nan"),
        (jobs(profile=profile((0, math.nan, G))), "must be a finite number, not nan"),
        (jobs(profile=profile((0, 9, G), period=math.nan)), "the period in ns must be a finite number"),
        (jobs(profile=profile((0, 9, math.inf))), "must be a finite number, not inf"),
        (flow(bytes_per_iteration=-1), "flow a/h1>h5: bytes_per_iteration must be 0 or more, not -1"),
        (flow(bytes_per_iteration=math.nan), "bytes_per_iteration must be a finite number, not nan"),
        (flow(bytes_per_iteration=1 << 63), "flow a/h1>h5: bytes_per_iteration must be 9223372036854775807 or"),
        (flow(bytes_per_iteration="many"), "bytes_per_iteration must be a finite number, not many"),
        (jobs(flops_per_iteration=math.nan), "job a: flops_per_iteration must be a finite number, not nan"),
        (jobs(flops_per_iteration=-1.0), "job a: flops_per_iteration must be 0 or more"),
        (jobs(gpus=-1), "job a: GPUs must be 0 or more"),
        (jobs(flows=(Flow("a/x", "b", "h1", "h5", 9),)), "listed under job a, but its job is b"),
        (jobs(flows=(Flow("a/x", "nobody", "h1", "h5", 9),)), "listed under job a, but its job is nobody"),
        (flow(dst="h99"), "flow a/h1>h5: the fabric has no host h99"),
        (replace(GOOD, policy="polyrhythm"), "the policy must be a Policy, not 'polyrhythm'; legal: POLICIES"),
        (replace(GOOD, policy=None), "the policy must be a Policy, not None"),
        (replace(GOOD, policy=Policy), "the policy must be a Policy"),
        (replace(GOOD, jobs=("a",)), "'a' is no Job"),
        (replace(GOOD, jobs=None), "jobs must be a sequence of Job, not None"),
        (jobs(flows=("a/h1>h5",)), "job a: 'a/h1>h5' is no Flow"),
        (jobs(profile=None), "job a: the profile must be a Profile, not None"),
        (jobs(profile=Profile(5, (7,))), "job a: 7 is no Phase"),  # type: ignore[arg-type]
        (replace(GOOD, elephant_bytes=math.nan), "elephant_bytes must be a finite number, not nan"),
        (replace(GOOD, epoch_ns=math.nan), "epoch_ns must be a finite number, not nan"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(inputs: PlanInput, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        plan(inputs)
    assert "\n" not in str(caught.value)


def test_the_same_input_without_the_mistake_has_a_plan() -> None:
    assert set(plan(GOOD).jobs) == {"a", "b"}


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"routing": "ecmp"}, "policy x: routing must be a Routing object, not 'ecmp'"),
        ({"routing": POLICIES["crux"].priority}, "policy x: routing must be a Routing object"),
        ({"timing": type(POLICIES["circles"].timing)}, "policy x: timing must be a Timing object"),
        ({"joint_search": True}, "policy x: the joint search needs a routing that chooses paths"),
    ],
)
def test_a_policy_of_wrong_parts_is_refused(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Policy("x", **parts)


def test_the_floor_is_an_option_of_the_policy_itself() -> None:
    ours = POLICIES["polyrhythm"]
    assert ours.max_slowdown == 1.5
    wider = ours.with_options({"max_slowdown": 2})
    assert dict(wider.reference.options)["max_slowdown"] == 2
    assert resolve(wider.reference) == wider
    assert ours.with_options({"max_slowdown": None}).max_slowdown is None
    for value in (0.99, math.nan, math.inf, True, "2"):
        with pytest.raises(PolicyError, match=r"max_slowdown is .*; legal: None, or a number from 1"):
            ours.with_options({"max_slowdown": value})
    with pytest.raises(PolicyError, match="policy crux: max_slowdown is 2, but only a policy with the joint"):
        POLICIES["crux"].with_options({"max_slowdown": 2})


@pytest.mark.parametrize(("word", "value"), [("2", 2.0), ("1", 1.0), ("none", None)])
def test_the_floor_is_set_on_the_command_line(word: str, value: float | None) -> None:
    parser = argparse.ArgumentParser()
    add_policy_options(parser)
    read = parser.parse_args(["--max-slowdown", word])
    assert policy_of(read, "polyrhythm").max_slowdown == value
    again = parser.parse_args(list(policy_arguments(read)))
    assert policy_of(again, "polyrhythm").max_slowdown == value


def test_any_option_of_a_policy_is_set_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_policy_options(parser)
    read = parser.parse_args(["--option", "order=random"])
    assert dict(policy_of(read, "spray").options)["routing.order"] == "random"
    again = parser.parse_args(list(policy_arguments(read)))
    assert policy_of(again, "spray") == policy_of(read, "spray")
    gap = parser.parse_args(["--option=routing.gap_us=70", "--option", "half_life_us=null"])
    assert dict(policy_of(gap, "dlb").options)["routing.gap_us"] == 70
    with pytest.raises(
        PolicyError, match=r"policy spray has no option routing\.gap_us; its options: .*routing\.order"
    ):
        policy_of(gap, "spray")
    for word in ("gap_us=0", "gap_us=often", "gap_us=1.5"):
        with pytest.raises(PolicyError, match="gap_us"):
            policy_of(parser.parse_args(["--option", word]), "dlb")
    with pytest.raises(SystemExit):
        parser.parse_args(["--option", "order"])
    assert "'order' has no value; legal: NAME=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize(("word", "sender"), [("mltcp", "mltcp-dcqcn"), ("reno", "reno"), ("job", "job")])
def test_the_sender_is_set_on_the_command_line(
    word: str, sender: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_policy_options(parser)
    read = parser.parse_args(["--sender", word])
    assert policy_of(read, "ecmp").timing.sender == sender
    again = parser.parse_args(list(policy_arguments(read)))
    assert policy_of(again, "ecmp") == policy_of(read, "ecmp")
    with pytest.raises(SystemExit):
        parser.parse_args(["--sender", "tcp"])
    assert "sender 'tcp'; legal: dcqcn, reno, cubic" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["0.9", "nan", "inf", "all", ""])
def test_a_floor_that_is_not_legal_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_policy_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--max-slowdown", word])
    assert "is neither a number from 1 nor none" in capsys.readouterr().err


def test_a_plan_says_what_each_job_has_to_expect() -> None:
    made = plan(GOOD)
    for planned in made.jobs.values():
        assert planned.expected_ns
        assert planned.ecmp_ns
        assert planned.floor_ns == pytest.approx(1.5 * planned.ecmp_ns)
        assert planned.expected_ns <= planned.floor_ns
        assert f"{planned.expected_ns / 1e6:.1f} ms, {planned.ecmp_ns / 1e6:.1f} under plain ECMP" in explain(
            made
        )
    unknown = plan(jobs(profile=Profile(260 * MS, ())))
    assert {j.expected_ns for j in unknown.jobs.values()} == {None}
    assert plan(replace(GOOD, policy=POLICIES["crux"])).jobs["a"].ecmp_ratio is None
