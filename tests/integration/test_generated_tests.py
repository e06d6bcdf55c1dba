# SPDX-License-Identifier: Apache-2.0
"""Tests that P4Testgen made from the program, on the embedded switch, and on BMv2 where it is installed."""

import json
import shutil
from pathlib import Path

import pytest
from diff_driver import Session, switch_process
from diff_golden import P4INFO, PROGRAM, pipeline_config
from record_golden import BMV2
from stf_over_p4rt import StfSession

from bmv2.program import load_program
from polyrhythm import p4testgen
from polyrhythm.commands.stf import PacketTest
from polyrhythm.stf.language import read_statements

ROOT = Path(__file__).parents[2]
TESTS = sorted((ROOT / p4testgen.FOLDER).glob("*.stf"))
COVERAGE = json.loads((ROOT / p4testgen.COVERAGE).read_text())


def statements(path):
    return read_statements(path.read_text(), path.name)


@pytest.fixture(scope="module")
def program():
    return load_program(PROGRAM.read_bytes())


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_the_embedded_switch_passes(program, path):
    run = PacketTest(program, statements(path))
    run.run()
    assert run.failures == []


def test_what_the_tests_do_not_reach_is_listed_with_the_reason():
    assert COVERAGE["tests"] == len(TESTS) > 20
    assert COVERAGE["statements"] - COVERAGE["reached"] == len(COVERAGE["unreached"])
    assert COVERAGE["reached"] >= 0.9 * COVERAGE["statements"]
    for item in COVERAGE["unreached"]:
        path = item["statement"].split(":", 1)[0]
        assert (ROOT / path).is_file()
        assert item["reason"] != p4testgen.UNKNOWN


def check(switch):
    """Run all tests on a switch process, with one pipeline."""
    config = pipeline_config(P4INFO.read_text(), PROGRAM.read_text())
    with switch_process(switch) as (control, data):
        session = Session(control, data)
        session.open(config)
        run = StfSession(session, config.p4info)
        found = {path.stem: run.differences(statements(path)) for path in TESTS}
        session.close()
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_our_switch_process_passes_over_p4runtime():
    check(None)


@pytest.mark.skipif(shutil.which(BMV2) is None, reason=f"{BMV2} is not on PATH")
def test_bmv2_passes():
    check(BMV2)
