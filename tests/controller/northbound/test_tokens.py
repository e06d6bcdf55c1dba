# SPDX-License-Identifier: Apache-2.0
"""The file of tokens: roles, the end of validity, rotation, and mistakes in it."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controller.northbound import tokens as module
from controller.northbound.tokens import Caller, Role, Tokens, load_tokens, token_hash
from polyrhythm_files import ConfigError


def write(path: Path, *entries: dict[str, str]) -> Path:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"tokens": list(entries)}))
    os.replace(fresh, path)
    return path


def entry(token: str, name: str = "alice", role: str = "read", **more: str) -> dict[str, str]:
    return {"name": name, "role": role, "sha256": token_hash(token), **more}


def test_a_token_has_its_role_until_it_expires(tmp_path: Path) -> None:
    ends = datetime(2027, 1, 1, tzinfo=UTC)
    file = write(tmp_path / "t.json", entry("x", role="job", expires=ends.isoformat()), entry("y", "bob"))
    tokens = Tokens(file)
    before = ends - timedelta(microseconds=1)
    assert tokens.caller("x", before) == Caller("alice", Role.JOB)
    assert tokens.caller("x", ends) == "the token of alice expired at 2027-01-01T00:00:00+00:00"
    assert tokens.caller("y", ends) == Caller("bob", Role.READ)
    assert tokens.caller("", ends) == tokens.caller("X", ends) == "the token is unknown"
    assert tokens.caller(token_hash("x"), before) == "the token is unknown"


def test_a_changed_file_counts_at_once_and_a_broken_one_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    file = write(tmp_path / "t.json", entry("old"))
    tokens = Tokens(file)
    write(file, entry("new", role="operate"))
    asyncio.run(tokens.refresh())
    assert isinstance(tokens.caller("old"), str)
    assert tokens.caller("new") == Caller("alice", Role.OPERATE)
    for broken in ("{", '{"tokens": [{"name": "a", "role": "root", "sha256": "secret"}]}', None):
        file.unlink()
        if broken is not None:
            file.write_text(broken)
        asyncio.run(tokens.refresh())
        assert tokens.caller("new") == Caller("alice", Role.OPERATE)
    assert caplog.text.count("the tokens from before stay valid") == 3
    assert "secret" not in caplog.text
    write(file, entry("newest"))
    asyncio.run(tokens.refresh())
    assert isinstance(tokens.caller("new"), str)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"role": "admin"}, "tokens[0].role: 'admin' is wrong; legal: read, job, operate"),
        ({"sha256": "my own token"}, "tokens[0].sha256: no SHA-256; legal: 64 hexadecimal digits"),
        ({"expires": "tomorrow"}, "tokens[0].expires: 'tomorrow' is wrong; legal: a time with its zone"),
        ({"expires": "2027-01-01T00:00:00"}, "legal: a time with its zone"),
        ({"name": "a\nb"}, "tokens[0].name: 'a\\nb' is wrong; legal: up to 64 letters"),
        ({"token": "x"}, "tokens[0].token: unknown key"),
    ],
)
def test_mistakes_are_named_and_no_secret_is_shown(change: dict[str, str], says: str, tmp_path: Path) -> None:
    file = write(tmp_path / "t.json", {**entry("x"), **change})
    with pytest.raises(ConfigError) as caught:
        load_tokens(file)
    assert says in str(caught.value)
    assert "my own token" not in str(caught.value)


def test_a_token_is_there_once_and_a_name_may_have_two_while_it_changes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokens\[1\]\.sha256: is there twice"):
        load_tokens(write(tmp_path / "t.json", entry("x", "a"), entry("x", "b")))
    assert len(load_tokens(write(tmp_path / "t.json", entry("x", "a"), entry("y", "a")))) == 2
