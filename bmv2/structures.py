# SPDX-License-Identifier: Apache-2.0
"""Headers, header stacks and header unions of BMv2's JSON.

Two hidden metadata headers hold what a packet carries beside the fields of its headers, so that it is copied,
compared and kept like any field. `LOOSE` holds how much of each stack is in use and how long each field of
variable width is. `REQUESTS` holds what an action has asked the switch to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from .ir import Field, FieldRef, Header, Stack
from .json_reader import MAX_WIDTH, Reader

# Fields by name, bits in all, and the field of variable width if there is one.
_HeaderType: TypeAlias = tuple[Mapping[str, Field], int, str | None]

LOOSE = "$loose"
REQUESTS = "$requests"
# Widths are BMv2's; `truncate` holds the length plus one, so that zero means none.
REQUEST_FIELDS = {
    "clone": 16,
    "clone_fields": 16,
    "digest": 16,
    "resubmit": 16,
    "recirculate": 16,
    "truncate": 33,
}
_COUNT_WIDTH = 16
_LENGTH_WIDTH = 32


@dataclass(frozen=True, slots=True)
class Structures:
    """All headers by name, with the stacks and unions they are in.

    `union_members` gives the names a union type's headers have within it, in their order.
    """

    headers: Mapping[str, Header]
    stacks: Mapping[str, Stack]
    unions: Mapping[str, tuple[str, ...]]
    siblings: Mapping[str, tuple[str, ...]]
    union_members: Mapping[str, tuple[str, ...]]


def length_of(header: str) -> FieldRef:
    """The field with the length in bits of the header's field of variable width."""
    return FieldRef(LOOSE, f"length {header}")


def request(name: str) -> FieldRef:
    """The field with what an action has asked for."""
    return FieldRef(REQUESTS, name)


def read_structures(root: Reader) -> Structures:
    """Read the headers, stacks and unions of a program."""
    types = {t["name"].text(): _header_type(t) for t in root.list("header_types")}
    union_types = {t["name"].text(): _union_type(t) for t in root.list("header_union_types")}
    headers: dict[str, Header] = {}
    unions: dict[str, tuple[str, ...]] = {}
    union_members: dict[str, tuple[str, ...]] = {}
    by_id: dict[int, str] = {}
    for reader in root.list("headers"):
        name, kind = reader["name"].text(), reader["header_type"].text()
        if kind in union_types:
            # A union of which the program uses members only: p4c declares it among the headers, as metadata,
            # and its members nowhere.
            union_members[name] = tuple(union_types[kind])
            unions[name] = tuple(f"{name}.{member}" for member in union_members[name])
            for member, member_kind in zip(unions[name], union_types[kind].values(), strict=True):
                headers[member] = _header(reader, member, member_kind, types, metadata=False)
            continue
        metadata = reader.optional_flag("metadata", False)
        headers[name] = _header(reader, name, kind, types, metadata=metadata)
        by_id[reader["id"].integer()] = name
    if "standard_metadata" not in headers:
        raise root.fail("there is no 'standard_metadata': only v1model programs can be run")
    union_ids: dict[int, str] = {}
    for reader in root.list("header_unions"):
        unions[reader["name"].text()] = _named(reader, "header_ids", by_id)
        union_ids[reader["id"].integer()] = reader["name"].text()
    stacks: dict[str, Stack] = {}
    for reader in root.list("header_stacks"):
        _add_stack(reader, _named(reader, "header_ids", by_id), stacks)
    for reader in root.list("header_union_stacks"):
        _add_stack(reader, _named(reader, "header_union_ids", union_ids), stacks)
    _add_hidden(headers, stacks)
    siblings: dict[str, tuple[str, ...]] = {}
    for members in unions.values():
        for name in members:
            siblings[name] = tuple(other for other in members if other != name)
    return Structures(
        MappingProxyType(headers),
        MappingProxyType(stacks),
        MappingProxyType(unions),
        MappingProxyType(siblings),
        MappingProxyType(union_members | _union_members(root, union_types)),
    )


def _header(
    reader: Reader, name: str, kind: str, types: Mapping[str, _HeaderType], *, metadata: bool
) -> Header:
    if kind not in types:
        raise reader.fail(f"no header type is called '{kind}'")
    fields, width, varbit = types[kind]
    if not metadata and width % 8:
        raise reader.fail(f"a header must fill whole bytes, '{kind}' has {width} bits")
    return Header(name, metadata, fields, width, varbit)


def _union_type(reader: Reader) -> Mapping[str, str]:
    """The types of a union's headers by their names in it."""
    return {header[0].text(): header[1].text() for header in reader.list("headers")}


def _header_type(reader: Reader) -> _HeaderType:
    fields: dict[str, Field] = {}
    offset = 0
    varbit: str | None = None
    for item in reader.list("fields"):
        name = item[0].text()
        signed = len(item.value) > 2 and item[2].flag()
        if item[1].value == "*":
            if varbit is not None:
                raise item.fail("a header has one field of variable width at most")
            varbit = name
            fields[name] = Field(name, 0, signed, offset)
            continue
        fields[name] = Field(name, item[1].integer(), signed, offset)
        if fields[name].width < 1:
            raise item.fail(f"a field has at least 1 bit, not {fields[name].width}")
        if fields[name].width > MAX_WIDTH:
            raise item.fail(
                f"field '{name}' has {fields[name].width} bits, at most {MAX_WIDTH} are supported"
            )
        offset += fields[name].width
    if varbit is not None:
        greatest = 8 * reader["max_length"].integer() - offset
        if greatest < 1:
            raise reader.fail(f"'max_length' leaves no room for '{varbit}'")
        if greatest > MAX_WIDTH:
            raise reader.fail(f"field '{varbit}' has {greatest} bits, at most {MAX_WIDTH} are supported")
        fields[varbit] = Field(varbit, greatest, fields[varbit].signed, fields[varbit].offset)
    return MappingProxyType(fields), offset, varbit


def _named(reader: Reader, key: str, names: Mapping[int, str]) -> tuple[str, ...]:
    result = []
    for item in reader[key].items():
        if item.integer() not in names:
            raise item.fail(f"nothing has the id {item.value}")
        result.append(names[item.integer()])
    if not result:
        raise reader.fail(f"'{key}' is empty")
    return tuple(result)


def _add_stack(reader: Reader, elements: tuple[str, ...], stacks: dict[str, Stack]) -> None:
    name = reader["name"].text()
    stacks[name] = Stack(name, elements, FieldRef(LOOSE, f"next {name}"))


def _add_hidden(headers: dict[str, Header], stacks: Mapping[str, Stack]) -> None:
    loose = {stack.next.field: _COUNT_WIDTH for stack in stacks.values()}
    loose |= {length_of(h.name).field: _LENGTH_WIDTH for h in headers.values() if h.varbit is not None}
    for name, widths in ((LOOSE, loose), (REQUESTS, REQUEST_FIELDS)):
        fields: dict[str, Field] = {}
        offset = 0
        for item, width in widths.items():
            fields[item] = Field(item, width, False, offset)
            offset += width
        headers[name] = Header(name, True, MappingProxyType(fields), offset)


def _union_members(root: Reader, types: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """The members' names by the name of each union and of each stack of unions."""
    members: dict[str, tuple[str, ...]] = {}
    for key in ("header_unions", "header_union_stacks"):
        for reader in root.list(key):
            kind = reader["union_type"].text()
            if kind not in types:
                raise reader.fail(f"no header union type is called '{kind}'")
            members[reader["name"].text()] = tuple(types[kind])
    return members
