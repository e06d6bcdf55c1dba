# SPDX-License-Identifier: Apache-2.0
"""Packet I/O: P4Runtime's metadata to and from the bytes of a @controller_header (packed MSB first)."""

from __future__ import annotations

from finsy.proto import p4r

from bmv2.server.errors import invalid
from bmv2.server.schema import PacketHeader
from bmv2.server.translations import read_value, write_value


def encode_packet_out(header: PacketHeader | None, packet: p4r.PacketOut) -> bytes:
    """Make the frame that enters the CPU port: the packet_out header, then the payload.

    Raises StatusError for unknown, repeated or missing metadata and for values that do not fit.
    A program without a packet_out header takes the payload alone.
    """
    fields = {} if header is None else {field.id: field for field in header.fields}
    values: dict[int, int] = {}
    for metadata in packet.metadata:
        field = fields.get(metadata.metadata_id)
        if field is None:
            legal = ", ".join(f"{known.id} ({known.name})" for known in fields.values()) or "none"
            raise invalid(f"packet-out: metadata id {metadata.metadata_id} is unknown; legal: {legal}")
        if field.id in values:
            raise invalid(f"packet-out: metadata {field.name} is given twice")
        values[field.id] = read_value(field, metadata.value, f"packet-out: metadata {field.name}")
    if header is None:
        return packet.payload
    packed = 0
    for field in header.fields:
        if field.id not in values and not field.optional:
            raise invalid(f"packet-out: metadata {field.name} (id {field.id}) is missing")
        packed = packed << field.width | values.get(field.id, 0)
    return packed.to_bytes(header.bits // 8, "big") + packet.payload


def decode_packet_in(header: PacketHeader | None, frame: bytes) -> p4r.PacketIn:
    """Split a frame that left by the CPU port into metadata and payload.

    Raises StatusError when the frame is shorter than the program's packet_in header.
    """
    if header is None:
        return p4r.PacketIn(payload=frame)
    length = header.bits // 8
    if len(frame) < length:
        raise invalid(f"packet-in of {len(frame)} bytes is shorter than its header of {length} bytes")
    packed = int.from_bytes(frame[:length], "big")
    packet = p4r.PacketIn(payload=frame[length:])
    shift = header.bits
    for field in header.fields:
        shift -= field.width
        value = packed >> shift & ((1 << field.width) - 1)
        packet.metadata.add(metadata_id=field.id, value=write_value(field, value))
    return packet
