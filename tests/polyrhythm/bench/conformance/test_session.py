# SPDX-License-Identifier: Apache-2.0
"""Random updates against the model: a right server agrees, a wrong one is found out."""

import json
from pathlib import Path

import pytest
from finsy.proto import p4r, rpc_code

from bmv2.server.errors import StatusError
from bmv2.server.externs import ExternStore
from bmv2.server.profiles import ProfileStore
from bmv2.server.replication import ReplicationStore
from bmv2.server.table_store import TableStore
from polyrhythm.bench.conformance import push_all
from polyrhythm.bench.conformance.model import SwitchModel
from polyrhythm.bench.conformance.programs import ProgramsError, folder_programs, own_program
from polyrhythm.cli import main

ENTITIES = Path(__file__).parents[3] / "data" / "p4runtime"


@pytest.fixture(scope="module")
def programs():
    return [own_program(), *folder_programs(ENTITIES, None)]


def test_the_server_agrees_with_the_model(programs):
    report = push_all(programs, 6000, seed=8)
    assert report["programs_pushed"] == 4
    assert report["programs_refused"] == 0
    assert report["disagreements"] == []
    assert report["oracle_disagreements"] == 0
    assert report["oracle_requests"] >= 6000
    wanted = {"OK", "ALREADY_EXISTS", "NOT_FOUND", "INVALID_ARGUMENT", "PERMISSION_DENIED", "OUT_OF_RANGE"}
    wanted |= {"FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"}
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


def wrong_after(monkeypatch, kind, name, spoil):
    """Let a store's method do something to its message before it looks at it."""
    good = getattr(kind, name)

    def wrong(self, update, message):
        spoil(message)
        return good(self, update, message)

    monkeypatch.setattr(kind, name, wrong)


def reset_meters_to_nothing(monkeypatch):
    wrong_after(monkeypatch, ExternStore, "apply_meter", lambda message: message.config.SetInParent())


def take_registers_for_the_first(monkeypatch):
    wrong_after(monkeypatch, ExternStore, "apply_register", lambda message: message.index.SetInParent())


def forget_list_sizes(monkeypatch):
    wrong_after(
        monkeypatch, ExternStore, "apply_digest", lambda message: message.config.ClearField("max_list_size")
    )


def lose_a_member_of_a_value_set(monkeypatch):
    wrong_after(
        monkeypatch, ExternStore, "apply_value_set", lambda message: message.members and message.members.pop()
    )


def answer_reads_of_what_is_not_there(monkeypatch):
    def wrong(self, profile, member):
        try:
            yield from good(self, profile, member)
        except StatusError:
            return

    good = ProfileStore.read_members
    monkeypatch.setattr(ProfileStore, "read_members", wrong)


@pytest.mark.parametrize(
    "fault",
    [
        forget_metadata,
        keep_deleted_sessions,
        reset_meters_to_nothing,
        take_registers_for_the_first,
        forget_list_sizes,
        lose_a_member_of_a_value_set,
        answer_reads_of_what_is_not_there,
    ],
)
def test_a_wrong_server_is_found_out(programs, monkeypatch, fault):
    fault(monkeypatch)
    report = push_all([program for program in programs if program.name == "every_entity"], 2000, seed=7)
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
        return set(model.apply(p4r.Update(type=kind, entity=p4r.Entity(table_entry=entry))))

    assert answer(p4r.Update.MODIFY) == {rpc_code.NOT_FOUND}
    assert answer(p4r.Update.INSERT) == {rpc_code.OK}
    entry.match[0].exact.value = b"\5"
    assert answer(p4r.Update.INSERT) == {rpc_code.ALREADY_EXISTS}
    entry.action.action.params[0].value = b""
    assert answer(p4r.Update.MODIFY) == {rpc_code.INVALID_ARGUMENT}
    assert answer(p4r.Update.DELETE) == {rpc_code.OK}
    entry.priority = 3
    assert answer(p4r.Update.INSERT) == {rpc_code.INVALID_ARGUMENT}
