# SPDX-License-Identifier: Apache-2.0
"""The committed artefacts are the sources', and P4Info promises what the controller relies on."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from polyrhythm import p4tofino, p4tool

ROOT = Path(__file__).parents[2]
EXACT, LPM, RANGE = p4i.MatchField.EXACT, p4i.MatchField.LPM, p4i.MatchField.RANGE

FLOW = [
    ("ipv4_src", 32, EXACT),
    ("ipv4_dst", 32, EXACT),
    ("protocol", 8, EXACT),
    ("src_port", 16, EXACT),
    ("dst_port", 16, EXACT),
]

FLOW_IPV6 = [("ipv6_src", 128, EXACT), ("ipv6_dst", 128, EXACT), *FLOW[2:]]

# name: (id, key as (name, width, kind), actions that entries may have, default-only actions, size)
TABLES = {
    "routing": (
        0x02000001,
        [("ipv4_dst", 32, LPM)],
        {"set_next_hop", "set_ecmp_group_tier0", "set_ecmp_group_tier1", "set_ecmp_group_tier2", "drop"},
        set(),
        4096,
    ),
    "ecmp": (
        0x02000002,
        [("group_id", 16, EXACT), ("bucket", 8, EXACT)],
        {"set_next_hop", "set_next_hop_with_backup"},
        {"drop"},
        65536,
    ),
    "next_hop": (0x02000003, [("next_hop_id", 16, EXACT)], {"forward"}, {"drop"}, 1024),
    "queue": (0x02000004, [("dscp", 6, EXACT)], {"set_queue"}, set(), 64),
    "ecn": (
        0x02000005,
        [("qid", 3, EXACT), ("depth", 19, RANGE)],
        {"set_mark_probability"},
        set(),
        1024,
    ),
    "edge": (0x02000006, [("port", 9, EXACT)], {"mark_edge"}, {"NoAction"}, 512),
    "switch_identity": (0x02000007, [], {"set_switch_id"}, set(), 1),
    "pinned_flow": (
        0x02000008,
        FLOW,
        {"set_next_hop", "set_next_hop_with_backup"},
        {"NoAction"},
        4096,
    ),
    "port_state": (0x02000009, [("port", 9, EXACT)], {"set_port_down"}, {"NoAction"}, 512),
    "remark": (
        0x0200000A,
        [("port", 9, EXACT), ("dscp", 6, EXACT)],
        {"set_dscp", "set_dscp_by_flow"},
        {"NoAction"},
        4096,
    ),
    "remark_flow": (
        0x0200000B,
        [("port", 9, EXACT), ("dscp", 6, EXACT), *FLOW],
        {"set_dscp"},
        {"NoAction"},
        4096,
    ),
    "edge_ingress": (
        0x0200000C,
        [("port", 9, EXACT)],
        {"stop_strays", "remark_strays"},
        {"NoAction"},
        512,
    ),
    "host_dscp": (
        0x0200000D,
        [("port", 9, EXACT), ("dscp", 6, EXACT)],
        {"trust_answers", "trust_planned", "trust_nothing"},
        {"NoAction"},
        8192,
    ),
    "planned_pair": (
        0x0200000E,
        [("port", 9, EXACT), ("ipv4_src", 32, EXACT), ("ipv4_dst", 32, EXACT)],
        {"trust_pair", "trust_answering_pair", "trust_pair_both_ways"},
        {"NoAction"},
        65536,
    ),
    "planned_flow": (0x0200000F, [("port", 9, EXACT), *FLOW], {"trust_flow"}, {"NoAction"}, 4096),
    "spread": (
        0x02000010,
        [("group_id", 16, EXACT), ("dscp", 6, EXACT)],
        {"spray_random", "spray_in_turn", "move_flowlets"},
        {"NoAction"},
        4096,
    ),
    "ecn_tcp": (
        0x02000011,
        [("qid", 3, EXACT), ("depth", 19, RANGE)],
        {"set_tcp_mark_probability"},
        {"NoAction"},
        1024,
    ),
}
# Those of IPv6: the same with other addresses, and ids 0x20 higher.
for name, key in {
    "routing": [("ipv6_dst", 128, LPM)],
    "pinned_flow": FLOW_IPV6,
    "remark_flow": [("port", 9, EXACT), ("dscp", 6, EXACT), *FLOW_IPV6],
    "planned_pair": [("port", 9, EXACT), *FLOW_IPV6[:2]],
    "planned_flow": [("port", 9, EXACT), *FLOW_IPV6],
}.items():
    TABLES[f"{name}_ipv6"] = (TABLES[name][0] + 0x20, key, *TABLES[name][2:])
ACTIONS = {
    "set_next_hop": (0x01000101, [("next_hop_id", 16)]),
    "set_ecmp_group_tier0": (0x01000102, [("group_id", 16)]),
    "set_ecmp_group_tier1": (0x01000103, [("group_id", 16)]),
    "set_ecmp_group_tier2": (0x01000104, [("group_id", 16)]),
    "forward": (0x01000105, [("port", 9), ("src_mac", 48), ("dst_mac", 48)]),
    "drop": (0x01000106, []),
    "set_next_hop_with_backup": (
        0x01000107,
        [("next_hop_id", 16), ("port", 9), ("backup_next_hop_id", 16)],
    ),
    "set_port_down": (0x01000108, []),
    "set_queue": (0x01000201, [("qid", 3)]),
    "set_mark_probability": (0x01000202, [("probability", 16)]),
    "set_dscp": (0x01000203, [("dscp", 6)]),
    "set_dscp_by_flow": (0x01000204, [("dscp", 6)]),
    "mark_edge": (0x01000301, []),
    "set_switch_id": (0x01000302, [("switch_id", 32)]),
    "stop_strays": (0x01000401, []),
    "remark_strays": (0x01000402, [("dscp", 6)]),
    "trust_answers": (0x01000403, [("dscp", 6)]),
    "trust_planned": (0x01000404, [("dscp", 6)]),
    "trust_nothing": (0x01000405, [("dscp", 6)]),
    "trust_pair": (0x01000406, []),
    "trust_answering_pair": (0x01000407, []),
    "trust_pair_both_ways": (0x01000408, []),
    "trust_flow": (0x01000409, []),
    "set_tcp_mark_probability": (0x01000205, [("probability", 16)]),
    "spray_random": (0x01000109, []),
    "spray_in_turn": (0x0100010A, [("cell", 10)]),
    "move_flowlets": (
        0x0100010B,
        [("gap", 32), ("half_life", 8), ("last_member", 6), ("cell", 6)],
    ),
}
METERS = {
    "answer_rate": (0x14000001, p4i.MeterSpec.PACKETS, 512),
    "cpu_rate": (0x14000002, p4i.MeterSpec.PACKETS, 512),
}
COUNTERS = {
    "ingress_packets": (0x12000001, p4i.CounterSpec.BOTH),
    "egress_packets": (0x12000002, p4i.CounterSpec.BOTH),
    "ecn_marks": (0x12000003, p4i.CounterSpec.PACKETS),
    "stray_packets": (0x12000004, p4i.CounterSpec.PACKETS),
}
PACKET_HEADERS = {
    "packet_out": [("egress_port", 9), ("submit_to_ingress", 1), ("pad", 6)],
    "packet_in": [("ingress_port", 9), ("reason", 3), ("pad", 4), ("egress_port", 16)],
}


@pytest.fixture(scope="module")
def p4info() -> p4i.P4Info:
    return text_format.Parse((ROOT / p4tool.P4INFO_OUTPUT).read_text(), p4i.P4Info())


def test_manifest_matches_sources_and_outputs():
    assert p4tool.differences(ROOT) == []
    assert json.loads((ROOT / p4tool.MANIFEST).read_text())["p4c"] == p4tool.P4C_VERSION


def test_artefacts_hold_no_path_of_a_machine():
    for name in p4tool.OUTPUTS:
        text = (ROOT / name).read_text()
        assert f'"{ROOT}' not in text
        assert '"/' not in text


def test_tables(p4info):
    actions = {action.preamble.id: action.preamble.name for action in p4info.actions}
    found = {
        table.preamble.name: (
            table.preamble.id,
            [(field.name, field.bitwidth, field.match_type) for field in table.match_fields],
            {actions[ref.id] for ref in table.action_refs if ref.scope == p4i.ActionRef.TABLE_AND_DEFAULT},
            {actions[ref.id] for ref in table.action_refs if ref.scope == p4i.ActionRef.DEFAULT_ONLY},
            table.size,
        )
        for table in p4info.tables
    }
    assert found == TABLES


def test_default_actions(p4info):
    actions = {action.preamble.id: action.preamble.name for action in p4info.actions}
    constant = {t.preamble.name: actions.get(t.const_default_action_id) for t in p4info.tables}
    assert constant == {
        "routing": "drop",
        "ecmp": "drop",
        "next_hop": "drop",
        "edge": "NoAction",
        "pinned_flow": "NoAction",
        "port_state": "NoAction",
        "remark": "NoAction",
        "remark_flow": "NoAction",
        "edge_ingress": "NoAction",
        "host_dscp": "NoAction",
        "planned_pair": "NoAction",
        "routing_ipv6": "drop",
        "pinned_flow_ipv6": "NoAction",
        "remark_flow_ipv6": "NoAction",
        "planned_pair_ipv6": "NoAction",
        "planned_flow_ipv6": "NoAction",
        "planned_flow": "NoAction",
        "spread": "NoAction",
        "ecn_tcp": "NoAction",
        "queue": None,
        "ecn": None,
        "switch_identity": None,
    }


def test_actions(p4info):
    found = {
        action.preamble.name: (action.preamble.id, [(param.name, param.bitwidth) for param in action.params])
        for action in p4info.actions
        if action.preamble.name != "NoAction"
    }
    assert found == ACTIONS


def test_counters(p4info):
    found = {c.preamble.name: (c.preamble.id, c.spec.unit) for c in p4info.counters}
    assert found == COUNTERS
    assert {c.size for c in p4info.counters} == {512 * 8}
    assert not p4info.direct_counters


def test_meters(p4info):
    found = {m.preamble.name: (m.preamble.id, m.spec.unit, m.size) for m in p4info.meters}
    assert found == METERS
    assert not p4info.direct_meters


def test_packet_headers(p4info):
    found = {
        header.preamble.name: [(field.name, field.bitwidth) for field in header.metadata]
        for header in p4info.controller_packet_metadata
    }
    assert found == PACKET_HEADERS


def test_version_and_units(p4info):
    """The controller converts Kmin, Kmax and INT's times by what P4Info says, not by the target's name."""
    package = p4info.pkg_info
    assert (package.name, package.version) == ("polyrhythm", "1.5.0")
    assert list(package.annotations) == ['@depth_unit("packets")', '@time_unit("microseconds")']
    assert f"`pkg_info.version`: {package.version}." in (ROOT / "docs/data-plane.md").read_text()


REGISTERS = {
    "turn": (0x16000001, 8, 1024),
    "flowlet_time": (0x16000002, 48, 4096),
    "flowlet_bucket": (0x16000003, 6, 4096),
    "port_load": (0x16000004, 80, 512),
    "member_port": (0x16000005, 9, 4096),
    "least_member": (0x16000006, 6, 64),
    "compared_member": (0x16000007, 6, 64),
}


def test_registers(p4info):
    """For the program's own use: simple_switch_grpc answers UNIMPLEMENTED for them."""
    found = {
        r.preamble.name: (r.preamble.id, r.type_spec.bitstring.bit.bitwidth, r.size) for r in p4info.registers
    }
    assert found == REGISTERS
    assert p4info.pkg_info.arch == "v1model"


