# SPDX-License-Identifier: Apache-2.0
"""Tests are taken from P4Testgen as it prints them, and a gap keeps its reason."""

import json

import pytest

from polyrhythm import p4testgen, p4tool

LOG = """warning: something
============ Test 1: Nodes covered: 0.25 (1/4) ============
Not covered program nodes:
\tp4/v1model/../shared/a.p4\\3: a = 1;
\tp4/v1model/../shared/a.p4\\4: b = 2;
\tp4/v1model/b.p4\\9: c.apply();
============ Test 2: Nodes covered: 0.5 (2/4) ============
Not covered program nodes:
\tp4/v1model/../shared/a.p4\\4: b = 2;
\tp4/v1model/b.p4\\9: c.apply();
"""
MADE = '# trace\nadd "t" "k":1 "a"()\n\npacket 1 00\nexpect 2 00$\n'


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with a compiled program, and a stand-in that prints LOG and writes ten tests."""
    (tmp_path / p4testgen.JSON_OUTPUT).parent.mkdir(parents=True)
    (tmp_path / p4testgen.JSON_OUTPUT).write_text("{}")
    (tmp_path / "log").write_text(LOG)
    fake = tmp_path / "p4testgen"
    fake.write_text(
        f"#!/bin/sh\ncat {tmp_path}/log\n"
        'while [ "$1" != --out-dir ]; do shift; done\n'
        f"for i in 1 2 3 4 5 6 7 8 9 10; do printf '{MADE}' > $2/polyrhythm_$i.stf; done\nexec sleep 100\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("P4TESTGEN", str(fake))
    return tmp_path


def test_tests_and_gaps_are_kept(checkout, capsys):
    """The search is stopped when its time is over, and what it found counts."""
    arguments = ["--root", str(checkout), "tests", "--seconds", "1"]
    assert p4tool.main(arguments) == 0
    out = capsys.readouterr().out
    assert "10 tests reach 2 of 4 statements" in out
    assert f"not reached: p4/v1model/b.p4:9: c.apply(); ({p4testgen.UNKNOWN})" in out
    made = sorted((checkout / p4testgen.FOLDER).glob("*.stf"))
    assert [path.stem for path in made] == [f"{number:02}" for number in range(1, 11)]
    assert "trace" not in made[0].read_text()
    assert made[0].read_text().endswith('add "t" "k":1 "a"()\npacket 1 00\nexpect 2 00$\n')
    # A reason stays with its statement wherever that moves to.
    file = checkout / p4testgen.COVERAGE
    content = json.loads(file.read_text())
    content["unreached"][1]["reason"] = "no path leads there"
    file.write_text(json.dumps(content))
    (checkout / "log").write_text(LOG.replace("b.p4\\9", "b.p4\\12"))
    assert p4tool.main(arguments) == 0
    assert "b.p4:12: c.apply(); (no path leads there)" in capsys.readouterr().out


def test_tests_of_an_earlier_program_are_called_so(checkout):
    assert not p4testgen.is_older(checkout)
    assert p4tool.main(["--root", str(checkout), "tests", "--seconds", "1"]) == 0
    assert not p4testgen.is_older(checkout)
    (checkout / p4testgen.JSON_OUTPUT).write_text("{ }")
    assert p4testgen.is_older(checkout)


def test_without_the_generator_or_without_tests_nothing_changes(checkout, monkeypatch, capsys):
    (checkout / "p4testgen").write_text("#!/bin/sh\necho something broke\n")
    assert p4tool.main(["--root", str(checkout), "tests"]) == 2
    assert "gave no test; its last words: something broke" in capsys.readouterr().err
    monkeypatch.setenv("P4TESTGEN", str(checkout / "none"))
    assert p4tool.main(["--root", str(checkout), "tests"]) == 2
    assert "is no program: build p4c with P4Testgen, or set P4TESTGEN" in capsys.readouterr().err
    assert not (checkout / p4testgen.FOLDER).exists()
