# SPDX-License-Identifier: Apache-2.0
"""The errors of files are one line, whatever the file contains."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polyrhythm_files import ConfigError


@given(st.text())
def test_an_error_is_one_line(quoted: str) -> None:
    message = str(ConfigError(f"jobs.yaml:3: jobs[0].hosts: no host {quoted}"))
    assert message.isprintable()
    assert message.startswith("jobs.yaml:3: jobs[0].hosts: no host ")


def test_a_control_character_is_shown_as_an_escape() -> None:
    assert str(ConfigError("no host a\nb\x1b[2J é")) == "no host a\\nb\\x1b[2J é"
