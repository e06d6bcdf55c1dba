# SPDX-License-Identifier: Apache-2.0
"""Links between the guides lead somewhere, and every page is in the site's table of contents.

`make docs` checks the same and anchors too, with Sphinx; this test needs no generator.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)[^)]*\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    if "_generated" in page.parts:
        return
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S)
    missing = [target for target in LINK.findall(text) if not (page.parent / target).exists()]
    assert missing == []


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = set()
    for index in [*(ROOT / "docs").glob("**/index.md")]:
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", index.read_text(), flags=re.M | re.S):
            entries = [line for line in block.splitlines() if line and not line.startswith(":")]
            for entry in entries:
                listed |= set(index.parent.glob(f"{entry}.md"))
    pages = set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs" / "index.md"}
    assert pages - listed == set(), "add the page to a toctree of docs/index.md"