def test_names_in_json_are_those_of_p4info(p4info):
    program = json.loads((ROOT / p4tool.JSON_OUTPUT).read_text())
    tables = {table["name"] for pipeline in program["pipelines"] for table in pipeline["tables"]}
    assert {table.preamble.name for table in p4info.tables} <= tables
    assert {action.preamble.name for action in p4info.actions} <= {a["name"] for a in program["actions"]}
    assert {c.preamble.name for c in p4info.counters} == {c["name"] for c in program["counter_arrays"]}


def test_probability_0xffff_always_marks():
    """The mark is set where the draw is smaller, so the draw must never be 0xFFFF."""
    program = json.loads((ROOT / p4tool.JSON_OUTPUT).read_text())
    primitives = [primitive for action in program["actions"] for primitive in action["primitives"]]
    draws = {
        tuple(int(bound["value"], 16) for bound in primitive["parameters"][1:])
        for primitive in primitives
        if primitive["op"] == "modify_field_rng_uniform"
    }
    # The other draw is a bucket's.
    assert draws == {(0, 0xFFFE), (0, 0xFF)}


def test_the_documentation_names_all_of_it(p4info):
    text = (ROOT / "docs/data-plane.md").read_text()
    for thing in (*p4info.tables, *p4info.counters, *p4info.meters, *p4info.registers):
        assert f"| `{thing.preamble.name}` | 0x{thing.preamble.id:08x} |" in text
    for action in p4info.actions:
        name = action.preamble.name
        assert name == "NoAction" or re.search(rf"`[^`]*{name.removeprefix('set_ecmp_group')}\b[^`]*`", text)
    for header in ("depth_unit", "time_unit"):
        assert f"@{header}(" in text
    assert f"p4c {p4tool.P4C_VERSION}" in text


