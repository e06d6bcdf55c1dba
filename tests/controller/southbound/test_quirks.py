# SPDX-License-Identifier: Apache-2.0
"""The table of target quirks: the guide shows it, and the code that it names exists."""

from pathlib import Path

import pytest

from controller.southbound.quirks import QUIRKS, Quirk, markdown

ROOT = Path(__file__).parents[3]


def test_the_guide_shows_the_table() -> None:
    assert markdown() in (ROOT / "docs" / "southbound.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("quirk", QUIRKS, ids=lambda q: q.what[:40])
def test_the_code_that_copes_with_a_quirk_exists(quirk: Quirk) -> None:
    file, _, name = quirk.where.partition(": ")
    source = (ROOT / file).read_text(encoding="utf-8")
    assert any(f"{start}{name}" in source for start in ("class ", "def ", "\n"))
    assert quirk.source
