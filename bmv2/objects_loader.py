# SPDX-License-Identifier: Apache-2.0
"""What a program declares beside its tables: calculations, counters, meters, registers, lists, profiles."""

from __future__ import annotations

from .calculations import ALGORITHMS, CUSTOM
from .expressions import Scope
from .ir import Calculation, Const, Digest, FieldRef, MeterArray, ProfileDeclaration, ValidBit
from .json_reader import Reader
from .structures import read_structures


def read_objects(root: Reader) -> Scope:
    """The scope with all that expressions and primitives may name."""
    scope = Scope(read_structures(root))
    scope.calculations = {c["name"].text(): _calculation(c, scope) for c in root.list("calculations")}
    scope.registers = {
        r["name"].text(): (r["size"].cells(), r["bitwidth"].width()) for r in root.list("register_arrays")
    }
    scope.counters = {
        c["name"].text(): c["size"].cells()
        for c in root.list("counter_arrays")
        if not c.optional_flag("is_direct", False)
    }
    scope.meters = {m["name"].text(): _meter(m, scope) for m in root.list("meter_arrays")}
    scope.digests = {d["id"].integer(): _digest(d, scope) for d in root.list("learn_lists")}
    scope.field_lists = {f["id"].integer(): _field_list(f, scope) for f in root.list("field_lists")}
    return scope


def _source(reader: Reader, scope: Scope) -> tuple[FieldRef | Const, int]:
    """A field or constant with its width in bits."""
    kind = reader["type"].text()
    if kind == "hexstr":
        width = reader["bitwidth"].width()
        return Const(reader["value"].hexadecimal() & ((1 << width) - 1)), width
    if kind == "field":
        source = scope.field(reader["value"])
        if isinstance(source, ValidBit):
            return Const(1), 1
        return source, scope.headers[source.header].fields[source.field].width
    raise reader.fail(
        f"an input of type '{kind}' is not supported; supported: field, header, hexstr, payload"
    )


def _calculation(reader: Reader, scope: Scope) -> Calculation:
    algorithm = reader["algo"].text()
    known = sorted((*ALGORITHMS, *CUSTOM))
    if algorithm not in known:
        raise reader.fail(f"hash '{algorithm}' is not supported; supported: {', '.join(known)}")
    inputs: list[tuple[FieldRef | Const, int]] = []
    payload = False
    for item in reader.list("input"):
        kind = item["type"].text()
        if kind == "payload":
            payload = True
        elif kind == "header":
            header = scope.header(item["value"])
            inputs += [(FieldRef(header, f.name), f.width) for f in scope.headers[header].fields.values()]
        elif kind == "field" and isinstance(scope.field(item["value"]), ValidBit):
            raise item.fail("a validity bit cannot be hashed")
        else:
            inputs.append(_source(item, scope))
    return Calculation(reader["name"].text(), algorithm, tuple(inputs), payload)


def _meter(reader: Reader, scope: Scope) -> MeterArray:
    kind, count = reader["type"].text(), reader["rate_count"].integer()
    if kind not in ("packets", "bytes"):
        raise reader.fail(f"a meter counts packets or bytes, not '{kind}'")
    if count != 2:
        raise reader.fail(f"a meter has 2 rates, not {count}")
    target: FieldRef | ValidBit | None = None
    if reader.optional_flag("is_direct", False):
        target = scope.field(reader["result_target"])
    if isinstance(target, ValidBit):
        raise reader.fail("a meter's result is a field")
    return MeterArray(reader["name"].text(), reader["size"].cells(), kind == "bytes", target)


def _digest(reader: Reader, scope: Scope) -> Digest:
    return Digest(reader["name"].text(), tuple(_source(item, scope) for item in reader.list("elements")))


def _field_list(reader: Reader, scope: Scope) -> tuple[FieldRef, ...]:
    """The fields of a list; its constants are not kept."""
    fields = (_source(item, scope)[0] for item in reader.list("elements"))
    return tuple(source for source in fields if isinstance(source, FieldRef))


def profile(reader: Reader, scope: Scope) -> ProfileDeclaration:
    """An action profile, with its selector's hash."""
    name = reader["name"].text()
    size = reader.get("max_size")
    selector = reader.get("selector")
    calculation = None
    if selector is not None:
        inner = _calculation(Reader(selector.members() | {"name": f"{name} selector"}, selector.path), scope)
        calculation = inner
    return ProfileDeclaration(name, 0 if size is None else size.integer(), calculation)
