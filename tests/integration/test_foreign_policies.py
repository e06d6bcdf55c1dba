# SPDX-License-Identifier: Apache-2.0
"""Policies of other packages: installed, planned with, simulated, resumed, stored, shown and refused."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fake_source import plan as shown_plan
from fake_source import running, view
from foreign_policies import files_of_the_guide, forget, install, modules_of_the_guide, on_path
from plan_rig import G, job
from run_rig import shortened, uncounted

from controller.model import PolicyReference
from controller.northbound import render
from controller.planner import POLICIES, Policy, PolicyError, plan, policy_named
from controller.planner.inputs import PlanInput
from controller.planner.plan_text import diff
from controller.planner.registry import registered_policy, resolve
from controller.process.worker_process import WorkerProcess
from controller.southbound.artefacts import artefacts_dir
from controller.southbound.desired import EcnProfile
from controller.store.interface import Batch
from controller.store.sqlite import SqliteStore
from controller.store.stored_plans import PlanEncoder, plan_of
from polyrhythm.cli import main
from polyrhythm.commands import sim as sim_command
from topo.generate import leaf_spine

NAMES = ("path-per-job", "shortest-first", "even-shifts")
FABRIC = {
    "kind": "leaf_spine",
    "leaves": 4,
    "spines": 2,
    "hosts_per_leaf": 2,
    "host_gbps": 100,
    "fabric_gbps": 50,
}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """The three policies of the guide, installed in a folder on the path."""
    folder = tmp_path / "site"
    folder.mkdir()
    for module, source in modules_of_the_guide().items():
        install(folder, module, source)
    with on_path(folder):
        yield folder


def inputs(policy: Policy) -> PlanInput:
    topology = leaf_spine(2, 2, 4, host_bps=G, fabric_bps=G)
    return PlanInput(
        topology, (job("a", ["h1", "h5"], 260, 120), job("b", ["h2", "h6"], 260, 100)), policy, 0
    )


def module(name: str) -> str:
    return name.replace("-", "_")


EACH_BY_NAME_AND_ONE_BY_MODULE = (*NAMES, f"{module(NAMES[0])}:POLICY")


# The guide's files as real packages


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three packages of the guide, built and installed by pip."""
    folder = tmp_path_factory.mktemp("packages")
    files = files_of_the_guide()
    project = files["path_per_job/pyproject.toml"]
    for name in NAMES:
        package = folder / module(name)
        package.mkdir()
        (package / f"{module(name)}.py").write_text(files[f"{module(name)}/{module(name)}.py"])
        text = project.replace("path-per-job", name).replace("path_per_job", module(name))
        (package / "pyproject.toml").write_text(text)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", folder / "site"]
    subprocess.run([*pip, *options, *(f"./{module(n)}" for n in NAMES)], check=True, cwd=folder)
    return folder / "site"


def command(site: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "polyrhythm", *words],
        cwd=site.parent, env=dict(uncounted(), PYTHONPATH=str(site)), capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip


def test_the_guide_has_a_short_file_for_each_kind() -> None:
    shown = modules_of_the_guide()
    assert sorted(shown) == sorted(map(module, NAMES))
    for text in shown.values():
        assert text.count("\n") <= 30
        assert set(re.findall(r"^from (\w+)", text, re.MULTILINE)) <= {
            "polyrhythm", "dataclasses", "collections"
        }  # fmt: skip


