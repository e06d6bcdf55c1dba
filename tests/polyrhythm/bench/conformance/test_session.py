# SPDX-License-Identifier: Apache-2.0
"""Random updates against the model: a right server agrees, a wrong one is found out."""

import json
from pathlib import Path

import pytest
from finsy.proto import p4r, rpc_code

from bmv2.server.replication import ReplicationStore
from bmv2.server.table_store import TableStore
from polyrhythm.bench.conformance import push_all
from polyrhythm.bench.conformance.model import SwitchModel
from polyrhythm.bench.conformance.programs import ProgramsError, folder_programs, own_program
from polyrhythm.cli import main

ENTITIES = Path(__file__).parents[3] / "data" / "p4runtime"


@pytest.fixture(scope="module")
def programs():
    return [own_program(), *(p for p in folder_programs(ENTITIES, None) if p.name != "translated")]


def test_the_server_agrees_with_the_model(programs):
    report = push_all(programs, 3000, seed=7)
    assert report["programs_pushed"] == 3
    assert report["programs_refused"] == 0
    assert report["disagreements"] == []
    assert report["oracle_disagreements"] == 0
    assert report["oracle_requests"] >= 3000
    wanted = {"OK", "ALREADY_EXISTS", "NOT_FOUND", "INVALID_ARGUMENT", "PERMISSION_DENIED", "OUT_OF_RANGE"}
    assert wanted <= report["oracle_codes"].keys()
    assert report["oracle_codes"]["OK"] > 600


def forget_metadata(monkeypatch):
    encode = TableStore.encode

    def wrong(self, table, stored):
        message = encode(self, table, stored)
        message.metadata = b""
        return message

    monkeypatch.setattr(TableStore, "encode", wrong)


def keep_deleted_sessions(monkeypatch):
    apply = ReplicationStore._apply_session

    def wrong(self, kind, message):
        before = dict(self._sessions)
        effect = apply(self, kind, message)
        self._sessions = before | self._sessions
        return effect

    monkeypatch.setattr(ReplicationStore, "_apply_session", wrong)


@pytest.mark.parametrize("fault", [forget_metadata, keep_deleted_sessions])
def test_a_wrong_server_is_found_out(programs, monkeypatch, fault):
    fault(monkeypatch)
    report = push_all(programs[:1], 2000, seed=7)
    assert report["oracle_disagreements"] > 0
    assert report["disagreements"]


def test_a_program_that_is_refused_is_named(programs, monkeypatch):
    monkeypatch.setenv("PATH", "")
    broken = type(programs[0])("broken", programs[0].info, b"{}", None)
    report = push_all([broken, programs[0]], 10, seed=1)
    assert (report["programs_pushed"], report["programs_refused"]) == (1, 1)
    assert "INVALID_ARGUMENT" in report["refused"]["broken"]


def test_the_bench_prints_json_and_ends_with_0(capsys):
    assert main(["bench", "conformance", "--json", "--no-rules", "--requests", "200"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["programs_pushed"] == 1
    assert report["must_passed"] is None


@pytest.mark.parametrize("folder", ["nowhere", "empty", "sources"])
def test_folders_that_cannot_be_used(tmp_path, capsys, monkeypatch, folder):
    monkeypatch.setenv("PATH", "")
    (tmp_path / "empty").mkdir()
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "a.p4").write_text("#include <v1model.p4>\n")
    assert main(["bench", "conformance", "--no-rules", "--programs", str(tmp_path / folder)]) == 2
    assert folder in capsys.readouterr().err


def test_a_file_that_is_no_p4info_is_named(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "a.p4info.txtpb").write_text("nonsense {")
    with pytest.raises(ProgramsError, match=r"a\.json"):
        list(folder_programs(tmp_path, None))


def test_the_model_knows_the_rules_of_entries(programs):
    """A few by hand, for the model is compared with the server only."""
    model = SwitchModel(programs[0].info)
    table = next(table for table in programs[0].info.tables if table.preamble.name == "next_hop")
    forward = next(a for a in programs[0].info.actions if a.preamble.name == "forward")
    entry = p4r.TableEntry(table_id=table.preamble.id)
    entry.match.add(field_id=1).exact.value = b"\x00\x05"
    for param in forward.params:
        entry.action.action.params.add(param_id=param.id, value=b"\1")
    entry.action.action.action_id = forward.preamble.id

    def answer(kind):
        return model.apply(p4r.Update(type=kind, entity=p4r.Entity(table_entry=entry)))

    assert answer(p4r.Update.MODIFY) == {rpc_code.NOT_FOUND}
    assert answer(p4r.Update.INSERT) == {rpc_code.OK}
    entry.match[0].exact.value = b"\5"
    assert answer(p4r.Update.INSERT) == {rpc_code.ALREADY_EXISTS}
    entry.action.action.params[0].value = b""
    assert answer(p4r.Update.MODIFY) == {rpc_code.INVALID_ARGUMENT}
    assert answer(p4r.Update.DELETE) == {rpc_code.OK}
    entry.priority = 3
    assert answer(p4r.Update.INSERT) == {rpc_code.INVALID_ARGUMENT}
