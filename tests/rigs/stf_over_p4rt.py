# SPDX-License-Identifier: Apache-2.0
"""P4Testgen's tests over P4Runtime and the data-plane service: the same for simple_switch_grpc and ours."""

from __future__ import annotations

from collections.abc import Sequence

from diff_driver import Session
from diff_golden import masked
from diff_workload import Workload, canonical
from finsy.proto import p4i, p4r

from polyrhythm.stf.language import Add, Expect, Send, SetDefault, Statement

UNSET = {"queue": "set_queue", "ecn": "set_mark_probability", "switch_identity": "set_switch_id"}


class StfSession:
    """Runs one test after another on an open session, and takes its entries away again."""

    def __init__(self, session: Session, info: p4i.P4Info) -> None:
        self._session = session
        self._tables = {table.preamble.name: table for table in info.tables}
        self._actions = {action.preamble.name: action for action in info.actions}
        # Only what the session's own frames need, by which it knows that all has left.
        session.write(Workload(0, info).setup(without=self._tables))

    def differences(self, statements: Sequence[Statement]) -> list[str]:
        """What left the switch otherwise than a test says, a line for each.

        The test is of entries and default actions, one packet, and what it expects.
        """
        inserts = [self._insert(s) for s in statements if isinstance(s, Add)]
        defaults = [self._default(s.table, s.action) for s in statements if isinstance(s, SetDefault)]
        (sent,) = (s for s in statements if isinstance(s, Send))
        cause = (sent.port, sent.frame)
        wanted = [
            masked(cause, (s.port, bytes.fromhex(s.digits or "")))
            for s in statements
            if isinstance(s, Expect)
        ]
        self._session.write(inserts + defaults)
        got = [masked(cause, answer) for answer in self._session.exchange(*cause)]
        self._session.write([p4r.Update(type=p4r.Update.DELETE, entity=u.entity) for u in reversed(inserts)])
        self._session.write([self._zero(s.table) for s in statements if isinstance(s, SetDefault)])
        lines = [f"missing: port {port} {frame.hex()}" for port, frame in wanted if (port, frame) not in got]
        return lines + [f"unexpected: port {p} {frame.hex()}" for p, frame in got if (p, frame) not in wanted]

    def _insert(self, add: Add) -> p4r.Update:
        table = self._tables[add.table]
        entry = p4r.TableEntry(table_id=table.preamble.id)
        fields = {field.name: field for field in table.match_fields}
        for name, digits in add.keys:
            field = fields[name]
            if field.match_type == field.LPM:
                bits = digits.removeprefix("0b").ljust(field.bitwidth, "*")
                length = len(bits.rstrip("*"))
                if length:
                    lpm = entry.match.add(field_id=field.id).lpm
                    lpm.value, lpm.prefix_len = canonical(int(bits.replace("*", "0"), 2)), length
            else:
                assert field.match_type == field.EXACT
                entry.match.add(field_id=field.id).exact.value = canonical(int(digits, 0))
        entry.action.action.CopyFrom(self._call(add.action))
        return p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=entry))

    def _default(self, table, action) -> p4r.Update:
        entry = p4r.TableEntry(table_id=self._tables[table].preamble.id, is_default_action=True)
        entry.action.action.CopyFrom(self._call(action))
        return p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(table_entry=entry))

    def _zero(self, table: str) -> p4r.Update:
        """The program's own default action: its parameter is 0."""
        entry = p4r.TableEntry(table_id=self._tables[table].preamble.id, is_default_action=True)
        action = self._actions[UNSET[table]]
        entry.action.action.action_id = action.preamble.id
        entry.action.action.params.add(param_id=action.params[0].id, value=b"\0")
        return p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(table_entry=entry))

    def _call(self, call) -> p4r.Action:
        action = self._actions[call.name]
        found = p4r.Action(action_id=action.preamble.id)
        for param in action.params:
            found.params.add(param_id=param.id, value=canonical(int(call.arguments[param.name], 0)))
        return found
