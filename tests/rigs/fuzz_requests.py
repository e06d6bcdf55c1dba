# SPDX-License-Identifier: Apache-2.0
"""Mutated P4Runtime messages: valid ones with fields, or the bytes on the wire, changed at random."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from diff_workload import Workload
from finsy.proto import p4i, p4r
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
_MAX_UPDATES = 8
_DEPTH = 6


class Requests:
    """Draws (method, bytes) of P4Runtime calls for the primary of a device that runs the program."""

    def __init__(self, rng: Random, info: p4i.P4Info, device: bytes, election: int) -> None:
        self._rng = rng
        self._info = info
        self._device = device
        self._election = p4r.Uint128(low=election)
        self._updates = Workload(rng.randrange(1 << 30), info).setup(sentinels=False)
        self._ids = [
            item.preamble.id
            for field, items in info.ListFields()
            if isinstance(field.message_type, object) and field.label == FieldDescriptor.LABEL_REPEATED
            for item in items
            if hasattr(item, "preamble")
        ]
        self._makers: tuple[tuple[Callable[[], tuple[str, Message]], int], ...] = (
            (self._write, 60),
            (self._read, 30),
            (self._set_config, 2),
            (self._get_config, 3),
        )

    def draw(self) -> tuple[str, bytes]:
        """One call, mutated once or more."""
        makers, weights = zip(*self._makers, strict=True)
        (maker,) = self._rng.choices(makers, weights)
        method, message = maker()
        for _ in range(self._rng.randrange(4)):
            self._mutate(message)
        data = bytearray(message.SerializeToString())
        if self._rng.random() < 0.2 and data:
            for _ in range(self._rng.randrange(1, 6)):
                data[self._rng.randrange(len(data))] = self._rng.randrange(256)
        return method, bytes(data)

    def stream_message(self) -> p4r.StreamMessageRequest:
        """A message for an arbitrated stream; never an arbitration, which may rightly end it."""
        rng = self._rng
        message = p4r.StreamMessageRequest()
        kind = rng.randrange(4)
        if kind < 2:
            message.packet.payload = rng.randbytes(rng.randrange(100))
            for field, width in ((1, 9), (2, 1), (3, 6)):
                value = rng.randrange(1 << width).to_bytes(2, "big").lstrip(b"\0") or b"\0"
                message.packet.metadata.add(metadata_id=field, value=value)
            for _ in range(rng.randrange(3)):
                self._mutate(message.packet)
        elif kind == 2:
            message.digest_ack.digest_id = rng.choice(self._ids)
        else:
            message.other.type_url = "example/Unknown"
        return message

    def _write(self) -> tuple[str, Message]:
        request = p4r.WriteRequest(device_id=1, election_id=self._election)
        for _ in range(self._rng.randrange(1, _MAX_UPDATES)):
            if self._rng.random() < 0.6:
                request.updates.append(self._rng.choice(self._updates))
            else:
                request.updates.add(type=self._rng.randrange(4), entity=self._entity())  # type: ignore[arg-type]
        return "Write", request

    def _entity(self) -> p4r.Entity:
        """An entity of any kind, filled at random, most often with an id of the program."""
        entity = p4r.Entity()
        field = self._rng.choice(p4r.Entity.DESCRIPTOR.fields)
        part = getattr(entity, field.name)
        part.SetInParent()
        self._fill(part, _DEPTH)
        for inner in part.DESCRIPTOR.fields:
            if inner.name.endswith("_id") and inner.cpp_type in _INTEGERS and self._rng.random() < 0.8:
                setattr(part, inner.name, self._rng.choice(self._ids) if self._ids else 1)
        return entity

    def _read(self) -> tuple[str, Message]:
        request = p4r.ReadRequest(device_id=1)
        for _ in range(self._rng.randrange(1, 4)):
            if self._rng.random() < 0.5:
                request.entities.append(self._rng.choice(self._updates).entity)
            else:
                request.entities.append(self._entity())
        return "Read", request

    def _set_config(self) -> tuple[str, Message]:
        kind = p4r.SetForwardingPipelineConfigRequest
        request = kind(device_id=1, election_id=self._election, action=self._rng.randrange(6))  # type: ignore[arg-type]
        request.config.p4info.CopyFrom(self._info)
        request.config.p4_device_config = self._device
        chance = self._rng.random()
        if chance < 0.5:
            self._mutate(request.config.p4info)
        elif chance < 0.9:
            request.config.p4_device_config = self._mutated_program()
        return "SetForwardingPipelineConfig", request

    def _mutated_program(self) -> bytes:
        """The device config with one value anywhere in its JSON gone, changed or of another type."""
        rng, program = self._rng, json.loads(self._device)
        place = program
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = rng.choice(keys)
            deeper = place[key]
            if isinstance(deeper, dict | list) and deeper and rng.random() < 0.9:
                place = deeper
                continue
            if rng.random() < 0.3:
                del place[key]
            else:
                place[key] = rng.choice((None, -1, 1 << 20, "", "nowhere", [], {}, True, [deeper], 0.5))
            return json.dumps(program).encode()

    def _get_config(self) -> tuple[str, Message]:
        kind = p4r.GetForwardingPipelineConfigRequest
        return "GetForwardingPipelineConfig", kind(device_id=1, response_type=self._rng.randrange(5))  # type: ignore[arg-type]

    def _fill(self, message: Message, depth: int) -> None:
        for field in message.DESCRIPTOR.fields:
            if self._rng.random() < 0.5 and depth:
                self._set(message, field, depth)

    def _set(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        rng = self._rng
        repeated = field.label == FieldDescriptor.LABEL_REPEATED
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            if field.message_type.GetOptions().map_entry:
                return
            part = getattr(message, field.name)
            target = part.add() if repeated else part
            target.SetInParent()
            self._fill(target, depth - 1)
            return
        value: object
        if field.cpp_type in _INTEGERS:
            low, high = _INTEGERS[field.cpp_type]
            value = rng.choice((0, 1, 2, low, high, rng.randrange(low, high)))
        elif field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            value = rng.choice(field.enum_type.values).number
        elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            value = rng.random() < 0.5
        elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            value = rng.choice(("", "x", "\u00e9" * 9))
            if field.type == FieldDescriptor.TYPE_BYTES:
                value = rng.randbytes(rng.randrange(20))
        else:
            value = rng.random()
        if repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)

    def _mutate(self, message: Message) -> None:
        """Change one field somewhere in the message: another value, none, twice, or another order."""
        rng = self._rng
        present = message.ListFields()
        if not present or rng.random() < 0.1:
            fields = message.DESCRIPTOR.fields
            if fields:
                self._set(message, rng.choice(fields), 2)
            return
        field, value = rng.choice(present)
        if field.name in ("p4_device_config", "election_id", "device_id") and rng.random() < 0.9:
            return
        is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
        if is_message and field.message_type.GetOptions().map_entry:
            message.ClearField(field.name)
        elif field.label == FieldDescriptor.LABEL_REPEATED:
            at = rng.randrange(len(value))
            if is_message and rng.random() < 0.7:
                self._mutate(value[at])
            elif rng.random() < 0.5:
                del value[at]
            elif is_message:
                value.add().CopyFrom(value[at])
            else:
                value.append(value[at])
        elif is_message and rng.random() < 0.8:
            self._mutate(value)
        elif rng.random() < 0.3:
            message.ClearField(field.name)
        else:
            self._set(message, field, 2)
