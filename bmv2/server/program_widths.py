# SPDX-License-Identifier: Apache-2.0
"""The widths that a program has for what P4Info names, which tells only how clients see a translated type."""

from __future__ import annotations

from collections.abc import Sequence

from bmv2.ir import Ir


class ProgramWidths:
    """Widths in bits by P4Info's names; None for what the program has not."""

    def __init__(self, ir: Ir) -> None:
        self._ir = ir
        self._keys = {table.name: [field.width for field in table.key] for table in ir.tables()}
        self._params: dict[str, list[int]] = {}
        for table in ir.tables():
            for name, action in table.actions.items():
                self._params[name] = [width for _, width in action.params]

    def key(self, table: str, position: int) -> int | None:
        """Of the field at a position in a table's key."""
        return _at(self._keys.get(table, ()), position)

    def param(self, action: str, position: int) -> int | None:
        """Of the parameter at a position of an action that a table has."""
        return _at(self._params.get(action, ()), position)

    def set_field(self, value_set: str, position: int) -> int | None:
        """Of the field at a position in a value set's key."""
        known = self._ir.value_sets.get(value_set)
        return None if known is None else _at(known.widths, position)

    def packet_field(self, names: Sequence[str], position: int) -> int | None:
        """Of the field at a position of the header that has just these fields; None also if two differ.

        p4c does not tell which header is a @controller_header.
        """
        found = {
            tuple(field.width for field in header.fields.values())
            for header in self._ir.headers.values()
            if not header.metadata and list(header.fields) == list(names)
        }
        return _at(found.pop(), position) if len(found) == 1 else None

    def register(self, name: str) -> int | None:
        """Of a register array's cells."""
        known = self._ir.registers.get(name)
        return None if known is None else known[1]


def _at(widths: Sequence[int], position: int) -> int | None:
    return widths[position] if position < len(widths) else None
