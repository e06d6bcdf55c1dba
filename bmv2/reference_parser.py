# SPDX-License-Identifier: Apache-2.0
"""The reference interpreter's parser."""

from __future__ import annotations

from dataclasses import dataclass, field

from .entries import Exact, Lpm, Optional, Ternary
from .ir import Extract, ExtractNext, FieldRef, PacketLookahead, ParserState, Primitive, Transition, Verify
from .reference_steps import ReferenceSteps
from .reference_values import Packet, evaluate
from .structures import length_of
from .value_sets import Member

_STEP_LIMIT = 4096


class _ParseError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Parser(ReferenceSteps):
    """Parses packets; `value_sets` holds the members of each set."""

    value_sets: dict[str, set[Member]] = field(default_factory=dict)

    def parse(self, packet: Packet) -> int:
        """Parse a packet; gives the code of the error that ended it, or of NoError."""
        name, steps = self.ir.first_state, 0
        try:
            while name is not None:
                steps += 1
                if steps > _STEP_LIMIT:
                    return self.ir.errors["ParserTimeout"]
                state = self.ir.states[name]
                for op in state.ops:
                    if isinstance(op, Extract):
                        self._extract(op, packet)
                    elif isinstance(op, ExtractNext):
                        self._extract_next(op, packet)
                    elif isinstance(op, Primitive):
                        self._check_lookahead(op, packet)
                        self.primitive(op, packet)
                    elif isinstance(op, Verify):
                        if not evaluate(op.condition, packet):
                            raise _ParseError(evaluate(op.error, packet))
                    else:
                        self._advance(evaluate(op.bits, packet), packet)
                name = self._select(state, packet)
        except _ParseError as error:
            return error.code
        return self.ir.errors["NoError"]

    def _need(self, size: int, packet: Packet) -> None:
        if len(packet.frame) - packet.position < size:
            raise _ParseError(self.ir.errors["PacketTooShort"])

    def _check_lookahead(self, op: Primitive, packet: Packet) -> None:
        for arg in op.args:
            if isinstance(arg, PacketLookahead):
                self._need(-(-arg.width // 8), packet)

    def _extract_next(self, op: ExtractNext, packet: Packet) -> None:
        used = self.ir.stacks[op.stack].next
        count = packet.values[used.header, used.field]
        if count >= len(op.elements):
            raise _ParseError(self.ir.errors["StackOutOfBounds"])
        self._extract(op.elements[count], packet)
        packet.values[used.header, used.field] = count + 1

    def _extract(self, op: Extract, packet: Packet) -> None:
        header = self.ir.headers[op.header]
        varying = 0
        if op.length is not None:
            varying = evaluate(op.length, packet) & 0xFFFFFFFF
            if varying % 8:
                raise _ParseError(self.ir.errors["ParserInvalidArgument"])
        size = header.size + varying // 8
        self._need(size, packet)
        if op.length is not None:
            if size > op.limit:
                raise _ParseError(self.ir.errors["HeaderTooShort"])
            length = length_of(op.header)
            packet.values[length.header, length.field] = varying
        text = "".join(format(byte, "08b") for byte in packet.frame[packet.position : packet.position + size])
        for name in header.fields:
            ref = FieldRef(op.header, name)
            width = self.size(ref, packet)
            self.set_field(ref, int(text[:width] or "0", 2), packet)
            text = text[width:]
        self.make_valid(op.header, packet)
        packet.position += size

    def _advance(self, bits: int, packet: Packet) -> None:
        if bits % 8:
            raise _ParseError(self.ir.errors["ParserInvalidArgument"])
        self._need(bits // 8, packet)
        packet.position += bits // 8

    def _select(self, state: ParserState, packet: Packet) -> str | None:
        key = [self.value(source, packet) for source, _ in state.key]
        for transition in state.transitions:
            if self._matches(state, transition, key):
                return transition.next_state
        return state.default

    def _matches(self, state: ParserState, transition: Transition, key: list[int]) -> bool:
        if transition.value_set is not None:
            masks = transition.masks or (-1,) * len(key)
            members = self.value_sets.get(transition.value_set, set())
            return any(self._is_member(state, member, key, masks) for member in members)
        masks = transition.masks or tuple((1 << width) - 1 for _, width in state.key)
        wanted = zip(key, transition.values, masks, strict=True)
        return all(part & mask == value & mask for part, value, mask in wanted)

    @staticmethod
    def _is_member(state: ParserState, member: Member, key: list[int], masks: tuple[int, ...]) -> bool:
        """Whether a member, field by field and under the transition's masks, matches the key."""
        for match, value, mask, (_, width) in zip(member, key, masks, state.key, strict=True):
            if isinstance(match, int | Exact):
                wanted = match if isinstance(match, int) else match.value
                fits = value & mask == wanted & mask
            elif isinstance(match, Lpm):
                fits = (value & mask) >> (width - match.prefix_len) == (match.value & mask) >> (
                    width - match.prefix_len
                )
            elif isinstance(match, Ternary):
                fits = value & mask & match.mask == match.value & mask & match.mask
            elif isinstance(match, Optional):
                fits = match.value is None or value & mask == match.value & mask
            else:
                fits = match.low <= value & mask <= match.high
            if not fits:
                return False
        return True
