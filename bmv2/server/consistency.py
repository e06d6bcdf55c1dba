# SPDX-License-Identifier: Apache-2.0
"""Check P4Info against the program: each must have what the other declares.

After this check every update that the store accepts fits the switch, so no effect can fail.
"""

from __future__ import annotations

from bmv2.ir import Ir
from bmv2.ir import Table as ProgramTable
from bmv2.ir import ValueSet as ProgramValueSet
from bmv2.server.errors import invalid
from bmv2.server.matches import MatchKind
from bmv2.server.resources import ValueSetInfo
from bmv2.server.schema import Schema, TableInfo

# p4c writes optional fields as ternary ones.
_PROGRAM_KINDS = {
    MatchKind.EXACT: "exact",
    MatchKind.LPM: "lpm",
    MatchKind.TERNARY: "ternary",
    MatchKind.RANGE: "range",
    MatchKind.OPTIONAL: "ternary",
}


def check_consistency(schema: Schema, ir: Ir) -> None:
    """Raise StatusError (INVALID_ARGUMENT) where P4Info and the program contradict each other."""
    program_tables = {table.name: table for table in ir.tables()}
    for table in schema.tables.values():
        program_table = program_tables.get(table.name)
        if program_table is None and left_out(schema, table):
            continue
        if program_table is None:
            raise invalid(f"P4Info has table {table.name}, which the device config has not")
        _check_key(table, program_table)
        _check_actions(schema, table, program_table)
        _check_resources(table, program_table)
    _check_profiles(schema, ir)
    _check_arrays(schema, ir)
    for value_set in schema.value_sets.values():
        if not _fits_value_set(value_set, ir.value_sets.get(value_set.name)):
            raise invalid(f"P4Info has value set {value_set.name}, which the device config has not")
    digests = {digest.name: digest.widths for digest in ir.digests.values()}
    for digest in schema.digests.values():
        for kind, width in zip(digest.types, digests[digest.source], strict=True):
            if kind.width not in (0, width):
                raise invalid(f"digest {digest.name}: P4Info and device config disagree on a value's width")


def left_out(schema: Schema, table: TableInfo) -> bool:
    """Whether p4c leaves such a table out of the device config: no key, and no action but NoAction."""
    actions = table.entry_actions | table.default_actions
    return not table.key and all(schema.actions[action].name == "NoAction" for action in actions)


def _fits_value_set(value_set: ValueSetInfo, program: ProgramValueSet | None) -> bool:
    """Whether the program has this set; old compilers do not tell its size."""
    if program is None or program.size not in (None, value_set.size):
        return False
    return program.widths == tuple(field.width for field in value_set.key)


def _check_key(table: TableInfo, program: ProgramTable) -> None:
    given = [(field.width, _PROGRAM_KINDS[field.kind]) for field in table.key]
    if given != [(field.width, field.kind) for field in program.key]:
        raise invalid(f"table {table.name}: P4Info and device config disagree on the key's fields")
    # Of a table with initial entries p4c writes their number into the device config, whatever its size.
    if table.key and program.initial_entries is None and not 0 <= table.size <= program.size:
        raise invalid(
            f"table {table.name}: P4Info says {table.size} entries, the device config {program.size}"
        )


def _check_actions(schema: Schema, table: TableInfo, program: ProgramTable) -> None:
    # Only the tables' own actions are compared: p4c also writes one for each direct call, under the same name
    # and with its parameters bound, and keeps an action that no table uses in P4Info only.
    for action_id in table.entry_actions | table.default_actions:
        action = schema.actions[action_id]
        if action.name not in program.actions:
            raise invalid(f"table {table.name}: has no action {action.name} in the device config")
        widths = [param.width for param in action.params]
        if [width for _, width in program.actions[action.name].params] != widths:
            raise invalid(f"action {action.name}: P4Info and device config disagree on its parameters")
    known = {action.name for action in schema.actions.values()}
    own = [entry.action for entry in program.initial_entries or ()]
    if program.default is not None:
        own.append(program.default.action)
        if program.default.const_action and not table.const_default:
            raise invalid(f"table {table.name}: its default action is constant, but not in P4Info")
    for name in own:
        if name not in known:
            raise invalid(f"table {table.name}: P4Info lacks action {name}, which the program itself uses")


def _check_resources(table: TableInfo, program: ProgramTable) -> None:
    if program.profile != (None if table.profile is None else table.profile.name):
        raise invalid(f"table {table.name}: P4Info and device config disagree on its action profile")
    if table.direct_meter is not None and program.direct_meter != table.direct_meter.name:
        raise invalid(f"table {table.name}: P4Info and device config disagree on its direct meter")
    if table.direct_counter is not None and not program.direct_counter:
        raise invalid(f"table {table.name}: has a direct counter in P4Info only")
    if table.idle_timeout and not program.timeout:
        raise invalid(f"table {table.name}: only P4Info says that its entries age")


def _check_profiles(schema: Schema, ir: Ir) -> None:
    for profile in schema.profiles.values():
        program = ir.profiles.get(profile.name)
        if program is None and not profile.table_ids:
            # p4c keeps a profile that no table uses in P4Info only.
            continue
        if program is None or not 0 <= profile.size <= program.size:
            raise invalid(
                f"P4Info has action profile {profile.name} of {profile.size}, the device config has not"
            )
        if profile.selector != (program.selector is not None):
            raise invalid(f"action profile {profile.name}: P4Info and device config disagree on a selector")
        users = {table.id for table in schema.tables.values() if table.profile is profile}
        if set(profile.table_ids) != users:
            raise invalid(f"P4Info: action profile {profile.name} does not list the tables that have it")


def _check_arrays(schema: Schema, ir: Ir) -> None:
    arrays = (
        ("counter", schema.counters.values(), ir.counters),
        ("meter", schema.meters.values(), {name: meter.size for name, meter in ir.meters.items()}),
        ("register", schema.registers.values(), {name: size for name, (size, _) in ir.registers.items()}),
    )
    for kind, known, sizes in arrays:
        for item in known:
            if sizes.get(item.name) != item.size:
                raise invalid(
                    f"P4Info has {kind} {item.name} of {item.size}, which the device config has not"
                )
    for register in schema.registers.values():
        width = 0 if register.type is None else register.type.width
        if width > ir.registers[register.name][1]:
            raise invalid(
                f"register {register.name}: is {width} bits wide in P4Info, "
                f"{ir.registers[register.name][1]} in the device config"
            )
