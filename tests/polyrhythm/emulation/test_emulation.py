# SPDX-License-Identifier: Apache-2.0
"""What the Mininet fabric is made from: tutorials' topologies, agents' configurations, HTB classes."""

from __future__ import annotations

import copy
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tutorial_rig import POD

from controller.model import TRAFFIC_CLASSES
from hostagent.config import load_config
from hostagent.host import measured_profile
from hostagent.job import IterationRecord
from hostagent.messages import job_join
from polyrhythm.emulation.agent_config import AgentJob, agent_config
from polyrhythm.emulation.process import check_supported, twin_records
from polyrhythm.emulation.shaping import htb_commands
from polyrhythm.fabric.jobs import job_spec
from polyrhythm.run.command import add_arguments
from polyrhythm.scenario import load_scenario, scenario_path, write_on
from polyrhythm_files import ConfigError
from topo.files import load_topology
from topo.graph import Tier
from topo.mininet import MininetError, check_host


def write(folder: Path, data: object) -> Path:
    path = folder / "topology.json"
    path.write_text(json.dumps(data))
    return path


def test_a_tutorials_topology_is_a_fabric(tmp_path: Path) -> None:
    found = load_topology(write(tmp_path, POD))
    assert {s.name: s.tier for s in found.switches} == {
        "s1": Tier.LEAF, "s2": Tier.LEAF, "s3": Tier.SPINE, "s4": Tier.SPINE,
    }  # fmt: skip
    assert found.host["h1"].mac == "08:00:00:00:01:11"
    assert (found.host["h3"].leaf, found.host["h3"].leaf_port) == ("s2", 1)
    assert found.ports["s1"][4].node == "s4"
    assert found.ports["s1"][4].port == 2
    assert found.ports["s1"][4].rate_bps == 500_000
    assert found.ports["s1"][3].rate_bps == 100_000_000_000
    assert len({h.ip for h in found.hosts}) == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["links"].append(["h1", "s2-p9"]), "links[8]: h1 is connected to s1 already"),
        (lambda d: d["links"].append(["s1-p1", "s2-p9"]), "links[8]: port 1 of s1 has a cable already"),
        (
            lambda d: d["links"].append(["s1-p9", "s7-p1"]),
            "links[8][1]: 's7-p1' is wrong; legal: a host, or SWITCH-pN",
        ),
        (lambda d: d["links"].append(["h1", "h2"]), "links[8]: joins h1 and h2; legal: a host and a switch"),
        (lambda d: d["links"].append(["s1-p8", "s1-p9"]), "links[8]: joins s1 and s1"),
        (lambda d: d["links"].append("h1"), "links[8]: 'h1' is wrong; legal: a list of 2 to 4 values"),
        (lambda d: d["links"].append([1, 2]), "links[8][0]: 1 is wrong; legal: a host"),
        (lambda d: d["links"].append(["s1-p8", "s2-p8", 0, -1]), "links[8][3]: -1 is wrong; legal: Mbit/s"),
        (lambda d: d["hosts"].update(h9={}), "hosts.h9: no link joins it"),
        (lambda d: d["hosts"].update(s1={}), "hosts.s1: this name is a switch's too"),
        (lambda d: d["hosts"]["h1"].update(mac="zz"), "hosts.h1.mac: 'zz' is wrong; legal: a MAC address"),
    ],
)
def test_what_is_wrong_with_a_tutorials_topology_is_told(change: Any, said: str, tmp_path: Path) -> None:
    data = copy.deepcopy(POD)
    change(data)
    with pytest.raises(ConfigError) as caught:
        load_topology(write(tmp_path, data))
    assert said in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_scenario_on_a_topology_file(tmp_path: Path) -> None:
    out = tmp_path / "moved.json"
    write_on(scenario_path("two_vgg19"), write(tmp_path, POD), out)
    moved = load_scenario(out)
    assert [s.name for s in moved.topology.switches] == ["s1", "s2", "s3", "s4"]
    # The scenario's 50 Gbit/s for what the file leaves open; its own Mbit/s are the emulated ones.
    assert moved.topology.hosts[0].rate_bps == 25_000_000
    assert moved.topology.ports["s1"][4].rate_bps == 500_000
    data = json.loads(out.read_text())
    data["fabric"]["path"] = "nowhere.json"
    out.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=r"fabric\.path: .*nowhere\.json: cannot be read: No such file"):
        load_scenario(out)


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20)


