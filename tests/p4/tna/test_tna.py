# SPDX-License-Identifier: Apache-2.0
"""The TNA program: the same interface as v1model's, and inside what Tofino can do as far as sources tell."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from polyrhythm import p4tool

ROOT = Path(__file__).parents[3]
SHARED = sorted((ROOT / "p4/shared").glob("*.p4"))
TNA, V1MODEL = ROOT / p4tool.TNA_PROGRAM, ROOT / p4tool.PROGRAM
ON_TOFINO = [*SHARED, *sorted((ROOT / "p4/tna").glob("*.p4"))]

p4test = shutil.which(os.environ.get("P4TEST") or p4tool.TYPE_CHECKER)


def has_tna():
    """Whether p4test finds tna.p4."""
    if p4test is None:
        return False
    folder = os.environ.get("TNA_INCLUDE_PATH")
    if folder is not None:
        return (Path(folder) / "tna.p4").is_file()
    shares = [Path(p4test).parent.parent / "share/p4c/p4include"]
    shares += [Path(os.environ["P4C_16_INCLUDE_PATH"])] if "P4C_16_INCLUDE_PATH" in os.environ else []
    return any((share / "tna.p4").is_file() for share in shares)


needs_tna = pytest.mark.skipif(
    not has_tna(), reason="p4test or the Tofino back end's tna.p4 is not installed"
)


def code(path):
    """The source without comments, strings and preprocessor lines, line breaks kept."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    text = re.sub(r'"[^"\n]*"', '""', text)
    return re.sub(r"^[ \t]*#[^\n]*(?:\\\n[^\n]*)*", "", text, flags=re.MULTILINE)


# What docs/tofino.md says of the profile IPV6: each family has so much of these, and they share `ecmp`.
REDUCED = {"routing": 2048, "pinned_flow": 1024, "remark_flow": 1024, "ecmp": 32768}


def is_ipv6(table):
    """Whether the table is for IPv6 alone."""
    return table.preamble.name.endswith("_ipv6")


def p4info(path=p4tool.P4INFO_OUTPUT) -> p4i.P4Info:
    return text_format.Parse((ROOT / path).read_text(), p4i.P4Info())


# Tables, actions and meters that TNA has with the profile HOST_TRUST only (docs/tofino.md says so).
OF_HOST_TRUST = {
    *("host_dscp", "planned_pair", "planned_pair_ipv6", "planned_flow", "planned_flow_ipv6"),
    *("trust_answers", "trust_planned", "trust_nothing", "trust_flow"),
    *("trust_pair", "trust_answering_pair", "trust_pair_both_ways"),
    *("answer_rate", "cpu_rate"),
}

# What only v1model has (docs/tofino.md says so): in files of p4/v1model beside the two that every target has.
OWN_CONTROLS = {"FlowletBytes", "TcpEcnProfile"}
OWN_THINGS = {
    *("spread", "spray_random", "spray_in_turn", "move_flowlets", "ecn_tcp", "set_tcp_mark_probability"),
    *("read_least", "next_other", "first_other", "read_other", "take_other", "start_flowlet", "count_bytes"),
}


# --- without a compiler ---------------------------------------------------------------------------------


def controls(path):
    """The shared controls that a top file puts to use."""
    return set(re.findall(r"^    ([A-Z]\w+)\(\) \w+;", code(path), flags=re.MULTILINE)) - {"Checksum"}


def test_both_targets_assemble_the_same_controls():
    assert controls(TNA) - {"FrameDeparser"} == controls(V1MODEL) - OWN_CONTROLS
    assert controls(V1MODEL) >= OWN_CONTROLS
    assert "FrameDeparser()" in V1MODEL.read_text()


def test_no_control_is_mirrored():
    """Tables and actions stand in p4/shared, and those that only v1model has in p4/v1model."""
    declared = "".join(map(code, SHARED))
    shared = set(re.findall(r"\b(?:table|action) (\w+)", declared))
    assert not shared & OWN_THINGS
    for path in (*(ROOT / "p4/tna").glob("*.p4"), *(ROOT / "p4/v1model").glob("*.p4")):
        found = set(re.findall(r"\b(?:table|action) (\w+)", code(path)))
        assert found <= (OWN_THINGS if path.parent.name == "v1model" else set()), path
    own = {table.preamble.name for table in p4info().tables} & OWN_THINGS
    assert len(re.findall(r"\btable \w+", declared)) == len(p4info().tables) - len(own)


def test_counters_have_the_same_names_and_ids():
    pattern = re.compile(r'@name\("\.(\w+)"\) @id\((\w+)\)\s+[Cc]ounter<')
    assert sorted(pattern.findall(TNA.read_text())) == sorted(pattern.findall(V1MODEL.read_text()))
    assert len(pattern.findall(TNA.read_text())) == len(p4info().counters)


def test_both_pipelines_take_the_same_steps():
    """The drawings on top differ in the names of parsers and of what stands between the pipelines only."""
    steps = [
        [line for line in path.read_text().splitlines() if re.match(r"//       [|]-", line)]
        for path in (TNA, V1MODEL)
    ]
    own = [step for step in steps[1] if any(name in step for name in OWN_CONTROLS)]
    assert len(own) == len(OWN_CONTROLS)
    assert steps[0] == [step for step in steps[1] if step not in own]
    assert len(steps[0]) > 10


@pytest.mark.parametrize("path", ON_TOFINO, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_order_between_fields_and_no_runtime_shift(path):
    """Tofino compares a field with a constant only, and shifts by constants only."""
    source = re.sub(r"\b(?:bit|Hash|Random|Counter|lookahead)<(?:[^<>;(){]|<[^<>]*>)*>", "", code(path))
    for operator, operand in re.findall(r"(<<|>>|[<>]=?)\s*([\w.]+)", source):
        if operator in ("<<", ">>"):
            assert operand.isdigit(), f"{operator} {operand}"
            continue
        assert re.fullmatch(r"\d\w*|[A-Z][A-Z0-9_]*", operand), f"{operator} {operand}"


def test_range_keys_fit_five_nibbles():
    ranges = [
        field.bitwidth
        for table in p4info().tables
        for field in table.match_fields
        if field.match_type == p4i.MatchField.RANGE
    ]
    assert set(ranges) == {19}
    assert max(ranges) <= 5 * 4


def test_bridge_fields_do_not_straddle_bytes():
    """Each field lies in one byte, or begins or ends at one: no field is pieced together."""
    [body] = re.findall(r"header bridge_t \{(.*?)\}", code(ROOT / "p4/tna/target.p4"), flags=re.DOTALL)
    widths = {"qid_t": 3, "port_t": 9}
    at = 0
    for kind in re.findall(r"^\s*(?:@padding )?(\S+)\s+\w+;", body, flags=re.MULTILINE):
        width = widths.get(kind) or int(re.fullmatch(r"bit<(\d+)>", kind)[1])
        assert at // 8 == (at + width - 1) // 8 or (at + width) % 8 == 0
        at += width
    assert at == 112


def test_typecheck_without_p4test_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("P4TEST", raising=False)
    assert p4tool.main(["typecheck"]) == 2
    error = capsys.readouterr().err
    assert "p4test is not on PATH" in error
    assert error.count("\n") == 1


# --- with p4test and the Tofino back end's include folder -----------------------------------------------


@needs_tna
def test_it_passes_p4test_without_a_warning(capsys):
    assert p4tool.main(["typecheck"]) == 0
    assert capsys.readouterr().out.count("passes p4test") == len(p4tool.TNA_PROFILES)


@needs_tna
def test_a_wrong_program_does_not_pass(tmp_path, capsys):
    shutil.copytree(ROOT / "p4", tmp_path / "p4")
    source = tmp_path / p4tool.TNA_PROGRAM
    source.write_text(source.read_text().replace("eg_intr_md.deq_qdepth", "eg_intr_md.no_such_field"))
    assert p4tool.main(["--root", str(tmp_path), "typecheck"]) == 1
    assert "no_such_field" in capsys.readouterr().err


@needs_tna
@pytest.mark.parametrize("profile", p4tool.TNA_PROFILES, ids=lambda profile: " ".join(profile) or "none")
def test_names_ids_and_keys_are_those_of_v1models_p4info(profile, tmp_path):
    """Read from p4test's own print of the program after the preprocessor. Without a profile the program knows
    no IPv6 and no trust of hosts; the profile IPV6 has smaller tables."""
    ipv6 = {t.preamble.name for t in p4info().tables if is_ipv6(t)}
    left_out = (set() if "IPV6" in profile else ipv6) | (set() if "HOST_TRUST" in profile else OF_HOST_TRUST)
    printed = tmp_path / "tna.p4"
    folder = os.environ.get("TNA_INCLUDE_PATH")
    include = [] if folder is None else ["-I", folder]
    flags = ["-D__TARGET_TOFINO__=1", *(f"-D{name}" for name in profile)]
    command = [p4test, *flags, *include, "--pp", str(printed), p4tool.TNA_PROGRAM]
    subprocess.run(command, cwd=ROOT, check=True)
    text = printed.read_text()
    named = {(name, int(ident, 16)) for name, ident in re.findall(r'@name\("\.(\w+)"\) @id\((0x\w+)\)', text)}
    info = p4info()
    things = [*info.tables, *info.actions, *info.counters, *info.meters]
    things = [thing for thing in things if thing.preamble.name not in left_out | OWN_THINGS]
    assert named == {(t.preamble.name, t.preamble.id) for t in things if t.preamble.name != "NoAction"}
    for table in (t for t in info.tables if t.preamble.name not in left_out | OWN_THINGS):
        [body] = re.findall(
            rf'@name\("\.{table.preamble.name}"\) @id\(\w+\) table \w+ {{(.*?)\n    }}', text, re.DOTALL
        )
        assert re.findall(r'@name\("(\w+)"\)', body) == [field.name for field in table.match_fields]
        size = REDUCED.get(table.preamble.name.removesuffix("_ipv6")) if "IPV6" in profile else None
        assert re.findall(r"size = (\d+);", body) == [str(size or table.size)]
