# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm stf`: our programs' tests pass, errors have their line, and exit codes are correct."""

from pathlib import Path

import pytest

from polyrhythm.cli import main
from polyrhythm.stf.language import (
    Add,
    Check,
    Command,
    Expect,
    Send,
    SetDefault,
    StfError,
    read_statements,
)

PROGRAMS = Path(__file__).parents[2] / "data" / "stf"
COPIES = str(PROGRAMS / "copies.json")
OURS = Path(__file__).parents[3] / "p4" / "build" / "polyrhythm.v1model.json"


def stf(tmp_path: Path, text: str, program: str = COPIES) -> int:
    test = tmp_path / "test.stf"
    test.write_text(text)
    return main(["stf", program, str(test)])


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("structures", PROGRAMS / "structures.json"),
        ("copies", PROGRAMS / "copies.json"),
        ("polyrhythm", OURS),
        ("telemetry", OURS),
        ("edge", OURS),
        ("backup", OURS),
    ],
)
def test_our_programs_pass(name: str, program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = PROGRAMS / f"{name}.stf"
    assert main(["stf", str(program), str(test)]) == 0
    assert capsys.readouterr().out == f"{test}: PASS\n"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("packet 0 04 04 00 00\nexpect 1 04 04 00 01", "test.stf:3: port 1: differs at digit 7 (byte 3)"),
        ("packet 0 04 04 00 00 11\nexpect 1 04040000 1122", "has 8 digits, expected 12"),
        ("packet 0 04 05 00 00 11\nexpect 1 04050000 $", "has 10 digits, expected no more than 8"),
        ("expect 1", "test.stf:2: port 1 did not send any packet"),
        ("packet 0 04 04 00 00\nexpect 1\nexpect 1", "test.stf:4: port 1 did not send any packet"),
        ("packet 0 04 04 00 00\npacket 0 04 04 00 00\nexpect 1", "sent an unexpected packet: 04040000"),
        ("expect 1 00", "test.stf:2: port 1 did not send 00"),
        ("packet 0 04 04 00 00\npacket 1 0101", "port 1 sent an unexpected packet: 04040000"),
        ("packet 1 04 04 00 00\nno_packet", "test.stf:3: no packet was expected, port 1 sent 04040000"),
        ("check_counter seen(0) packets == 1", "counter (packets) seen(0) is 0, expected == 1"),
        ("check_register cells(3) != 0", "register cells(3) is 0, expected != 0"),
    ],
)
def test_a_mismatch_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: str, words: str
) -> None:
    assert stf(tmp_path, f"add work op.op:4 cut()\n{lines}\n") == 1
    out = capsys.readouterr().out
    assert words in out
    assert out.endswith("test.stf: FAIL\n")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("packet 511 00", "a port is 0 to 510, got 511"),
        ("expect 99999999999999999999", "a port is 0 to 510"),
        ("jump 3", "'jump' is not a command; there are: add, setdefault"),
        ("add work op.op:1 fly()", "action 'fly' of table 'In.work' is none of: "),
        ("add work op.op:1 out_of(port:1)", "is none of"),
        ("add nothing op.op:1 cut()", "table 'nothing' is none of"),
        ("add work op.op:0x1ff cut()", "'h.op.op' is 8 bits wide, 0x1ff does not fit"),
        ("add work op.colour:1 cut()", "has no key 'op.colour'; it has: h.op.op"),
        ("add work op.op=1 cut()", "is not a key written field:value"),
        ("add work op.op:1", "no action with its arguments"),
        ("add member op.op:1 out_of(door:1)", "has no parameter 'door'"),
        ("add member op.op:1 out_of()", "needs a value for 'port'"),
        ("packet 0 123", "pairs of hexadecimal digits"),
        ("packet x 12", "'x' is not a port number"),
        ("expect 0 12 $ 34", "at its end at most"),
        ("check_counter seen(9) == 1", "the index must be in 0..3, got 9"),
        ("check_counter seen", "a check is written NAME(INDEX)"),
        ("remove no_such", "no entry has the name 'no_such'"),
        ("mirroring_add 5", "'mirroring_add' takes 2"),
        ("mc_node_associate 1 0", "must be in 0..-1"),
        ("meter_set_rates police 0 1 2", "is not a rate written rate:burst"),
    ],
)
def test_what_cannot_be_done_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    assert stf(tmp_path, f"# a comment\n{line}\n") == 2
    error = capsys.readouterr().err
    assert "test.stf:2: " in error
    assert words in error


def test_files_that_are_not_there_or_no_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stf", str(tmp_path / "none.json"), "x.stf"]) == 2
    assert "none.json: No such file or directory" in capsys.readouterr().err
    assert main(["stf", COPIES, str(tmp_path / "none.stf")]) == 2
    assert "none.stf: No such file or directory" in capsys.readouterr().err
    assert stf(tmp_path, "", program=__file__) == 2
    assert "not JSON" in capsys.readouterr().err