@pytest.fixture
def checkout(tmp_path):
    """A copy of the P4 room to break."""
    shutil.copytree(ROOT / "p4", tmp_path / "p4")
    return tmp_path


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p4: (p4 / "shared/queueing.p4").write_text("// other\n"), "shared/queueing.p4: changed"),
        (lambda p4: (p4 / "shared/new.p4").write_text("// new\n"), "shared/new.p4: not in the manifest"),
        (lambda p4: (p4 / "v1model/target.p4").unlink(), "v1model/target.p4: missing"),
        (lambda p4: (p4 / "tna/polyrhythm.p4").write_text("// other\n"), "tna/polyrhythm.p4: changed"),
        (lambda p4: (p4 / "build/polyrhythm.v1model.json").write_text("{}"), "v1model.json: changed"),
    ],
)
def test_check_names_what_is_stale(checkout, capsys, damage, message):
    damage(checkout / "p4")
    assert p4tool.main(["--root", str(checkout), "check"]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_check_of_a_broken_manifest_is_one_line(checkout, capsys):
    (checkout / p4tool.MANIFEST).write_text("[]")
    assert p4tool.main(["--root", str(checkout), "check"]) == 2
    assert "make p4" in capsys.readouterr().err


def test_without_p4c_build_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("P4C", raising=False)
    assert p4tool.main(["build"]) == 2
    error = capsys.readouterr().err
    assert "p4c-bm2-ss is not on PATH" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("force", [False, True])
def test_another_p4c_is_refused_unless_forced(monkeypatch, capsys, checkout, force):
    """A stand-in compiler of another version: without --force it is never asked to compile."""
    fake = checkout / "p4c-bm2-ss"
    fake.write_text(
        '#!/bin/sh\ncase "$1" in --version) echo "Version 9.9 (SHA: 0)" ;; *) touch "$4" "$6" ;; esac\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("P4C", str(fake))
    before = (checkout / p4tool.JSON_OUTPUT).read_bytes()
    code = p4tool.main(["--root", str(checkout), "build", *(["--force"] if force else [])])
    after = (checkout / p4tool.JSON_OUTPUT).read_bytes()
    if force:
        assert (code, after) == (0, b"")
        assert json.loads((checkout / p4tool.MANIFEST).read_text())["p4c"] == "9.9"
    else:
        assert (code, after) == (2, before)
        assert "is p4c 9.9" in capsys.readouterr().err


def test_normalise_strips_only_absolute_paths():
    line = '  "filename" : "{}",\n'
    assert p4tool.normalise(line.format("/usr/share/p4c/core.p4")) == line.format("core.p4")
    assert p4tool.normalise(line.format("p4/shared/a.p4")) == line.format("p4/shared/a.p4")


needs_p4c = pytest.mark.skipif(
    shutil.which(os.environ.get("P4C") or p4tool.COMPILER) is None, reason="p4c is not installed"
)


@needs_p4c
def test_recompiling_gives_the_same_bytes(checkout):
    before = {name: (checkout / name).read_bytes() for name in (*p4tool.OUTPUTS, p4tool.MANIFEST)}
    for name in p4tool.OUTPUTS:
        (checkout / name).unlink()
    recorded = json.loads(before[p4tool.MANIFEST])
    recorded["sources"] = recorded["outputs"] = {}
    if p4tofino.program_text(p4tool.find_compiler(), checkout) is not None:
        # Without tna.p4 nobody can tell whether the Tofino part is still the sources', and it is kept.
        recorded["tofino"]["sources"] = {}
    (checkout / p4tool.MANIFEST).write_text(json.dumps(recorded))
    assert p4tool.main(["--root", str(checkout), "build"]) == 0
    assert {name: (checkout / name).read_bytes() for name in before} == before


@needs_p4c
def test_a_program_that_does_not_compile_changes_nothing(checkout, capsys):
    with (checkout / "p4/shared/queueing.p4").open("a") as source:
        source.write("control Broken( {\n")
    before = (checkout / p4tool.JSON_OUTPUT).read_bytes()
    assert p4tool.main(["--root", str(checkout), "build"]) == 1
    assert (checkout / p4tool.JSON_OUTPUT).read_bytes() == before
    assert "does not compile" in capsys.readouterr().err
