# SPDX-License-Identifier: Apache-2.0
"""Sessions with real switch servers: pipeline, tables, reconnects, refusals, packets, port states."""

import asyncio
from dataclasses import replace
from functools import partial

from control_rig import PATIENCE_S
from finsy.proto import p4r
from fleet_rig import held, in_service, until

from bmv2.server import serve
from controller.model.plan import FlowPin
from controller.southbound.codec import Codec
from controller.southbound.desired import Entry
from controller.southbound.diff import EntryUpdate, UpdateType
from controller.southbound.raw_calls import SessionError
from controller.southbound.table_writes import DesiredState, FabricCondition
from controller.southbound.update_encoder import read_entries


def test_every_switch_gets_its_pipeline_and_tables(fabric, artefacts):
    async def scenario(fleet, witness):
        for name in fabric.switches:
            count, missing = await held(fleet, name)
            assert missing == 0
            assert count == fleet.entries(name) + 1  # the identity is a default action
        assert all(set(ports) == set(fabric.topology.ports[name]) for name, ports in witness.ready)

    in_service(fabric, artefacts, scenario)


def test_a_second_controller_run_pushes_nothing_again(fabric, artefacts):
    async def scenario(fleet, witness):
        pass

    in_service(fabric, artefacts, scenario)
    pushed = []
    for switch in fabric.switches.values():
        switch.load = lambda program, name=switch.name: pushed.append(name)

    async def again(fleet, witness):
        assert [(await held(fleet, name))[1] for name in fabric.switches] == [0] * len(fabric.switches)

    in_service(fabric, artefacts, again)
    assert pushed == []


def test_a_lost_session_is_reported_and_tables_are_put_right_on_return(fabric, artefacts):
    async def scenario(fleet, witness):
        codec = Codec(artefacts)
        spine = fabric.topology.switch["spine1"]
        spoiled = [
            EntryUpdate(UpdateType.DELETE, Entry("queue", (("dscp", 30),), "set_queue", (6,))),
            EntryUpdate(UpdateType.MODIFY, Entry("queue", (("dscp", 26),), "set_queue", (0,))),
            EntryUpdate(UpdateType.INSERT, Entry("queue", (("dscp", 63),), "set_queue", (3,))),
        ]
        assert await fleet.clients["spine1"].write(codec.write_requests(spine.device_id, [spoiled])) == ()
        assert (await held(fleet, "spine1"))[1] == 3
        await asyncio.to_thread(fabric.servers["spine1"].stop)
        await until(lambda: witness.lost == ["spine1"])
        # What is wanted changes while the switch is away.
        assert await fleet.apply(DesiredState(FabricCondition(down_switches=frozenset({"spine1"})))) == ()
        assert await fleet.apply(DesiredState(FabricCondition())) == ()
        address = fabric.servers["spine1"].address
        fabric.servers["spine1"] = await asyncio.to_thread(
            partial(serve, fabric.switches["spine1"], fabric.loop, device_id=spine.device_id, address=address)
        )
        await until(lambda: len(witness.ready) == len(fabric.switches) + 1)
        assert (await held(fleet, "spine1"))[1] == 0
        assert await fleet.packet_out("spine1", b"\0" * 60, 1, False)

    in_service(fabric, artefacts, scenario)


def test_a_write_that_breaks_off_is_made_good_though_the_session_lives_on(fabric, artefacts, monkeypatch):
    """A switch was silent for a moment: no plan and no new session follow, which would write anew."""

    async def scenario(fleet, witness):
        client = fleet.clients["leaf1"]
        write, broken = client.write, []

        async def write_once_broken(stages):
            if not broken:
                broken.append(stages)
                raise SessionError("no answer")
            return await write(stages)

        monkeypatch.setattr(client, "write", write_once_broken)
        down = frozenset({("leaf1", "spine1")})
        assert await fleet.apply(DesiredState(FabricCondition(down_links=down))) == ()
        assert "a write broke off" in fleet.not_ready()["leaf1"]
        await until(lambda: not fleet.not_ready())
        assert broken
        assert (await held(fleet, "leaf1"))[1] == 0
        assert witness.lost == []

    in_service(fabric, artefacts, scenario)


def test_a_new_condition_writes_only_what_it_changes(fabric, artefacts):
    async def scenario(fleet, witness):
        before = {name: fleet.entries(name) for name in fabric.switches}
        assert await fleet.apply(DesiredState(FabricCondition(frozenset({("leaf1", "spine1")})))) == ()
        assert fleet.entries("leaf1") < before["leaf1"]
        assert [(await held(fleet, name))[1] for name in fabric.switches] == [0] * len(fabric.switches)
        assert await fleet.apply(DesiredState(FabricCondition())) == ()
        assert {name: fleet.entries(name) for name in fabric.switches} == before

    in_service(fabric, artefacts, scenario)


def test_what_somebody_else_changed_is_put_right_when_it_is_read_back(fabric, artefacts, caplog):
    async def scenario(fleet, witness):
        codec = Codec(artefacts)
        device = fabric.topology.switch["leaf1"].device_id
        spoiled = [
            EntryUpdate(UpdateType.DELETE, Entry("queue", (("dscp", 30),), "set_queue", (6,))),
            EntryUpdate(UpdateType.INSERT, Entry("port_state", (("port", 3),), "set_port_down")),
        ]
        assert await fleet.clients["leaf1"].write(codec.write_requests(device, [spoiled])) == ()
        # What is wanted is what is known to be there, so nothing is looked at.
        assert await fleet.apply(DesiredState()) == ()
        assert (await held(fleet, "leaf1"))[1] == 2
        await fleet.read_back()
        assert (await held(fleet, "leaf1"))[1] == 0
        warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert len(warned) == 1
        assert warned[0].startswith("switch leaf1: read back ")
        assert warned[0].endswith("; 2 updates lead to the desired state")

    in_service(fabric, artefacts, scenario)


