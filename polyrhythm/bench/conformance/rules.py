# SPDX-License-Identifier: Apache-2.0
"""The list of the specification's rules for servers, and the tests that hold the server to them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

RULES = "docs/p4runtime-conformance.tsv"
NO_RULE = "no rule for a server"
_COLUMNS = ("section", "rule", "test", "reason")


class RulesError(Exception):
    """The list is not as it should be. The message is one line for a person."""


@dataclass(frozen=True)
class Rule:
    """One rule. `test` is a file and a function of tests/bmv2/server, or NO_RULE with the reason."""

    section: str
    rule: str
    test: str
    reason: str

    @property
    def applies(self) -> bool:
        """Whether the rule is one for this server."""
        return self.test != NO_RULE


def read_rules(path: Path) -> list[Rule]:
    """Read the list. Raises RulesError with file and line."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise RulesError(f"{path}: {error.strerror}") from None
    if not lines or tuple(lines[0].split("\t")) != _COLUMNS:
        raise RulesError(f"{path}:1: the columns are {', '.join(_COLUMNS)}")
    rules = []
    for number, line in enumerate(lines[1:], 2):
        words = line.split("\t")
        if len(words) != len(_COLUMNS) or not all(words[:3]) or (words[2] == NO_RULE) != bool(words[3]):
            raise RulesError(f"{path}:{number}: section, rule and test; or, for `{NO_RULE}`, also the reason")
        rules.append(Rule(*words))
    return rules


def passed(root: Path, rules: Iterable[Rule]) -> int:
    """Run the tests of the rules that apply; gives how many rules all tests of which pass.

    A rule whose test does not exist has not passed.
    """
    wanted = [rule.test for rule in rules if rule.applies]
    files = sorted({test.partition("::")[0] for test in wanted})
    with tempfile.TemporaryDirectory(prefix="polyrhythm-conformance-") as folder:
        report = Path(folder, "report.xml")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            *files,
        ]
        subprocess.run(command, cwd=root, capture_output=True, env=os.environ, check=False)
        good = _good_tests(report)
    return sum(test in good for test in wanted)


def _good_tests(report: Path) -> set[str]:
    """The tests, as file::function, of which every case has passed."""
    if not report.is_file():
        return set()
    seen: dict[str, bool] = {}
    # The file is pytest's own.
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
        failed = any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
        seen[name] = seen.get(name, True) and not failed
    return {name for name, good in seen.items() if good}
