# SPDX-License-Identifier: Apache-2.0
"""Jobs that say what they are: their flows, steps and profile in a scenario, and in a simulation of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from polyrhythm.api import scenario_workload
from polyrhythm.scenario import ROCE_OVERHEAD_BYTES, Scenario, load_scenario
from polyrhythm_files import ConfigError
from sim.shape import planner_job, program

FABRIC = """\
name: models
fabric: {kind: leaf_spine, leaves: 4, spines: 4, hosts_per_leaf: 4, host_gbps: 800, fabric_gbps: 800}
scale: 20000
jobs:
"""
GPT3 = """\
  - name: gpt3
    model: GPT-3
    gpus: 128
    hosts: [h1, h2, h3, h4, h5, h6, h7, h8, h9, h10, h11, h12, h13, h14, h15, h16]
    compute_ms: 1010
    traffic:
      parallelism: {tensor: 8, pipeline: 8, data: 2}
      transformer: {parameters: 175e9, layers: 96, hidden: 12288, sequence: 2048, micro_batches: 16}
      queue_pairs: 2
      exchanges: 4
"""
RAILS = """\
name: rails
fabric: {kind: file, path: rails.yaml}
scale: 1000
jobs:
  - {name: a, model: M, gpus: 8, hosts: [h1, h3], compute_ms: 10, traffic: {data_bytes: 1e8, collective: tree}}
