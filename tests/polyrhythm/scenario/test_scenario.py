# SPDX-License-Identifier: Apache-2.0
"""Scenario files: what the reader accepts, and its error messages."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostagent.job import PcieUse
from polyrhythm.scenario import Workload, load_scenario, scenario_path
from polyrhythm.scenario.build import Flood, Mice
from polyrhythm_files import ConfigError

SHIPPED = ("two_vgg19", "snapshot1", "snapshot2", "collide", "contend")
TWO_VGG19 = scenario_path("two_vgg19").read_text()


def refusal(tmp_path: Path, text: str) -> str:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_scenario(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}:")
    return message.removeprefix(f"{path}:")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenarios_load(name: str) -> None:
    scenario = load_scenario(scenario_path(name))
    assert scenario.name == name
    assert scenario.iterations == 50
    assert scenario.warmup == 5
    for workload in scenario.workloads:
        # The payload and its headers fill the Up phases at their rate, to within one packet.
        packets = sum(step.sizes[0] for step in workload.steps) / scenario.packet_bytes
        wire_bits = packets * (scenario.packet_bytes + 58) * 8
        phases = workload.job.profile.phases
        room = sum(p.rate_bps * (p.end_ns - p.start_ns) / 1e9 for p in phases)
        assert room - len(phases) * (scenario.packet_bytes + 58) * 8 <= wire_bits <= room


@pytest.mark.parametrize(("said", "sender"), [("mltcp", "mltcp-dcqcn"), ("mltcp-cubic", "mltcp-cubic")])
def test_a_sender_has_one_form_inside(tmp_path: Path, said: str, sender: str) -> None:
    path = tmp_path / "s.yaml"
    text = scenario_path("two_vgg19").read_text()
    path.write_text(text.replace("model: VGG19", f"model: VGG19\n    sender: {said}", 1))
    assert [w.job.sender for w in load_scenario(path).workloads] == [sender, "dcqcn"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "period_ms: 260",
            "perod_ms: 260",
            "12: jobs[0].perod_ms: unknown key (is period_ms meant?); legal: name, model, gpus",
        ),
        (
            "[h1, h3]",
            "[h1, h9]",
            "11: jobs[0].hosts[1]: 'h9' is no host of the fabric; legal: h1, h2, h3, h4",
        ),
        (
            "model: VGG19",
            "model: VGG19\n    sender: tcp",
            "10: jobs[0].sender: 'tcp' is wrong; legal: dcqcn, reno, cubic, dctcp, mltcp-dcqcn",
        ),
        ("[h1, h3]", "[h1, h1]", "11: jobs[0].hosts[1]: 'h1' is in the list twice; legal: each host once"),
        (
            "end_ms: 120",
            "end_ms: 320",
            "13: jobs[0].phases[0].end_ms: 320 is past the period; legal: up to 260",
        ),
        (
            "gbps: 50}]",
            "gbps: -3}]",
            "13: jobs[0].phases[0].gbps: -3 is wrong; legal: a number above 0, at most 10000",
        ),
        (
            "spines: 1",
            "spines: 0",
            "11: jobs[0].hosts[1]: no path from h1 to h3: the fabric does not connect",
        ),
        (
            "kind: leaf_spine",
            "kind: mesh",
            "6: fabric.kind: 'mesh' is wrong; legal: leaf_spine, explicit, file",
        ),
        ("kind: leaf_spine, ", "", "6: fabric.kind: missing; legal: leaf_spine, explicit, file"),
        (
            "{kind: leaf_spine, leaves: 2, ",
            "{kind: file, path: x.json, leaves: 2, ",
            "6: fabric.leaves: unknown key; legal: kind, path, gbps",
        ),
        ("name: two_vgg19", "name: 2026-02-31", "4: name: '2026-02-31' is a timestamp; legal: quoted text"),
        ("gpus: 2", "gpus: !!int two", "10: jobs[0].gpus: 'two' is no int"),
        (
            "end_ms: 120",
            "end_ms: 0.0000001",
            "13: jobs[0].phases[0].end_ms: 1e-07 is not after start_ms; legal: above 0, by 1 ns or more",
        ),
        ("gpus: 2", f"gpus: {10**4000}", "10: jobs[0].gpus: a whole number of more than 77 digits"),
        (
            "[h1, h3]",
            "h1",
            "11: jobs[0].hosts: 'h1' is wrong; legal: a list of 1 to 1024 values, each a name of",
        ),
        ("gpus: 2", "gpus: two", "10: jobs[0].gpus: 'two' is wrong; legal: a whole number from 1 to 100000"),
        ("name: two_vgg19", "name: two_vgg19\nname: x", "5: name: this key is there twice; first in line 4"),
        ("leaves: 2, ", "", "6: fabric.leaves: missing; legal: a whole number from 1 to 64"),
        (
            "period_ms: 260",
            "period_ms: .nan",
            "12: jobs[0].period_ms: nan is no number; legal: finite numbers",
        ),
        (
            "name: vgg19-b",
            "name: vgg19-a",
            "8: jobs[0].name: 'vgg19-a' names 2 jobs; legal: a name of its own",
        ),
        (
            "gbps: 50}]",
            "gbps: 50}, {start_ms: 100, end_ms: 130, gbps: 5}]",
            "13: jobs[0].phases[1].start_ms: 100 overlaps the phase before; legal: 120 or more",
        ),
        (
            "{start_ms: 0, end_ms: 120,",
            "{start_ms: 200, end_ms: 461,",
            "13: jobs[0].phases[0].end_ms: 461 is past the period and the start of the first phase in the next; "
            "legal: up to 460",
        ),
        (
            "{start_ms: 0, end_ms: 120,",
            "{start_ms: 260, end_ms: 270,",
            "13: jobs[0].phases[0].start_ms: 260 is past the period; legal: below 260",
        ),
        (
            "gpus: 2",
            "gpus: 2\n    iterations: 9\n    stop_ms: 900",
            "12: jobs[0].stop_ms: the job has iterations too; legal: one of stop_ms and iterations",
        ),
        (
            "gpus: 2",
            "gpus: 2\n    start_ms: 500\n    stop_ms: 500",
            "12: jobs[0].stop_ms: 500: the job has not sent anything by then; legal: above 500",
        ),
        ("gpus: 2", "gpus: 2\n    iterations: 0", "11: jobs[0].iterations: 0 is wrong; legal: "),
        (
            "gpus: 2",
            "gpus: 2\n    jitter_pct: 101",
            "11: jobs[0].jitter_pct: 101 is wrong; legal: a number from",
        ),
        (
            "jobs:",
            "mice: {load_pct: 5, bytes: 10000000}\njobs:",
            "7: mice.bytes: 10000000 is wrong; legal: a whole number from 1 to 9999999",
        ),
        (
            "jobs:",
            "failures: [{what: spine2, at_ms: 3000}]\njobs:",
            "7: failures[0]: 'spine2' is no switch of two_vgg19; legal: leaf1, leaf2, spine1",
        ),
        (
            "jobs:",
            "failures: [{what: 'leaf1:spine1', at_ms: 3000, repair_ms: 2000}]\njobs:",
            "7: failures[0]: the second time must be later than the first",
        ),
        (
            "jobs:",
            "floods: [{src: h9, dst: h4}]\njobs:",
            "7: floods[0].src: 'h9' is no host of the fabric; legal: h1, h2, h3, h4",
        ),
        (
            "jobs:",
            "floods: [{src: h1, dst: h4}]\njobs:",
            "7: floods[0].src: 'h1' is a host of job ",
        ),
    ],
)
def test_a_wrong_value_is_told_by_line_path_and_legal_values(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert TWO_VGG19.count(old) >= 1
    assert refusal(tmp_path, TWO_VGG19.replace(old, new, 1)).startswith(expected)


def test_a_phase_may_start_anywhere_in_the_period(tmp_path: Path) -> None:
    def workload(start: int, end: int) -> Workload:
        path = tmp_path / "s.yaml"
        path.write_text(TWO_VGG19.replace("start_ms: 0, end_ms: 120", f"start_ms: {start}, end_ms: {end}", 1))
        return load_scenario(path).workloads[0]

    first, inside, across = workload(0, 120), workload(70, 190), workload(200, 320)
    assert (first.lead_ns, inside.lead_ns, across.lead_ns) == (0, 70_000_000, 200_000_000)
    # It is the same rhythm, begun at another time.
    assert first.steps == inside.steps == across.steps
    assert first.job == inside.job == across.job


def test_what_happens_to_jobs_and_fabric_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    text = TWO_VGG19.replace("gpus: 2", "gpus: 2\n    start_ms: 40\n    iterations: 9\n    jitter_pct: 5", 1)
    text = text.replace("jobs:", "failures: [{what: 'leaf1:spine1', at_ms: 2.5, repair_ms: 9}]\njobs:")
    path.write_text(text.replace("jobs:", "mice: {load_pct: 5, bytes: 1000000}\njobs:"))
    scenario = load_scenario(path)
    first, second = scenario.workloads
    assert (first.arrival_ns, first.iterations, first.jitter, first.leaves) == (40_000_000, 9, 0.05, True)
    assert (second.arrival_ns, second.iterations, second.jitter, second.leaves) == (0, None, 0, False)
    (cut,) = scenario.failures
    assert (cut.what, cut.at_ns, cut.until_ns) == ("leaf1:spine1", 2_500_000, 9_000_000)
    assert scenario.mice == Mice(load=0.05, size=500)


def test_jobs_share_a_pcie_link_of_one_rate(tmp_path: Path) -> None:
    lines = TWO_VGG19.replace("model: VGG19", "model: VGG19\n    pcie: {link: gpu0, gbps: 40}")
    path = tmp_path / "s.yaml"
    path.write_text(lines)
    first, second = load_scenario(path).workloads
    assert first.pcie == second.pcie == PcieUse("gpu0", 20_000_000)
    refused = refusal(tmp_path, lines.replace("gbps: 40", "gbps: 20", 1))
    assert "17: jobs[1].pcie.gbps: 40 is not the rate of link 'gpu0' in an earlier job; legal: 20" in refused


@pytest.mark.parametrize(
    "text", ["", "just words", "[1, 2]", "a: [", "a: &x [*x]", "? [a]\n: b", "\t", "--- \n---\n"]
)
def test_what_is_no_scenario_at_all_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    assert refusal(tmp_path, text)


def test_aliases_that_stand_for_more_than_memory_holds_are_refused(tmp_path: Path) -> None:
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    assert "more than 200,000 values" in refusal(tmp_path, "\n".join(rows))


@pytest.mark.parametrize(
    ("hosts", "links", "expected"),
    [
        (300, 0, "fabric.hosts: leaf has more than 253 hosts"),
        (250, 5, "fabric: leaf has a cable on port 255; legal: up to 254"),
    ],
)
def test_a_switch_has_as_many_ports_as_the_emulated_ones(
    tmp_path: Path, hosts: int, links: int, expected: str
) -> None:
    fabric = {
        "kind": "explicit",
        "switches": [{"name": "leaf", "tier": "leaf"}, {"name": "spine", "tier": "spine"}],
        "hosts": [{"name": f"h{i}", "leaf": "leaf", "gbps": 10} for i in range(1, hosts + 1)],
        "links": [{"a": "leaf", "b": "spine", "gbps": 10}] * links,
    }
    text = "\n".join(
        f"fabric: {json.dumps(fabric)}" if row.startswith("fabric:") else row
        for row in TWO_VGG19.splitlines()
    )
    assert refusal(tmp_path, text).partition(": ")[2].startswith(expected)


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, len(TWO_VGG19)), noise=st.text(max_size=8))
def test_a_damaged_file_is_loaded_or_refused_never_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, cut: int, noise: str
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "s.yaml"
    path.write_text(
        TWO_VGG19[:cut] + noise + TWO_VGG19[cut + len(noise) :], encoding="utf-8", errors="replace"
    )
    message = ""
    try:
        load_scenario(path)
    except ConfigError as error:
        message = str(error)
    assert "\n" not in message


def test_an_explicit_fabric_is_wired_as_written(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        TWO_VGG19.replace(
            "fabric: {kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 2, host_gbps: 50, fabric_gbps: 50}",
            """fabric:
  kind: explicit
  switches: [{name: a, tier: leaf}, {name: b, tier: leaf}, {name: s, tier: spine}]
  hosts:
    - {name: h1, leaf: a, gbps: 50}
    - {name: h2, leaf: a, gbps: 50}
    - {name: h3, leaf: b, gbps: 50}
    - {name: h4, leaf: b, gbps: 50}
  links: [{a: a, b: s, gbps: 100}, {a: b, b: s, gbps: 40}]""",
        )
    )
    topology = load_scenario(path).topology
    assert [(link.a, link.a_port, link.b, link.b_port) for link in topology.links] == [
        ("a", 3, "s", 1),
        ("b", 3, "s", 2),
    ]
    assert topology.ports["s"][2].node == "b"
    assert topology.ports["s"][2].rate_bps == 20_000_000


def test_an_unknown_name_lists_the_scenarios_that_come_along() -> None:
    with pytest.raises(ConfigError, match="two_vgg19"):
        scenario_path("no_such_scenario")


def test_a_scenario_is_steady_where_nothing_happens_after_its_start() -> None:
    quiet = load_scenario(scenario_path("two_vgg19"))
    first, second = quiet.workloads
    assert quiet.steady
    for other in (replace(second, arrival_ns=1), replace(second, iterations=9), replace(second, stop_ns=9)):
        assert not replace(quiet, workloads=(first, other)).steady
    assert not replace(quiet, floods=(Flood("h1", "h2", 0),)).steady
