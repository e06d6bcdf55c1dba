# SPDX-License-Identifier: Apache-2.0
"""The list of the specification's rules: every rule has a test that exists, or a reason."""

import re
from pathlib import Path

import pytest

from polyrhythm.bench.conformance import rules

ROOT = Path(__file__).parents[4]


def test_every_rule_has_a_test_that_exists_or_a_reason():
    known = rules.read_rules(ROOT / rules.RULES)
    assert len(known) > 150
    for rule in known:
        if rule.applies:
            file, function = rule.test.split("::")
            assert re.search(rf"^def {function}\(", (ROOT / file).read_text(), re.MULTILINE), rule
        else:
            assert len(rule.reason) > 10, rule


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: the columns are section, rule, test, reason"),
        ("section\trule\ttest\treason\n1\tsomething\t\t\n", ":2: section, rule and test"),
        ("section\trule\ttest\treason\n1\tsomething\tno rule for a server\t\n", ":2: section"),
        ("section\trule\ttest\treason\n1\tsomething\tt.py::t\twhy\n", ":2: section"),
    ],
)
def test_a_list_that_is_not_as_it_should_be(tmp_path, text, said):
    (tmp_path / "rules.tsv").write_text(text)
    with pytest.raises(rules.RulesError, match=re.escape(said)):
        rules.read_rules(tmp_path / "rules.tsv")


def test_only_rules_whose_tests_pass_count(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert False\n"
        "@pytest.mark.parametrize('n', [0, 1])\n"
        "def test_half(n): assert n\n"
        "@pytest.mark.skip\n"
        "def test_skipped(): pass\n"
    )
    names = ("good", "bad", "half", "skipped", "missing")
    listed = [rules.Rule("1", "a rule", f"test_some.py::test_{name}", "") for name in names]
    listed.append(rules.Rule("1", "a rule", rules.NO_RULE, "a reason"))
    assert rules.passed(tmp_path, listed) == 1