def test_each_refused_entry_is_named(fabric, artefacts):
    async def scenario(fleet, witness):
        codec = Codec(artefacts)
        device = fabric.topology.switch["leaf1"].device_id
        changes = [
            EntryUpdate(UpdateType.INSERT, Entry("queue", (("dscp", 30),), "set_queue", (1,))),
            EntryUpdate(UpdateType.INSERT, Entry("queue", (("dscp", 62),), "set_queue", (1,))),
            EntryUpdate(UpdateType.DELETE, Entry("queue", (("dscp", 61),), "set_queue", (1,))),
        ]
        errors = await fleet.clients["leaf1"].write(codec.write_requests(device, [changes]))
        assert [e.what for e in errors] == [
            "insert queue[dscp=30] -> set_queue(1)",
            "delete queue[dscp=61] -> set_queue(1)",
        ]
        assert errors[0].why.startswith("ALREADY_EXISTS")
        assert errors[1].why.startswith("NOT_FOUND")

    in_service(fabric, artefacts, scenario)


def test_after_a_refusal_only_what_failed_is_written_again(fabric, artefacts):
    async def scenario(fleet, witness):
        codec, client = Codec(artefacts), fleet.clients["leaf1"]
        device = fabric.topology.switch["leaf1"].device_id
        port = next(p for p, peer in fabric.topology.ports["leaf1"].items() if peer.node == "spine1")
        # Somebody else has written one of the entries that a failed link needs.
        there = EntryUpdate(UpdateType.INSERT, Entry("port_state", (("port", port),), "set_port_down"))
        assert await client.write(codec.write_requests(device, [[there]])) == ()
        written, write = [], client.write

        async def counted(stages):
            requests = [p4r.WriteRequest.FromString(data) for stage in stages for data in stage]
            written.append(sum(len(request.updates) for request in requests))
            return await write(stages)

        client.write = counted
        down = FabricCondition(frozenset({("leaf1", "spine1")}))
        assert await fleet.apply(DesiredState(down)) == ()
        assert written[0] > 1
        assert written[1:] == [0], "all but the refused entry were taken, and that one was there"
        assert (await held(fleet, "leaf1"))[1] == 0

    in_service(fabric, artefacts, scenario)


PINS = (
    FlowPin("a/h1>h3", "leaf1", "spine1", "h1", "h3", 50_001),
    FlowPin("a/h1>h4", "leaf1", "spine1", "h1", "h4", 50_002),
)


def counted_reads(read_tables, name, names):
    """`read_tables`, which also adds `name` to `names`."""

    async def read():
        names.append(name)
        return await read_tables()

    return read


def test_entries_of_an_earlier_controller_stay_until_they_are_forgotten(fabric, artefacts):
    before = {}

    async def first(fleet, witness):
        assert await fleet.apply(DesiredState(pins=PINS)) == ()
        before.update(await pins(fleet))
        assert sorted(before) == [50_001, 50_002]

    async def pins(fleet):
        codec = Codec(artefacts)
        read = read_entries(await fleet.clients["leaf1"].read_tables())
        entries = [codec.decode(p4r.TableEntry.FromString(data)) for _, data in read]
        return {dict(e.match)["src_port"]: e.params[0] for e in entries if e and e.table == "pinned_flow"}

    async def second(fleet, witness):
        # The stored plan has one of them on another path, and lacks the other one: the switch is believed.
        assert await pins(fleet) == before
        # A plan of this controller is believed, and the other entry stays.
        newer = (replace(PINS[0], toward="spine2"), replace(PINS[1], source_port=50_003))
        assert await fleet.apply(DesiredState(pins=newer)) == ()
        await fleet.read_back()
        now = await pins(fleet)
        assert sorted(now) == [50_001, 50_002, 50_003]
        assert now[50_001] != before[50_001]
        read = []
        for name, client in fleet.clients.items():
            client.read_tables = counted_reads(client.read_tables, name, read)
        await fleet.forget_found()
        assert read == ["leaf1"], "the others keep nothing that has to go"
        assert sorted(await pins(fleet)) == [50_001, 50_003]

    in_service(fabric, artefacts, first)

    stored = DesiredState(pins=(replace(PINS[0], toward="spine2"),))
    in_service(fabric, artefacts, second, taken_up=stored)


def test_packets_go_out_and_come_in(fabric, artefacts):
    async def scenario(fleet, witness):
        probe = bytes(12) + b"\x88\xb5" + b"hello" * 10
        port = next(p for p, peer in fabric.topology.ports["leaf1"].items() if peer.node == "spine1")
        assert await fleet.packet_out("leaf1", probe, port, False)
        await until(lambda: witness.packets)
        ((name, packet),) = witness.packets
        assert (name, packet.reason, packet.ingress_port) == ("spine1", 2, 1)
        assert packet.payload[: len(probe)] == probe
        assert await fleet.packet_out("leaf1", b"x" * 60, 1, False)
        node, frame = await asyncio.to_thread(fabric.to_hosts.get, timeout=PATIENCE_S)
        assert (node, frame) == ("h1", b"x" * 60)
        values = (await fleet.read_counters())["leaf1"]
        assert sum(v.packets for v in values if v.counter == "egress_packets") == 2

    in_service(fabric, artefacts, scenario)


def test_port_states_come_from_gnmi(fabric, artefacts):
    async def scenario(fleet, witness):
        await asyncio.to_thread(fabric.on_data_plane, lambda: fabric.switches["leaf2"].set_port_up(3, False))
        await until(lambda: witness.ports)
        assert witness.ports == [("leaf2", {3: False})]

    in_service(fabric, artefacts, scenario)
