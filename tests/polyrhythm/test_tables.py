# SPDX-License-Identifier: Apache-2.0
"""Tables as files and pipes get them."""

import pytest

from polyrhythm.tables import print_table


def test_a_row_is_one_line_and_names_cannot_write_others(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("job", "gpus"), [("[red]a\nb", 8), ("x" * 300, 16)], right=("gpus",))
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.split() == ["job", "gpus"]
    assert second.split() == ["[red]a\\x0ab", "8"]
    assert third == "x" * 300 + "    16"
