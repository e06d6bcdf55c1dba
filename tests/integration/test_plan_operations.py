# SPDX-License-Identifier: Apache-2.0
"""History of plans, rollback and dry run, by the commands that a user runs, against a running controller."""

from __future__ import annotations

import json

import pytest
from control_rig import eventually, job, join_message

from controller.wire import agent_pb2 as wire
from polyrhythm.cli import main

LARGER = """
name: larger
about: a job on hosts that the fabric does not have
fabric: {kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 3, host_gbps: 50, fabric_gbps: 50}
jobs:
  - name: x
    model: VGG19
    gpus: 2
    hosts: [h1, h5]
    period_ms: 260
    phases: [{start_ms: 0, end_ms: 120, gbps: 50}]
"""


@pytest.mark.slow
def test_history_dry_run_and_rollback(fabric, start_controller, connect, tmp_path, capsys):
    description = fabric.description(profile="declared", verify=False)
    controller = start_controller(description, f"--state={tmp_path / 'state'}", "--policy=ecmp")

    def polyrhythm(*arguments: str) -> tuple[int, str]:
        code = main([*arguments, "--controller", controller.web])
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    def version() -> int:
        plan = controller.api("plan")
        return plan["version"] if plan else 0

    def planned() -> set[str]:
        plan = controller.api("plan")
        return {j["job"] for j in plan["jobs"]} if plan else set()

    agents = {}
    for member in (job("a", "h1", "h3"), job("b", "h2", "h4")):
        for rank, host in enumerate(member.hosts):
            agents[host] = connect(controller.agents, host)
            agents[host].next("welcome")
            agents[host].send(join_message(member, rank))
            flow = member.flows[rank].name
            agents[host].send(wire.AgentMessage(flow_request=wire.FlowRequest(flow=flow)))
    eventually(lambda: planned() == {"a", "b"}, "both are planned")

    def unchanged() -> bool:
        # A machine that pauses loses sessions with switches, which makes more plans of the same kind.
        policies = {p["policy"] for p in controller.api("plans")["plans"]}
        return policies == {"ecmp"} and planned() == {"a", "b"}

    code, said = polyrhythm("apply", "polyrhythm", "--dry-run")
    assert code == 0, said
    assert "host h1: flow a/h1>h3: source port " in said
    assert unchanged()
    code, said = polyrhythm("apply", "two_vgg19")
    assert code == 2
    assert "'two_vgg19' is no policy; legal: " in said
    assert "; a scenario can be tried with --dry-run only" in said
    code, said = polyrhythm("apply", "best", "--dry-run")
    assert code == 2
    assert "'best' is no policy; legal: " in said
    assert "; nor a scenario: " in said

    # Jobs of a scenario instead of the present ones; and one for other hosts.
    code, said = polyrhythm("apply", "two_vgg19", "--dry-run")
    assert code == 0, said
    assert "host h1: flow vgg19-a/h1>h3: " in said
    assert "flow a/h1>h3" not in said
    larger = tmp_path / "larger.yaml"
    larger.write_text(LARGER)
    code, said = polyrhythm("apply", str(larger), "--dry-run")
    assert code == 2
    assert "job x: the fabric has no host named h5" in said
    assert unchanged()

    # Placements of a new job beside the present ones.
    wanted = tmp_path / "place.json"
    wanted.write_text(
        json.dumps({"scenario": "two_vgg19", "job": "vgg19-a", "candidates": [["h1", "h2"], ["h1", "h3"]]})
    )
    code, said = polyrhythm("place", str(wanted), "--running", "--json")
    assert code == 0, said
    ranked = json.loads(said)["placements"]
    assert {p["index"] for p in ranked} == {0, 1}
    assert ranked[0]["compatibility"] >= ranked[1]["compatibility"]
    crossing = next(p for p in ranked if p["index"] == 1)
    assert {name for k in crossing["links"] for name in k["jobs"]} <= {"a", "b", "vgg19-a"}
    larger.write_text(LARGER.replace("hosts: [h1, h5]", "hosts: [h1, h4]"))
    wanted.write_text(json.dumps({"scenario": str(larger), "job": "x", "candidates": [["h1", "h5"]]}))
    code, said = polyrhythm("place", str(wanted), "--running")
    assert code == 2
    assert "the controller answers 409: job x: the fabric has no host named h5" in said
    assert unchanged()

    # A spine is taken out of use and comes back; the other one then has to stay.
    both = version()
    code, said = polyrhythm("drain", "spine1", "--wait", "60")
    assert (code, said) == (0, "switch  spine1  drained\n")
    assert [s["name"] for s in controller.api("fabric")["switches"] if s["drained"]] == ["spine1"]
    code, said = polyrhythm("drain", "leaf2-spine2")
    assert code == 2
    assert "4 flows of present jobs would have no path left" in said
    assert polyrhythm("drain", "spine9")[0] == 2
    assert polyrhythm("undrain", "spine1") == (0, "spine1 is in use again\n")
    assert polyrhythm("drain", "spine1", "--json")[0] == 0
    assert json.loads(polyrhythm("undrain", "spine1", "--json")[1]) == {"undrained": ["spine1"]}
    assert polyrhythm("drain") == (0, "nothing is drained\n")
    eventually(lambda: version() > both, "the drain and its end have made plans")
    both = version()

    # Another policy makes the plans, and then that of the start again.
    assert polyrhythm("apply", "crux", "--option", "priority.levels=3") == (
        0,
        "policy crux makes the plans\n",
    )
    made = controller.api("plan")
    assert (made["policy"]["name"], made["policy"]["options"]["priority.levels"]) == ("crux", 3)
    assert version() > both
    code, said = polyrhythm("apply", "crux", "--option", "priority.levels=many")
    assert (code, "priority.levels is 'many'" in said) == (2, True), said
    assert polyrhythm("apply", "ecmp")[0] == 0
    both = version()

    # Job b leaves; the earlier plan comes back for job a.
    for rank, host in enumerate(("h2", "h4")):
        agents[host].send(wire.AgentMessage(job_leave=wire.JobLeave(job="b", rank=rank)))
    eventually(lambda: planned() == {"a"}, "b has left the plan")
    last = version()
    eventually(lambda: f"{last:>8}  " in polyrhythm("history")[1], "the history has it")
    code, said = polyrhythm("rollback", str(both))
    assert (code, said) == (0, f"plan {both} is in force again, as plan {last + 1}\n")
    eventually(lambda: version() == last + 1, "the API shows it")

    def newest() -> str:
        return polyrhythm("history", "--most", "1")[1].rstrip()

    changed = controller.api(f"plans/{both}/diff")
    assert (changed["before"], changed["after"]) == (both, last + 1)
    assert [(j["job"], j["after"]) for j in changed["jobs"]] == [("b", None)]
    eventually(lambda: newest().startswith(f"{last + 1:>8}  "), "the history has the new number")
    assert newest().endswith("ecmp  in force")
    assert json.loads(polyrhythm("history", "--json")[1])["plans"][0]["version"] == last + 1

    # A job that a request declares, and ends.
    wanted.write_text(
        json.dumps(
            {
                "name": "r",
                "gpus": 2,
                "hosts": ["h2", "h4"],
                "traffic": {"collective": "ring", "data_bytes": 1_000_000},
            }
        )
    )
    assert polyrhythm("jobs", "submit", str(wanted)) == (
        0,
        "job r is declared: 2 flows on 2 hosts\n",
    )
    eventually(lambda: "r" in planned(), "r is planned")
    shown = polyrhythm("jobs", "list")[1].splitlines()[-1].split()
    assert [*shown[:3], *shown[4:]] == ["r", "unknown", "2", "0", "-"]
    code, said = polyrhythm("jobs", "show", "r")
    assert (code, said.split()[:3]) == (0, ["r", "unknown,", "2"])
    assert "\nr/h2>h4  " in said, said
    assert json.loads(polyrhythm("jobs", "show", "r", "--json")[1])["name"] == "r"
    assert polyrhythm("jobs", "show", "s")[0] == 2
    code, said = polyrhythm("jobs", "submit", str(wanted))
    assert (code, "answers 409: job r is there already" in said) == (2, True), said
    assert polyrhythm("jobs", "end", "r") == (0, "job r is ended\n")
    assert polyrhythm("jobs", "end", "r")[0] == 2
    wanted.write_text("[]")
    assert polyrhythm("jobs", "submit", str(wanted))[0] == 2
    eventually(lambda: planned() == {"a"}, "r has left the plan")

    # A job that the earlier plan does not know.
    newcomer = job("c", "h2", "h4")
    for rank, host in enumerate(newcomer.hosts):
        agents[host].send(join_message(newcomer, rank))
    eventually(lambda: "c" in planned(), "c is planned")
    code, said = polyrhythm("rollback", str(both))
    assert code == 2
    assert f"plan {both} has no job c, which is present" in said
    code, said = polyrhythm("rollback", "999")
    assert (code, said) == (
        2,
        "polyrhythm rollback: the controller answers 404: the history has no plan 999\n",
    )
