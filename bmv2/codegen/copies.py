# SPDX-License-Identifier: Apache-2.0
"""Copies of packets as Python source: clones, digests, resubmission, recirculation, replicas.

BMv2 keeps only the metadata fields of a list for a copied packet. All other metadata starts at zero, the
ingress port included. A clone of ingress is the frame as received, parsed again. A clone of egress has the
headers as egress left them. Requests of an action (clone, digest, ...) do not pass to copies.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..structures import LOOSE, request
from .externs import SESSION_MASK
from .function import Function

INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, RESUBMITTED = 1, 2, 4, 6
_KIND = "standard_metadata.instance_type"


def ingress_requests(function: Function) -> None:
    """Write what ingress has asked for, before the packet goes on: clone, digest, resubmission."""
    writer = function.writer
    clone, fields = (function.variable(request(name)) for name in ("clone", "clone_fields"))
    if function.asks("clone"):
        with writer.block(f"if {writer.load(clone)}"):
            with writer.block(f"if {clone} & {SESSION_MASK} in sessions"):
                writer.line(f"kept = {function.kept(writer.load(fields))}")
                writer.load("length")
                writer.line(
                    f"twin = copy(port, frame, length, now, {clone} & {SESSION_MASK}, {fields}, kept)"
                )
                with writer.block("if twin"):
                    writer.line(f"clone({clone} & {SESSION_MASK}, *twin)")
            writer.line(f"{clone} = {fields} = 0")
    if function.asks("digest"):
        number = writer.load(function.variable(request("digest")))
        for identity, digest in function.ir.digests.items():
            values = "".join(f"{function.expressions.unsigned(source).text}, " for source, _ in digest.fields)
            with writer.block(f"if {number} == {identity}"):
                writer.line(f"learn({digest.name!r}, ({values}))")
    if function.asks("resubmit"):
        number = writer.load(function.variable(request("resubmit")))
        with writer.block(f"if {number}"):
            writer.line(f"again(port, frame, {RESUBMITTED}, {number}, {function.kept(number)})")
            writer.line("return None")


def egress_clone(function: Function) -> None:
    """Write the clone that egress has asked for; the state is filled in by `egress_twin`."""
    writer = function.writer
    clone, fields = (function.variable(request(name)) for name in ("clone", "clone_fields"))
    with writer.block(f"if {writer.load(clone)}"):
        with writer.block(f"if {clone} & {SESSION_MASK} in sessions"):
            writer.load(fields)
            for refs in function.ir.field_lists.values():
                for ref in refs:
                    writer.load(function.variable(ref))
            writer.line("TWIN")
        writer.line(f"{clone} = {fields} = 0")


def egress_twin(function: Function, state: Sequence[str], indent: str) -> list[str]:
    """The lines in place of `TWIN`, once it is known which variables cross the queue."""
    clone, fields = (function.variable(request(name)) for name in ("clone", "clone_fields"))
    metadata = {
        function.layout.variable(header.name, field)
        for header in function.ir.headers.values()
        if header.metadata and header.name != LOOSE
        for field in header.fields
    }
    kind, priority = function.intrinsic(_KIND), function.intrinsic("intrinsic_metadata.priority")
    lines = []
    lists = {identity: refs for identity, refs in function.ir.field_lists.items() if refs}
    for position, (identity, refs) in enumerate([*lists.items(), (None, ())]):
        kept = {function.variable(ref) for ref in refs}
        values = []
        for name in state:
            value = name if name in kept or name not in metadata else "0"
            if name == kind:
                value = str(EGRESS_CLONE)
            if name == function.variable(request("truncate")):
                value = f"sessions[{clone} & {SESSION_MASK}]"
            values.append(value)
        queue = priority if priority in kept else "0"
        call = f"clone_later({clone} & {SESSION_MASK}, ({', '.join(['frame', *values])},), {queue})"
        if identity is None:
            lines += ["else:", f"    {call}"] if position else [call]
        else:
            lines += [f"{'elif' if position else 'if'} {fields} == {identity}:", f"    {call}"]
    return [indent + line for line in lines]


def copy_lines(function: Function, state: Sequence[str]) -> tuple[list[str], list[str]]:
    """The function that makes of a frame what its clone carries across the queue, and its queue.

    Gives its variables that begin at zero, as parameters, and its lines.
    """
    headers = function.ir.headers
    stays = ("payload", "packet_length", "length")
    metadata = {
        function.layout.variable(header.name, field)
        for header in headers.values()
        if header.metadata and header.name != LOOSE
        for field in header.fields
    }
    given = function.masked({"standard_metadata.ingress_port": "port"})
    priority = function.intrinsic("intrinsic_metadata.priority")
    restored = function.restore("fields")
    kind = function.intrinsic(_KIND)
    emptied = sorted({name for name in state if name in metadata} | ({priority} if priority else set()))
    used = function.writer.loads | function.writer.stores | set(state)
    lines = [f"{name} = {text}" for name, text in given.items() if name in used]
    lines += ["packet_length = length", *function.writer.lines]
    if emptied:
        lines.append(" = ".join([*emptied, "0"]))
    lines += restored
    if kind in state:
        lines.append(f"{kind} = {INGRESS_CLONE}")
    limit = function.variable(request("truncate"))
    if limit in state:
        lines.append(f"{limit} = sessions[session]")
    assert all(name in metadata or name in stays or name in used for name in state)
    lines.append(f"return ({', '.join(['frame', *state])},), {priority or 0}")
    return function.initial(used, given), lines


def again_lines(function: Function) -> list[str]:
    """The first lines of ingress, for a packet that comes again."""
    kind = function.intrinsic(_KIND)
    lines = ["kind, fields, kept = back"]
    for name in ("standard_metadata.ingress_port", "intrinsic_metadata.ingress_global_timestamp"):
        variable = function.intrinsic(name)
        if variable is not None:
            lines.append(f"{variable} = 0")
    lines += function.restore("fields")
    if kind is not None:
        lines.append(f"{function.writer.store(kind)} = kind")
    return ["if back is not None:", *("    " + line for line in lines)]


def replica_lines(function: Function, state: Sequence[str]) -> list[str]:
    """The function that makes of a state that of one replica with its `rid`; its requests are none by now."""
    changed: dict[str, str] = {}
    rid = function.ir.intrinsic("intrinsic_metadata.egress_rid")
    if rid is not None and function.variable(rid) in state:
        changed[function.variable(rid)] = f"rid & {hex((1 << function.ir.width(rid)) - 1)}"
    if not changed:
        return ["return state"]
    values = [changed.get(name, f"state[{index}]") for index, name in enumerate(["frame", *state])]
    return [f"return ({', '.join(values)},)"]
