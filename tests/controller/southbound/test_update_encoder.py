# SPDX-License-Identifier: Apache-2.0
"""Updates that are put together from parts are byte by byte what protobuf writes."""

from __future__ import annotations

from functools import cache

import pytest
from finsy.proto import p4r
from hypothesis import given
from hypothesis import strategies as st

from controller.model.traffic import TRAFFIC_CLASSES
from controller.routing.forwarding import forwarding
from controller.southbound import update_encoder
from controller.southbound.artefacts import load_artefacts
from controller.southbound.codec import Codec, PipelineError
from controller.southbound.desired import EcnProfile, Entry, desired_entries
from controller.southbound.diff import EntryUpdate, UpdateType
from controller.southbound.update_encoder import read_entries, varint
from topo.generate import leaf_spine

TYPES = {
    UpdateType.INSERT: p4r.Update.INSERT,
    UpdateType.MODIFY: p4r.Update.MODIFY,
    UpdateType.DELETE: p4r.Update.DELETE,
}


@cache
def codec() -> Codec:
    return Codec(load_artefacts())


def entries() -> tuple[Entry, ...]:
    """Every kind of entry: ports down, a default action, ranges, prefixes, groups."""
    topology = leaf_spine(3, 3, 2, host_bps=1, fabric_bps=1)
    switch = topology.switch["leaf1"]
    table = forwarding(topology)["leaf1"]
    return desired_entries(switch, table, TRAFFIC_CLASSES, EcnProfile(5, 50, 0.1), down_ports=[1, 2])


ENTRIES = st.one_of(
    st.sampled_from(entries()),
    st.builds(
        lambda address, length: Entry("routing", (("ipv4_dst", (address, length)),), "set_next_hop", (1,)),
        st.integers(0, 2**32 - 1),
        st.integers(0, 32),
    ),
    st.builds(
        lambda group, bucket, hop: Entry(
            "ecmp", (("group_id", group), ("bucket", bucket)), "set_next_hop", (hop,)
        ),
        st.integers(0, 2**16 - 1),
        st.integers(0, 255),
        st.integers(0, 2**16 - 1),
    ),
)
CHANGES = st.lists(st.builds(EntryUpdate, st.sampled_from(UpdateType), ENTRIES), max_size=40)


@given(CHANGES, st.integers(0, 2**40))
def test_a_request_is_what_protobuf_writes(changes: list[EntryUpdate], device: int) -> None:
    request = p4r.WriteRequest(device_id=device)
    for change in changes:
        request.updates.add(
            type=TYPES[change.operation], entity=p4r.Entity(table_entry=codec().encode(change.entry))
        )
    stages = codec().write_requests(device, [changes])
    assert b"".join(stages[0]) == (request.SerializeToString() if changes else b"")


def test_forgotten_parts_are_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_encoder, "MOST_PARTS", 2)
    small = Codec(load_artefacts())
    for _ in range(2):
        for entry in entries():
            assert small.encoder.entry(entry) == small.encode(entry).SerializeToString()


@pytest.mark.parametrize(
    "wrong",
    [
        Entry("nothing", (("port", 1),), "set_port_down"),
        Entry("port_state", (("port", 1), ("port", 2)), "set_port_down"),
        Entry("port_state", (("door", 1),), "set_port_down"),
        Entry("port_state", (("port", 1),), "set_port_down", (5,)),
        Entry("port_state", (("port", (1, 2)),), "set_port_down"),
    ],
)
def test_what_the_program_does_not_have_is_refused(wrong: Entry) -> None:
    codec().encoder.entry(Entry("port_state", (("port", 1),), "set_port_down"))
    with pytest.raises(PipelineError):
        codec().encoder.entry(wrong)


@given(st.lists(ENTRIES, max_size=20), st.integers(1, 7))
def test_replies_are_taken_apart(found: list[Entry], split: int) -> None:
    messages = [codec().encode(entry) for entry in found]
    replies = []
    for at in range(0, len(messages), split):
        reply = p4r.ReadResponse()
        for message in messages[at : at + split]:
            reply.entities.add(counter_entry=p4r.CounterEntry(counter_id=1))
            reply.entities.add(table_entry=message)
        replies.append(reply.SerializeToString())
    assert list(read_entries(replies)) == [(False, m.SerializeToString()) for m in messages]


def test_replies_of_an_unusual_form_are_parsed() -> None:
    body = codec().encode(entries()[0]).SerializeToString()
    # An unknown field before the entity, one within it, and a length in more bytes than it needs.
    entity = b"\x12" + varint(len(body)) + body
    within = b"\xf8\x07\x01" + entity
    long = b"\x0a" + bytes([len(entity) | 0x80, 0]) + entity
    reply = long + b"\x0a" + varint(len(within)) + within + b"\xf8\x07\x01" + long
    assert list(read_entries([reply])) == [(False, body)] * 3
    assert list(read_entries([b"", b""])) == []


@given(st.integers(0, 2**63 - 1))
def test_a_varint_is_protobufs(value: int) -> None:
    assert p4r.WriteRequest(device_id=value).SerializeToString() == (
        b"\x08" + varint(value) if value else b""
    )