@settings(deadline=None, max_examples=30)
@given(model=names, start=st.integers(0, 2**62))
def test_an_agents_configuration_is_one_that_agents_read(
    model: str, start: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scenario = load_scenario(scenario_path("snapshot2"))
    profile = {"period_ns": 300_000_000, "phases": [[0, 100, 5], [200, 300, 7]]}
    jobs = [AgentJob(w, start, 1000, 0, profile) for w in scenario.workloads]
    text = agent_config(scenario, "h1", "unix:/run/x.sock", f"/tmp/{model}", "", 7, jobs)
    assert tomllib.loads(text)["training"]["records"] == f"/tmp/{model}"
    path = tmp_path_factory.mktemp("agent") / "agent.toml"
    path.write_text(text, encoding="utf-8")
    config = load_config(path)
    mine = [w for w in scenario.workloads if "h1" in w.job.hosts]
    assert [job.name for job in config.training.jobs] == [w.job.name for w in mine]
    spec = config.training.jobs[0].spec(config.payload_bps)
    assert spec.ring == tuple((f.src, f.dst) for f in mine[0].job.flows)
    assert spec.announced().period_ns == 300_000_000
    assert config.nic.rate_mbps == 25


def test_an_agent_learns_how_a_job_behaves_and_when_it_leaves(tmp_path: Path) -> None:
    text = scenario_path("two_vgg19").read_text()
    file = tmp_path / "s.yaml"
    more = (
        "model: VGG19\n    silent: true\n    increase_timer: 0.5\n    jitter_pct: 3\n    sender: mltcp-reno"
    )
    file.write_text(text.replace("model: VGG19", more))
    scenario = load_scenario(file)
    path = tmp_path / "agent.toml"
    jobs = [AgentJob(w, 5, 0, 0, None, 900) for w in scenario.workloads]
    path.write_text(agent_config(scenario, "h1", "unix:/run/x.sock", "", "", 7, jobs))
    config = load_config(path)
    (job,) = config.training.jobs
    spec = job.spec(config.payload_bps)
    assert (spec.silent, spec.increase_timer, spec.compute_jitter) == (True, 0.5, pytest.approx(0.03))
    assert spec.sender == "mltcp-reno"
    assert (job.start_ns, job.iterations, job.stop_ns) == (5, 0, 900)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mice": {"load_pct": 5, "bytes": 1000}}, "mice"),
        ({"nics": {"chooses_ports": True}}, "nics"),
        ({"nics": {"any_order": True}}, "any_order"),
        ({"clock_offset_ms": 3}, "clock of the machine"),
        ({"clock_drift_ppm": 3}, "clock of the machine"),
        ({"jobs": {"announces": "nothing"}}, "job vgg19-a: announces"),
        (
            {"jobs": {"changes": [{"iteration": 2, "period_ms": 9, "phases": [{"start_ms": 0, "end_ms": 4, "gbps": 5}]}]}},
            "job vgg19-a: changes",
        ),
    ],
)  # fmt: skip
def test_what_this_fabric_cannot_do_is_refused_by_name(change: Any, said: str, tmp_path: Path) -> None:
    plain = yaml.safe_load(scenario_path("two_vgg19").read_text())
    check_supported(load_scenario(scenario_path("two_vgg19")))
    plain["jobs"][0].update(change.pop("jobs", {}))
    path = tmp_path / "s.json"
    path.write_text(json.dumps(plain | change))
    with pytest.raises(ConfigError, match=f"^two_vgg19: .*{said}"):
        check_supported(load_scenario(path))


def record(job: str, index: int, length_ms: int) -> IterationRecord:
    return IterationRecord(
        job=job, rank=0, index=index, start_ns=0, end_ns=length_ms * 10**6, communication_ns=9, bytes_sent=9,
        ecn_marks=0, retransmits=0, held_ns=0, phases=((0, 120),), wire_bytes=(9,), compute_ns=9, flops=1.0,
        drift_ns=0, realigned=False,
    )  # fmt: skip


def test_twins_announce_one_profile_and_strangers_their_own(tmp_path: Path) -> None:
    plain = yaml.safe_load(scenario_path("two_vgg19").read_text())
    plain["jobs"].append({**plain["jobs"][0], "name": "stranger", "gpus": 4})
    path = tmp_path / "s.json"
    path.write_text(json.dumps(plain))
    scenario = load_scenario(path)
    names = ("vgg19-a", "vgg19-b", "stranger")
    records = {n: [record(n, i, ms) for i in range(3)] for n, ms in zip(names, (287, 305, 290), strict=True)}
    pooled = twin_records(scenario, records)
    specs = {w.job.name: job_spec(w, None) for w in scenario.workloads}
    periods = {name: measured_profile(own, specs[name]).period_ns for name, own in pooled.items()}
    assert periods == {"vgg19-a": 296_000_000, "vgg19-b": 296_000_000, "stranger": 290_000_000}


def test_workers_of_a_job_say_the_same_of_its_pcie_link(tmp_path: Path) -> None:
    text = scenario_path("two_vgg19").read_text()
    file = tmp_path / "s.yaml"
    file.write_text(text.replace("model: VGG19", "model: VGG19\n    pcie: {link: gpu0, gbps: 40}"))
    scenario = load_scenario(file)
    jobs = [AgentJob(w, 5, 0, 0, None) for w in scenario.workloads]
    specs = []
    for host in scenario.workloads[0].job.hosts:
        path = tmp_path / f"{host}.toml"
        path.write_text(agent_config(scenario, host, "unix:/run/x.sock", "r", "", 7, jobs))
        config = load_config(path)
        specs.append(job_join(config.training.jobs[0].spec(config.payload_bps), 0))
    assert specs[0] == specs[1]
    assert (specs[0].pcie_link, specs[0].pcie_bps) == ("gpu0", 20_000_000)


def test_htb_has_a_class_for_each_queue_and_a_filter_for_each_dscp() -> None:
    lines = htb_commands("p1", 25_000_000, TRAFFIC_CLASSES.queues, 256, 1082)
    classes = [line for line in lines if line.startswith("class") and "parent 1:1 " in line]
    assert [line.split("prio ")[1].split()[0] for line in classes] == [str(7 - q) for q in range(8)]
    # Link probes go first: late ones would be taken for a dead link.
    assert any("protocol 0x88b5" in line and line.endswith("flowid 1:17") for line in lines)
    filters = [line for line in lines if line.startswith("filter") and "protocol ip " in line]
    assert len(filters) == sum(q > 0 for q in TRAFFIC_CLASSES.queues.values())
    assert any("match ip tos 0x78 0xfc flowid 1:16" in line for line in filters)


def test_without_root_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MininetError, match="need root") as caught:
        check_host()
    assert "\n" not in str(caught.value)


def test_without_mnexec_its_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MininetError, match=r"mnexec.*apt-get install mininet iproute2"):
        check_host()


def test_the_fabric_is_an_option_of_run() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert parser.parse_args([]).fabric == "embedded"
    assert parser.parse_args(["--fabric", "mininet", "--cli", "two_vgg19"]).cli