"""


def load(tmp_path: Path, text: str) -> Scenario:
    (tmp_path / "s.yaml").write_text(text)
    return load_scenario(tmp_path / "s.yaml")


def test_a_gpt_3_job_of_ten_lines_sends_what_the_formulas_say(tmp_path: Path) -> None:
    scenario = load(tmp_path, FABRIC + GPT3)
    (workload,) = scenario.workloads
    flows, steps = workload.job.flows, workload.steps
    assert len(GPT3.splitlines()) == 10
    # 16 flows of gradients and 28 of activations (see test_traffic_config), each over two queue pairs.
    assert len(flows) == 2 * (16 + 28)
    assert Counter(f.name.count("#") for f in flows) == {0: 44, 1: 44}
    # Eight GPUs of a host reduce 10.9375 GB each with one other copy: 87.5 GB, halved over the queue pairs.
    reduced = 8 * 10_937_500_000 / 2 / 20_000
    passed = 8 * 100_663_296 / 4 / 2 / 20_000
    for number, flow in enumerate(flows):
        sizes = [step.sizes[number] for step in steps]
        assert sum(sizes) == flow.bytes_per_iteration
        wanted = [0] * 4 + [reduced] if sizes[-1] else [passed] * 4 + [0]
        assert sizes == pytest.approx(wanted, abs=scenario.packet_bytes / 2)
    # Four exchanges, each followed by a quarter of the compute time, then the reduction.
    assert [step.compute_ns for step in steps] == [252_500_000] * 4 + [0]
    # A host in the middle of the pipeline sends two activations a time; the NIC's 40 Mbit/s are the limit.
    wire = 1 + ROCE_OVERHEAD_BYTES / scenario.packet_bytes
    up = [p.end_ns - p.start_ns for p in workload.job.profile.phases]
    seconds = [8 * wire * n / 4e7 for n in [4 * passed] * 4 + [2 * reduced]]
    assert [n / 1e9 for n in up] == pytest.approx(seconds, rel=0.05)
    assert workload.job.profile.period_ns == sum(up) + 1_010_000_000
    assert workload.lead_ns == 252_500_000


def test_the_simulator_sends_the_same_bytes_over_the_same_flows(tmp_path: Path) -> None:
    scenario = load(tmp_path, FABRIC + GPT3)
    (request,) = scenario_workload(scenario)
    assert request.ranks is not None
    built = program(request.shape, "gpt3", request.ranks)
    (workload,) = scenario.workloads
    simulated = planner_job(request.shape, "gpt3", "GPT-3", 128, built, workload.job.profile)
    overhead = 1 + ROCE_OVERHEAD_BYTES / scenario.packet_bytes
    assert {f.name: (f.src, f.dst, f.bytes_per_iteration) for f in simulated.flows} == {
        f.name: (f.src, f.dst, round(f.bytes_per_iteration * overhead)) for f in workload.job.flows
    }


def test_a_server_uses_all_its_rails(tmp_path: Path) -> None:
    (tmp_path / "rails.yaml").write_text(
        "{kind: rail, groups: 2, rails: 2, spines: 2, servers_per_group: 2, host_gbps: 100, fabric_gbps: 100}"
    )
    (workload,) = load(tmp_path, RAILS).workloads
    # A tree of 8 ranks in two servers: ranks 4 to 7 are in h3, two a rail.
    assert {f.src.partition(".")[0] for f in workload.job.flows} == {"h1", "h3"}
    assert {n.rpartition(".")[2] for f in workload.job.flows for n in (f.src, f.dst)} == {"1", "2"}
    assert set(workload.job.hosts) == {n for f in workload.job.flows for n in (f.src, f.dst)}


def test_a_nic_of_a_server_in_the_list_is_there_twice(tmp_path: Path) -> None:
    (tmp_path / "rails.yaml").write_text(
        "{kind: rail, groups: 2, rails: 2, spines: 2, servers_per_group: 2, host_gbps: 100, fabric_gbps: 100}"
    )
    for hosts, twice in (
        ("[h1, h3, h1.2]", r"hosts\[2\]: 'h1.2'"),
        ("[h1.1, h1, h3]", r"hosts\[1\]: 'h1.1'"),
    ):
        with pytest.raises(ConfigError, match=twice + " is in the list twice"):
            load(tmp_path, RAILS.replace("hosts: [h1, h3]", f"hosts: {hosts}"))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("data: 2}", "data: 3}", "10: jobs[0].traffic: tensor 8 x pipeline 8 x data 3 are 192 GPUs, and the"),
        ("gpus: 128", "gpus: 120", "7: jobs[0].gpus: 120 GPUs on 16 hosts are not the same number on each"),
        ("h16]", "h15]", "8: jobs[0].hosts[15]: 'h15' is in the list twice"),
        ("h16]", "h17]", "8: jobs[0].hosts[15]: 'h17' is no host of the fabric"),
        ("    compute_ms: 1010\n", "", "5: jobs[0]: compute_ms is missing"),
        ("compute_ms: 1010", "compute_ms: 1010\n    period_ms: 5", "10: jobs[0].period_ms: the job has traffic"),
        ("exchanges: 4", "exchanges: 64", "14: jobs[0].traffic.exchanges: 64"),
        ("{parameters: 175e9,", "{parameters: 900e12,", "10: jobs[0].traffic: an iteration takes"),
        ("data: 2}", "data: 2, expert: 4}", "11: jobs[0].traffic.parallelism.expert: 4 does not divide data"),
        (GPT3[GPT3.index("    traffic"):], "    traffic: {data_bytes: 0}\n", "10: jobs[0].traffic: the job sends n"),
        (GPT3[GPT3.index("    traffic"):], "    traffic: {}\n", "10: jobs[0].traffic: the job sends nothing over"),
        (GPT3[GPT3.index("    traffic"):], "", "5: jobs[0]: period_ms is missing; legal: period_ms and phases, or"),
    ],
)  # fmt: skip
def test_a_job_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert GPT3.count(old) == 1
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, FABRIC + GPT3.replace(old, new))
    message = str(refused.value).removeprefix(f"{tmp_path / 's.yaml'}:")
    assert "\n" not in message
    assert message.startswith(expected), message


def test_a_job_of_millions_of_pairs_is_refused_before_it_is_expanded(tmp_path: Path) -> None:
    job = """\
  - {name: moe, model: M, gpus: 80000, hosts: [h1, h2], compute_ms: 1, traffic: {collective: all_to_all, data_bytes: 1}}
"""
    with pytest.raises(ConfigError, match="6,399,920,000 pairs of GPUs"):
        load(tmp_path, FABRIC + job)


def test_jobs_of_too_many_flows_together_are_refused(tmp_path: Path) -> None:
    """Each job is legal for itself."""
    hosts = ", ".join(f"h{n}" for n in range(1, 257))
    big = f"gpus: 256, hosts: [{hosts}], compute_ms: 1, traffic: {{collective: all_to_all, data_bytes: 1}}"
    fabric = FABRIC.replace("hosts_per_leaf: 4", "hosts_per_leaf: 64")
    jobs = "".join(f"  - {{name: j{n}, model: M, {big}}}\n" for n in range(3))
    with pytest.raises(ConfigError, match=r"jobs\[2\]: more than 131,072 flows up to here; legal: fewer, or"):
        load(tmp_path, fabric + jobs)