def test_several_tests_give_the_worst_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.stf", tmp_path / "bad.stf"
    good.write_text("packet 0 ff000000\nexpect 0 ff\n")
    bad.write_text("packet 0 ff000000\nexpect 0 00\n")
    assert main(["stf", COPIES, str(good), str(bad)]) == 1
    out = capsys.readouterr().out
    assert f"{good}: PASS" in out
    assert f"{bad}: FAIL" in out


def test_verbose_shows_logs_and_readings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = tmp_path / "t.stf"
    test.write_text(
        "add work op.op:7 note()\nregister_write cells 2 9\npacket 0 07020000\nregister_read cells 2\n"
        "counter_read seen 2\nmeter_get_rates police 0\nmirroring_add_mc 3 1\nmirroring_get 3\nexpect 1\n"
    )
    assert main(["stf", "-v", COPIES, str(test)]) == 0
    out = capsys.readouterr().out
    for words in ("cell 2 held 9", "cells[2] = 12", "1 packets, 4 bytes", "= None", "session 3: group 1"):
        assert words in out


def test_the_language_is_read_as_it_stands() -> None:
    text = (
        'ADD "my table" 100 hdr.a[1].f:0x12** h.$valid$:0b1 ctl.act(x:1, y:0x2) = A  # named\n'
        "add t a:10/8\n  b:1..5 c:0x0f&&&0xff\n act()\n"
        "expect 3 ab** 0c $\npacket\t1 AB cd\ncheck_counter c($A) bytes >= 7\nmc_node_create 1 2 3\n"
    )
    add, other, expect, send, check, command = read_statements(text, "f")
    assert isinstance(add, Add)
    assert (add.table, add.priority, add.label) == ("my table", 100, "A")
    assert add.keys == (("hdr.a[1].f", "0x12**"), ("h.$valid$", "0b1"))
    assert (add.action.name, dict(add.action.arguments)) == ("ctl.act", {"x": "1", "y": "0x2"})
    assert isinstance(other, Add)
    assert other.keys == (("a", "10/8"), ("b", "1..5"), ("c", "0x0f&&&0xff"))
    assert isinstance(expect, Expect)
    assert (expect.port, expect.digits, expect.exact) == (3, "ab**0c", True)
    assert isinstance(send, Send)
    assert (send.frame, send.place.line) == (b"\xab\xcd", 6)
    assert isinstance(check, Check)
    assert (check.index, check.unit, check.condition, check.value) == ("$A", "bytes", ">=", 7)
    assert isinstance(command, Command)
    assert command.words == ("1", "2", "3")


def test_an_unknown_word_is_an_error() -> None:
    with pytest.raises(StfError, match="f:1: 'fly' is not a command"):
        read_statements("fly", "f")


def test_what_p4cs_grammar_lets_stand_is_read() -> None:
    text = (
        '\ufeffadd t a : 0x0a000000 / 8 b :\t0o1* "c : d":3 e: 0 .. 9 act ( x : 1 ,"y":0b1 )\r\n'
        'setdefault "t" "act"()\r\nexpect 2 $\n'
    )
    add, default, expect = read_statements(text, "f")
    assert isinstance(add, Add)
    assert add.keys == (("a", "0x0a000000/8"), ("b", "0o1*"), ("c : d", "3"), ("e", "0..9"))
    assert dict(add.action.arguments) == {"x": "1", "y": "0b1"}
    assert isinstance(default, SetDefault)
    assert (default.table, default.action.name) == ("t", "act")
    assert isinstance(expect, Expect)
    assert (expect.digits, expect.exact) == ("", True)


def test_bytes_may_be_meant_with_the_frame_check_sequence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packets = "packet 0 07 02 00 00\npacket 0 07 02 00 00\nexpect 1\nexpect 1\n"
    for total, code in ((8, 0), (16, 0), (12, 1)):
        text = f"add work op.op:7 note()\n{packets}check_counter seen(2) bytes == {total}\n"
        assert stf(tmp_path, text) == code
    assert "counter (bytes) seen(2) is 8, expected == 12" in capsys.readouterr().out


def test_a_hash_in_a_name_begins_no_comment() -> None:
    (add,) = read_statements('add "t#1" "k#2":3 "a#"() # not "this"\n# nor this', "f")
    assert isinstance(add, Add)
    assert (add.table, add.keys, add.action.name) == ("t#1", (("k#2", "3"),), "a#")


LONG = "9" * 5000


@pytest.mark.parametrize(
    "line",
    [
        f"packet {LONG} 00",
        f"expect {LONG}",
        f"add work {LONG} op.op:7 note()",
        f"add work op.op:{LONG} note()",
        f"check_counter seen({LONG}) == 1",
        f"check_counter seen(1) == {LONG}",
        f"mirroring_add {LONG} 1",
        f"mc_node_create 1 {LONG}",
        f"meter_set_rates m 0 {LONG}:1 2:2",
        f"meter_set_rates m 0 1:{LONG} 2:2",
        "meter_set_rates m 0 -1:1 2:2",
    ],
)
def test_numbers_that_nobody_means_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    assert stf(tmp_path, f"{line}\n") == 2
    said = capsys.readouterr().err
    assert said.startswith("polyrhythm stf: ")
    assert said.count("\n") == 1
    assert len(said) < 400