@pytest.mark.slow
def test_each_file_is_a_package_that_plans_and_simulates(installed: Path) -> None:
    made = {}
    for name in EACH_BY_NAME_AND_ONE_BY_MODULE:
        done = command(installed, "plan", "two_vgg19", "--policy", name, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        made[name] = json.loads(done.stdout)
        assert made[name].pop("policy") == name
    assert made[f"{module(NAMES[0])}:POLICY"] == made[NAMES[0]]
    every = ",".join(EACH_BY_NAME_AND_ONE_BY_MODULE)
    done = command(installed, "sim", "--trace", "two_vgg19", "--policy", every, "--json")
    assert done.returncode == 0, done.stderr
    runs = {d["policy"]: d for d in json.loads(done.stdout)["policies"]}
    assert {runs[name]["finished"] for name in EACH_BY_NAME_AND_ONE_BY_MODULE} == {2}
    assert runs[NAMES[0]]["mean_slowdown"] == runs[f"{module(NAMES[0])}:POLICY"]["mean_slowdown"]
    # Jobs whose starts are half a period apart do not meet; on the only spine they do.
    assert runs["even-shifts"]["mean_slowdown"] < 1.01 < runs["path-per-job"]["mean_slowdown"]


@pytest.mark.slow
@pytest.mark.parametrize("policy", EACH_BY_NAME_AND_ONE_BY_MODULE)
def test_each_file_is_a_package_that_runs(installed: Path, tmp_path: Path, policy: str) -> None:
    file = tmp_path / "figures.json"
    scenario = shortened("two_vgg19", tmp_path, warmup=1, iterations=3)
    options = ("--once", "--offsets", "0", "--policy", policy, "--json", str(file))
    done = command(installed, "run", str(scenario), *options)
    assert done.returncode == 0, done.stderr
    ran = json.loads(file.read_text())
    assert ran["policy"] == policy
    if policy == "even-shifts":
        shifts = sorted(j["shift_ms"] for j in ran["scenarios"]["two_vgg19"]["jobs"])
        assert shifts[1] - shifts[0] > 100


FIRST_PLAN_ONLY = """
from dataclasses import dataclass
from polyrhythm import JobSlot, Policy, SlotSchedule, Timing, TimingProblem

@dataclass(frozen=True)
class FirstPlanOnly(Timing):
    def schedule(self, problem: TimingProblem) -> SlotSchedule:
        if problem.previous:
            raise KeyError("slots in force")
        return SlotSchedule({job: JobSlot(t, 0, 0) for job, t in problem.periods.items()}, {}, (), ())

POLICY = Policy("first-plan-only", timing=FirstPlanOnly())
"""


@pytest.mark.slow
def test_a_run_says_that_a_job_is_in_no_plan(site: Path, tmp_path: Path) -> None:
    install(site, "first_plan_only", FIRST_PLAN_ONLY)
    file = tmp_path / "figures.json"
    scenario = shortened("two_vgg19", tmp_path, warmup=1, iterations=3)
    scenario.write_text(scenario.read_text() + "profile_window_ms: 1000\n")
    options = ("--once", "--offsets", "0", "--policy", "first-plan-only", "--json", str(file))
    done = command(site, "run", str(scenario), *options)
    assert done.returncode == 0, done.stderr
    notes = json.loads(file.read_text())["scenarios"]["two_vgg19"]["notes"]
    assert notes["ecmp"] == []
    job = "the controller refused: job vgg19-a is left out of all plans, and its flows go by ECMP: plan failed: "
    (note,) = (note for note in notes["polyrhythm"] if note.startswith(job))
    assert "slots in force" in note
    assert note in " ".join(done.stdout.replace("│", " ").split())


# Other processes and later runs


@pytest.mark.slow
def test_the_spawned_planner_resolves_the_policy(site: Path) -> None:
    known = policy_named("path-per-job").with_options({"offset": 1})
    unknown = Policy("nowhere", routing=known.routing, priority=policy_named("shortest-first").priority)

    async def planned() -> None:
        worker = WorkerProcess(
            leaf_spine(2, 2, 4, host_bps=G, fabric_bps=G), EcnProfile(5, 20, 0.1), artefacts_dir()
        )
        try:
            for policy in (known, unknown):
                there, here = await worker.run(plan, inputs(policy)), plan(inputs(policy))
                assert there == here
                assert there.policy == policy.reference
        finally:
            worker.close()

    asyncio.run(planned())
    assert plan(inputs(known)).flows["a/h1>h5"].path == ("h1", "leaf1", "spine2", "leaf2", "h5")


def simulate(folder: Path, out: str, policy: str = "shortest-first") -> int:
    (folder / "fabric.json").write_text(json.dumps(FABRIC))
    words = ["sim", "--trace", "poisson:30", "--hours", "2", "--topology", str(folder / "fabric.json")]
    return main([*words, "--policy", policy, "--checkpoint-s", "0", "--out", str(folder / out), "--json"])


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def stop_after_checkpoints(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The simulation ends as if killed, right after it has written its checkpoint for the last time."""
    save, seen = sim_command.save, []

    def saved_once_more(*arguments: object) -> None:
        save(*arguments)
        seen.append(1)
        if len(seen) == count:
            raise KeyboardInterrupt

    monkeypatch.setattr(sim_command, "save", saved_once_more)


def test_a_simulation_goes_on_from_its_checkpoint(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(tmp_path, "whole") == 0
    whole = capsys.readouterr().out.replace("whole", "cut")
    with monkeypatch.context() as patch:
        stop_after_checkpoints(patch, 2)
        assert simulate(tmp_path, "cut") == 130
    assert (tmp_path / "cut" / "shortest-first.checkpoint").exists()
    # A new process imports the policy anew.
    forget()
    capsys.readouterr()
    assert simulate(tmp_path, "cut") == 0
    said = capsys.readouterr()
    assert "shortest-first: continuing from" in said.err
    assert said.out == whole
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_a_checkpoint_of_another_version_is_refused(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        stop_after_checkpoints(patch, 1)
        assert simulate(tmp_path, "cut") == 130
    install(site, "shortest_first", modules_of_the_guide()["shortest_first"], version="1.1")
    forget()
    capsys.readouterr()
    assert simulate(tmp_path, "cut") == 2
    said = capsys.readouterr().err
    assert "of other inputs or options" in said
    assert said.count("\n") == 1


# What is kept of a policy


def test_diff_names_changed_options_and_versions(site: Path) -> None:
    policy = policy_named("shortest-first")
    before = plan(inputs(policy))
    after = plan(replace(inputs(policy.with_options({"levels": 1})), previous=before))
    assert diff(before, after)[0] == "policy shortest-first: priority.levels 6 -> 1"
    assert not diff(before, before)
    newer = replace(before, policy=replace(before.policy, version="1.1"))
    assert diff(before, newer) == (
        "policy shortest-first: distribution shortest-first 1.0 -> shortest-first 1.1",
    )
    assert diff(plan(inputs(POLICIES["ecmp"])), before)[0] == "policy ecmp -> shortest-first"


def test_the_store_keeps_the_reference(site: Path, tmp_path: Path) -> None:
    policy = policy_named("even_shifts:POLICY").with_options({"spread": 0.5})
    store = SqliteStore(tmp_path / "state.sqlite")
    store.commit(Batch(plans=[PlanEncoder().stored(1, plan(inputs(policy)))]))
    (stored,) = store.plans(2)
    store.close()
    reference = plan_of(stored).policy
    assert reference == policy.reference
    assert (reference.distribution, reference.version) == ("even-shifts", "1.0")
    assert resolve(reference) == policy


def test_rest_shows_the_policy_and_takes_none(site: Path) -> None:
    reference = policy_named("path_per_job:POLICY").reference
    shown = replace(view(5), plan=replace(shown_plan(), policy=reference))
    with running(shown) as server, httpx.Client(base_url=server.url, timeout=300) as client:
        out = client.get("api/v1/plan").raise_for_status().json()["policy"]
        for method in ("POST", "PUT", "PATCH"):
            answer = client.request(method, "api/v1/plan", json={"policy": "path_per_job:POLICY"})
            assert answer.status_code == 405
        paths = client.get("api/v1/openapi.json").json()["paths"]
    assert out["name"] == "path_per_job:POLICY"
    assert (out["distribution"], out["version"], out["routing"]) == ("path-per-job", "1.0", "PathPerJob")
    assert out["options"]["routing.offset"] == 0
    assert out == render.plan(shown.plan).model_dump()["policy"]
    # What may be written is listed here, so that no new route escapes this test.
    takes = {path.removeprefix("/api/v1/") for path, methods in paths.items() if set(methods) != {"get"}}
    assert takes == {
        "fabric/links/{name}/circle",
        "fabric/links/{name}/cut",
        "fabric/links/{name}/drain",
        "fabric/switches/{name}/drain",
        "jobs",
        "jobs/{name}",
        "placements",
        "plan/dry-run",
        "plans/{version}/rollback",
        "policy",
        "what-if",
    }
    # What a REST request could name is a registered policy only.
    assert registered_policy("path-per-job").routing == policy_named("path_per_job:POLICY").routing
    with pytest.raises(PolicyError, match="is no policy; legal: "):
        registered_policy("path_per_job:POLICY")


def test_a_reference_is_resolved_or_refused_in_one_line(site: Path) -> None:
    reference = policy_named("path-per-job").reference
    assert resolve(reference).reference == reference
    for changed, words in (
        (replace(reference, name="gone"), "'gone' is no policy; legal: .*path-per-job"),
        (replace(reference, name="gone:POLICY"), "cannot be imported: ModuleNotFoundError"),
        (replace(reference, version="2.0"), "path-per-job 2.0; installed: path-per-job 1.0"),
        (
            replace(reference, options=(*reference.options, ("routing.width", 3))),
            "has no option routing.width",
        ),
        (
            PolicyReference("path-per-job", "path-per-job", "1.0", (("routing", "Other"),)),
            "routing is Other in the reference; installed: PathPerJob",
        ),
    ):
        with pytest.raises(PolicyError, match=words) as caught:
            resolve(changed)
        assert "\n" not in str(caught.value)


# Mistakes

BROKEN = """
from dataclasses import dataclass
from polyrhythm import Policy, Routing, Routes, Timing

@dataclass(frozen=True)
class Raises(Routing):
    def route(self, problem):
        raise RuntimeError("two\\nlines")

@dataclass(frozen=True)
class Nonsense(Timing):
    def schedule(self, problem):
        return {"a": 3}

RAISES = Policy("raises", routing=Raises())
NONSENSE = Policy("nonsense", timing=Nonsense())
CLASS = Raises
OBJECT = 5
"""
DOORS = {
    "plan": ["plan", "two_vgg19"],
    "sim": ["sim", "--trace", "two_vgg19"],
    "run": ["run", "two_vgg19", "--once", "--offsets", "0"],
    "controller": ["controller", "--fabric", "none.json"],
}  # fmt: skip


@pytest.fixture
def broken(site: Path) -> Path:
    install(site, "broken", BROKEN)
    (site / "raising.py").write_text("raise OSError('no\\nlicence')\n")
    forget()
    return site


def one_line(words: list[str], policy: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main([*words, "--policy", policy]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize("door", DOORS)
def test_a_policy_that_cannot_be_had_is_one_line(
    broken: Path, door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for policy, words in (
        ("nobody", "'nobody' is no policy; legal: annealing, "),
        (
            "no.such:X",
            "policy no.such:X: no.such:X cannot be imported: ModuleNotFoundError: No module named 'no'",
        ),
        ("broken:NONE", "cannot be imported: AttributeError: module 'broken' has no attribute 'NONE'"),
        ("broken", "cannot be imported: AttributeError: module 'broken' has no attribute 'POLICY'"),
        ("raising:X", "cannot be imported: OSError: no licence"),
        ("broken:OBJECT", "broken:OBJECT is of type int; legal: a Policy object"),
        ("broken:CLASS", "legal: a Policy object (from polyrhythm import Policy)"),
        (":X", "cannot be imported: ValueError"),
        ("broken:", "cannot be imported: AttributeError"),
    ):
        assert words in one_line(DOORS[door], policy, capsys)


@pytest.mark.parametrize("door", ["plan", "sim", "run"])
def test_a_policy_that_fails_is_one_line(broken: Path, door: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = one_line(DOORS[door], "broken:RAISES", capsys)
    assert said == "policy broken:RAISES: routing Raises failed: RuntimeError: two lines\n"
    said = one_line(DOORS[door], "broken:NONSENSE", capsys)
    assert said == "policy broken:NONSENSE: the timing answered dict; legal: SlotSchedule\n"


def test_two_packages_with_one_name(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "other", modules_of_the_guide()["path_per_job"])
    entry = (site / "path_per_job.dist-info" / "entry_points.txt").read_text()
    (site / "other.dist-info" / "entry_points.txt").write_text(entry.replace("path_per_job", "other"))
    forget()
    said = one_line(DOORS["plan"], "path-per-job", capsys)
    assert "registered by other and path-per-job; legal: " in said
    assert main(["plan", "two_vgg19", "--policy", "other:POLICY"]) == 0
