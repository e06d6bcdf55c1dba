# SPDX-License-Identifier: Apache-2.0
"""The audit log: every request that would change something, and what was answered."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import time
from pathlib import Path

import httpx
import pytest
from fake_source import running, view

from controller.northbound.access_rules import AccessRules
from controller.northbound.audit import AuditLog
from controller.northbound.paging import PageStart
from controller.northbound.tokens import Tokens, token_hash
from controller.wire.limits import MAX_AUDIT_KEPT
from polyrhythm_files import ConfigError


def lines(file: Path, count: int) -> list[dict[str, object]]:
    until = time.monotonic() + 60
    while len(found := file.read_text().splitlines()) < count and time.monotonic() < until:
        time.sleep(0.01)
    return [json.loads(line) for line in found]


def test_writes_are_recorded_also_refused_ones_and_no_secret_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tokens, file = tmp_path / "tokens.json", tmp_path / "audit.jsonl"
    tokens.write_text(
        json.dumps({"tokens": [{"name": "bob", "role": "job", "sha256": token_hash("sesame")}]})
    )
    rules = AccessRules(Tokens(tokens), audit=AuditLog(file))
    with running(view(1), rules=rules) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        known = {"Authorization": "Bearer sesame"}
        assert client.get("api/v1/jobs", headers=known).status_code == 200
        assert client.delete("api/v1/jobs/x", headers=known).status_code == 503
        assert client.post("api/v1/jobs", headers={"Authorization": "Bearer guess"}).status_code == 401
        assert client.post("x%0Ay", headers={**known, "Host": "evil.example"}).status_code == 421
        found = lines(file, 3)
    assert [(f["caller"], f["role"], f["method"], f["path"], f["status"]) for f in found] == [
        ("bob", "job", "DELETE", "/api/v1/jobs/x", 503),
        ("", "", "POST", "/api/v1/jobs", 401),
        ("", "", "POST", "/x\ny", 421),
    ]
    assert {f["peer"] for f in found} == {"127.0.0.1"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    said = [r.getMessage() for r in caplog.records if r.name.endswith("audit")]
    assert len(said) == 3
    assert said[0] == "bob (job) at 127.0.0.1: DELETE /api/v1/jobs/x was answered 503"
    for text in (file.read_text(), caplog.text):
        assert "sesame" not in text
        assert "guess" not in text
    assert "\n" not in said[2]


def test_rest_shows_the_newest_first_page_by_page_to_operators_only(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    entries = [{"name": f"{r}er", "role": r, "sha256": token_hash(r)} for r in ("job", "operate")]
    tokens.write_text(json.dumps({"tokens": entries}))
    rules = AccessRules(Tokens(tokens))
    with running(view(1), rules=rules) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        job, operator = ({"Authorization": f"Bearer {name}"} for name in ("job", "operate"))

        def shown(**asked: str | int) -> tuple[list[str], str | None]:
            answer = client.get("api/v1/audit", params=asked, headers=operator)
            assert answer.status_code == 200, answer.text
            body = answer.json()
            return [record["path"].rpartition("/")[2] for record in body["records"]], body["next"]

        listed = PageStart("/api/v1/audit")
        assert shown() == ([], None)
        for name in "abcde":
            client.delete(f"api/v1/jobs/{name}", headers=job)
        first, cursor = shown(most=2)
        client.delete("api/v1/jobs/f", headers=job)
        assert cursor is not None
        second, last = shown(most=2, cursor=cursor)
        assert last is not None
        assert (first, second, shown(most=2, cursor=last)) == (["e", "d"], ["c", "b"], (["a"], None))
        assert shown(most=6) == (list("fedcba"), None)
        newest = client.get("api/v1/audit", headers=operator).json()["records"][0]
        told = {name: newest[name] for name in ("number", "caller", "role", "peer", "method", "status")}
        assert told == {
            "number": 6, "caller": "jober", "role": "job", "peer": "127.0.0.1", "method": "DELETE", "status": 503,
        }  # fmt: skip
        assert client.get("api/v1/audit", headers=job).status_code == 403
        assert client.get("api/v1/audit").status_code == 401
        assert shown(cursor=listed.cursor_after("0")) == ([], None)
        for wrong in ("!", listed.cursor_after("x"), listed.cursor_after("-1")):
            answer = client.get("api/v1/audit", params={"cursor": wrong}, headers=operator)
            assert answer.status_code == 404
            assert "`next` of a page" in answer.json()["detail"]


def test_only_the_last_records_are_kept_and_a_page_behind_them_is_empty() -> None:
    audit = AuditLog()
    for number in range(MAX_AUDIT_KEPT + 5):
        audit.record("bob", "job", "::1", "POST", f"/{number}", 200)
    records, last = audit.newest(2 * MAX_AUDIT_KEPT)
    assert [record.path for _, record in records] == [f"/{n}" for n in range(MAX_AUDIT_KEPT + 4, 4, -1)]
    assert last is None
    assert audit.newest(10, before=4) == ((), None)
    (oldest,), last = audit.newest(10, before=7)
    assert (oldest[1].path, last) == ("/5", None)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--audit: .*none/a.jsonl: No such file"):
        AuditLog(tmp_path / "none" / "a.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told_and_the_record_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    AuditLog(Path("/dev/full")).record("bob", "job", "::1", "POST", "/x", 200)
    until = time.monotonic() + 60
    while "No space left" not in caplog.text and time.monotonic() < until:
        time.sleep(0.01)
    assert '"path": "/x"' in caplog.text


def test_a_record_that_was_written_in_part_does_not_spoil_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, real, taken = tmp_path / "audit.jsonl", os.write, [10, 0, 20]

    def write(descriptor: int, data: bytes) -> int:
        """A disk that takes 10 bytes, is full, then takes 20 bytes, and then everything."""
        size = taken.pop(0) if taken else len(data)
        if not size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[:size])

    audit = AuditLog(file)
    monkeypatch.setattr("controller.northbound.audit.os.write", write)
    for path in ("/a", "/b", "/c"):
        audit.record("bob", "job", "::1", "POST", path, 200)
    until = time.monotonic() + 60
    while file.read_bytes().count(b"\n") < 3 and time.monotonic() < until:
        time.sleep(0.01)
    broken, *rest = file.read_text().splitlines()
    assert len(broken) == 10
    assert [json.loads(line)["path"] for line in rest] == ["/b", "/c"]
