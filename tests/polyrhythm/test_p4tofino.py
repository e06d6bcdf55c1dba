# SPDX-License-Identifier: Apache-2.0
"""The committed Tofino artefacts: the interface of v1model's, within the chip, packable, and reported truly."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from controller.southbound.artefacts import load_artefacts
from polyrhythm import p4tofino, p4tool
from polyrhythm.cli import main

ROOT = Path(__file__).parents[2]
BUILT = ROOT / p4tofino.FOLDER
REPORT = json.loads((ROOT / p4tofino.RESOURCES_OUTPUT).read_text())


def p4info(path) -> p4i.P4Info:
    return text_format.Parse((ROOT / path).read_text(), p4i.P4Info())


ON_TOFINO, ON_BMV2 = p4info(p4tofino.P4INFO_OUTPUT), p4info(p4tool.P4INFO_OUTPUT)


def interface(info):
    """Tables, actions, counters and packet headers as a controller sees them.

    Without the counters' ids: the back end gives externs ids of its own, whatever their @id says.
    """
    names = {action.preamble.id: action.preamble.name for action in info.actions}
    tables = {
        table.preamble.name: (
            table.preamble.id,
            [(key.id, key.name, key.bitwidth, key.match_type) for key in table.match_fields],
            sorted((names[ref.id], ref.scope) for ref in table.action_refs),
            names.get(table.const_default_action_id),
            table.size,
        )
        for table in info.tables
    }
    actions = {
        action.preamble.name: (action.preamble.id, [(p.id, p.name, p.bitwidth) for p in action.params])
        for action in info.actions
        if action.preamble.name != "NoAction"
    }
    counters = {c.preamble.name: (c.preamble.id >> 24, c.spec.unit, c.size) for c in info.counters}
    headers = {
        header.preamble.name: [(field.id, field.name, field.bitwidth) for field in header.metadata]
        for header in info.controller_packet_metadata
    }
    return {"tables": tables, "actions": actions, "counters": counters, "headers": headers}


# What p4/shared/host_trust.p4 and the two files of p4/v1model add, and IPv6, for which the fitted program was not
# compiled (docs/tofino.md).
ONLY_ON_V1MODEL = {
    "tables": {
        *("host_dscp", "planned_pair", "planned_pair_ipv6", "planned_flow", "planned_flow_ipv6"),
        *("routing_ipv6", "pinned_flow_ipv6", "remark_flow_ipv6", "spread"),
        "ecn_tcp",
    },
    "actions": {
        *("trust_answers", "trust_nothing", "trust_planned", "trust_flow"),
        *("trust_pair", "trust_answering_pair", "trust_pair_both_ways"),
        *("move_flowlets", "spray_in_turn", "spray_random"),
        "set_tcp_mark_probability",
    },
}


def test_the_interface_is_that_of_v1model_but_for_what_the_guide_names():
    on_tofino, on_bmv2 = interface(ON_TOFINO), interface(ON_BMV2)
    for kind, names in ONLY_ON_V1MODEL.items():
        found = {name.rsplit(".", 1)[-1] for name in on_bmv2[kind].keys() - on_tofino[kind].keys()}
        assert found == names
        on_bmv2[kind] = {name: what for name, what in on_bmv2[kind].items() if name in on_tofino[kind]}
    assert on_tofino == on_bmv2
    guide = (ROOT / "docs" / "tofino.md").read_text()
    assert all(f"`{name}`" in guide for name in ONLY_ON_V1MODEL["tables"])
    assert (ON_TOFINO.pkg_info.version, ON_BMV2.pkg_info.version) == ("1.1.0", "1.5.0")
    assert ON_TOFINO.pkg_info.arch == "tna"
    assert list(ON_TOFINO.pkg_info.annotations) == [
        '@depth_unit("cells of 80 bytes")',
        '@time_unit("nanoseconds")',
    ]


def test_binary_and_context_are_of_one_run_and_of_the_pinned_back_end():
    context = json.loads((BUILT / "pipe/context.json").read_text())
    assert context["compiler_version"] == p4tofino.VERSION
    assert context["target"] == "tofino"
    binary = (BUILT / "pipe/tofino.bin").read_bytes()
    assert binary.count(context["run_id"].encode()) == 1
    recorded = json.loads((ROOT / p4tool.MANIFEST).read_text())["tofino"]
    assert recorded["p4c-barefoot"] == p4tofino.VERSION


def test_no_path_of_a_machine():
    for name in p4tofino.OUTPUTS:
        content = (ROOT / name).read_bytes()
        assert str(ROOT).encode() not in content
        found = re.findall(rb'"/[^"\s]*"', content)
        assert all(path.startswith(b'"/sys/devices/') for path in found), (name, found)


def placed():
    """Table -> entries by stage, from the context that the driver reads."""
    context = json.loads((BUILT / "pipe/context.json").read_text())
    return {
        table["name"]: {s["stage_number"]: s["size"] for s in table["match_attributes"]["stage_tables"]}
        for table in context["tables"]
        if table["table_type"] == "match" and table["match_attributes"].get("stage_tables")
    }


def test_every_table_is_placed_at_its_full_size():
    entries = {name.rsplit(".", 1)[-1]: sum(stages.values()) for name, stages in placed().items()}
    for table in ON_TOFINO.tables:
        if table.match_fields:
            assert entries[table.preamble.name] >= table.size, table.preamble.name


def test_the_report_is_within_the_chip_and_of_this_placement():
    assert REPORT["stages"] == {"used": len(REPORT["by_stage"]), "available": 12}
    for stage in REPORT["by_stage"]:
        assert all(stage[kind] <= most for kind, most in REPORT["available_per_stage"].items())
    stages = {(name, stage["stage"]) for stage in REPORT["by_stage"] for name in stage["tables"]}
    ours = {table.preamble.name for table in ON_TOFINO.tables}
    found = {(name.rsplit(".", 1)[-1], stage) for name, where in placed().items() for stage in where}
    assert {place for place in found if place[0] in ours} == {place for place in stages if place[0] in ours}
    assert {name for name, _stage in stages} >= ours


def test_the_documentation_reports_these_resources():
    text = (ROOT / "docs/tofino.md").read_text()
    for stage in REPORT["by_stage"]:
        numbers = [str(stage[kind]) for kind in ("sram", "map_ram", "tcam", "logical_tables")]
        assert f"| {stage['stage']} | {' | '.join(numbers)} | {', '.join(stage['tables'])} |" in text
    totals = " | ".join(str(REPORT["totals"][kind]) for kind in ("sram", "map_ram", "tcam", "logical_tables"))
    assert f"| all | {totals} | |" in text
    for row in REPORT["phv"]:
        line = f"| {row['gress']} | {row['kind']} | {row['width']} | {row['containers']} | {row['bits']} |"
        assert line in text


def test_the_committed_program_packs_and_the_controller_takes_it(tmp_path, capsys):
    packed = tmp_path / "polyrhythm.bin"
    assert main(["pipeline", "pack", "--target", "stratum", "-o", str(packed)]) == 0
    assert "BfPipelineConfig of polyrhythm, profiles pipe" in capsys.readouterr().out
    shutil.copy(ROOT / p4tofino.P4INFO_OUTPUT, tmp_path)
    loaded = load_artefacts(tmp_path)
    assert loaded.device_config == packed.read_bytes()
    for part in ("bfrt.json", "pipe/context.json", "pipe/tofino.bin"):
        assert (BUILT / part).read_bytes() in loaded.device_config


# --- the tool --------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path):
    """A copy of the P4 room to break."""
    shutil.copytree(ROOT / "p4", tmp_path / "p4")
    return tmp_path


def test_check_names_a_changed_binary(checkout, capsys):
    (checkout / p4tofino.FOLDER / "pipe/tofino.bin").write_bytes(b"other")
    assert p4tool.main(["--root", str(checkout), "check"]) == 1
    assert "tofino.bin: changed since the build for Tofino" in capsys.readouterr().err


def test_another_back_end_is_refused(checkout, monkeypatch, capsys):
    """Stand-ins of another version, for both compilers: neither is asked to compile."""
    for name, version in (("p4c-bm2-ss", p4tool.P4C_VERSION), ("p4c-barefoot", "9.9.9")):
        fake = checkout / name
        fake.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "Version {version}" || exit 3\n')
        fake.chmod(0o755)
    monkeypatch.setenv("P4C", str(checkout / "p4c-bm2-ss"))
    monkeypatch.setenv("P4C_TOFINO", str(checkout / "p4c-barefoot"))
    before = (checkout / p4tool.MANIFEST).read_bytes()
    assert p4tool.main(["--root", str(checkout), "build"]) == 1
    assert "is release 9.9.9" in capsys.readouterr().err
    assert (checkout / p4tool.MANIFEST).read_bytes() == before


def _front_end(checkout, text):
    """A stand-in for p4c: it preprocesses every program to `text`, and compiles to empty outputs."""
    (checkout / "preprocessed").write_text(text)
    fake = checkout / "p4c-bm2-ss"
    fake.write_text(
        "#!/bin/sh\n"
        f'case "$1" in --version) echo "Version {p4tool.P4C_VERSION}";;\n'
        f"-E) cat {checkout}/preprocessed; exit 1;;\n"
        'esac\nwhile [ $# -gt 1 ]; do case "$1" in -o|--p4runtime-files) : > "$2";; esac; shift; done\n'
    )
    fake.chmod(0o755)
    return str(fake)


@pytest.mark.parametrize(
    ("now", "stale"),
    [
        ('# 1 "p4/tna/polyrhythm.p4"\ntable  t { }\n# 1 "tna.p4"\nsome of TNA\'s own\n', False),
        ('# 1 "p4/tna/../shared/a.p4"\ntable t {\n/* other\nwords */ } // new\n', False),
        ('# 1 "p4/shared/a.p4"\ntable t { size = 1; }\n', True),
    ],
)
def test_sources_that_give_the_same_program_stay_with_the_fitted_one(
    checkout, monkeypatch, capsys, now, stale
):
    """What changes under an #ifdef of another target, or in a comment, does not reach the back end."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("P4C_TOFINO", raising=False)
    monkeypatch.setenv("P4C", _front_end(checkout, '# 1 "p4/shared/a.p4"\ntable t { } // old words\n'))
    path = checkout / p4tool.MANIFEST
    manifest = json.loads(path.read_text())
    manifest["tofino"]["program"] = hashlib.sha256(b"table t { }").hexdigest()
    path.write_text(json.dumps(manifest))
    with (checkout / "p4/shared/queueing.p4").open("a") as source:
        source.write("// one line more\n")
    (checkout / "preprocessed").write_text(now)
    assert p4tool.main(["--root", str(checkout), "build"]) == 0
    assert p4tool.main(["--root", str(checkout), "check"]) == (1 if stale else 0)
    assert ("shared/queueing.p4: changed since the build for Tofino" in capsys.readouterr().err) == stale


def test_a_back_end_that_is_no_program_is_named(checkout, monkeypatch):
    monkeypatch.setenv("P4C_TOFINO", str(checkout / "none"))
    with pytest.raises(p4tofino.CompileError, match="which P4C_TOFINO names"):
        p4tofino.find_compiler()


@pytest.mark.skipif(
    shutil.which(os.environ.get("P4C_TOFINO") or p4tofino.COMPILER) is None,
    reason="p4c's Tofino back end is not installed",
)
@pytest.mark.slow
def test_recompiling_gives_the_same_bytes():
    """Another commit of the back end is refused inside compile_program."""
    version, outputs = p4tofino.compile_program(p4tofino.find_compiler(), ROOT)
    assert version == p4tofino.VERSION
    for path, content in outputs.items():
        assert content == (ROOT / path).read_bytes(), path
