# SPDX-License-Identifier: Apache-2.0
"""Election ids: a later leader bids higher, and no switch takes anything from a deposed one."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from control_rig import HostFabric, on_loop
from finsy.proto import U128, p4r, p4r_grpc
from fleet_rig import Here, Witness, until
from write_record import WriteRecord, recorded_writes

from controller.southbound.artefacts import Artefacts
from controller.southbound.election_ids import ALONE, DeposedError, ElectionIds
from controller.southbound.fleet import SwitchFleet, Target
from controller.southbound.table_writes import DesiredState, FabricCondition

EARLIER, LATER = ElectionIds.of_leader(1, 7), ElectionIds.of_leader(1, 9)
DOWN = DesiredState(FabricCondition(frozenset({("leaf1", "spine1")})))


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteRecord]:
    with recorded_writes(monkeypatch) as made:
        yield made


def test_no_switch_takes_a_write_of_a_deposed_leader(
    record: WriteRecord,
    fabric: HostFabric,
    artefacts: Artefacts,
) -> None:
    targets = {
        name: Target(server.address, fabric.topology.switch[name].device_id)
        for name, server in fabric.servers.items()
    }

    def fleet() -> tuple[SwitchFleet, Witness]:
        witness = Witness()
        return SwitchFleet(fabric.topology, targets, artefacts, Here(fabric.topology), witness), witness

    async def scenario() -> None:
        deposed, saw = fleet()
        leader, seen = fleet()
        deposed.start(EARLIER, lambda: True)
        await until(lambda: len(saw.ready) == len(targets))
        leader.start(LATER, lambda: True)
        await until(lambda: len(seen.ready) == len(targets))
        # A write that was on its way, with the id by which it was primary.
        for target in targets.values():
            late = p4r.WriteRequest(device_id=target.device_id, election_id=U128.encode(EARLIER.first))
            async with grpc.aio.insecure_channel(target.address) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await p4r_grpc.P4RuntimeStub(channel).Write(late)
            assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
        await until(lambda: sorted(saw.lost) == sorted(targets))
        assert await deposed.apply(DOWN) == ()
        await leader.stop()
        # The switches have no primary now, and the deposed leader bids again: in vain.
        await until(lambda: all(c.state != "ready" for c in deposed.clients.values()))
        again, last = fleet()
        again.start(LATER, lambda: True)
        await until(lambda: len(last.ready) == len(targets))
        assert all(client.state != "ready" for client in deposed.clients.values())
        await again.apply(DOWN)
        await deposed.stop()
        await again.stop()

    on_loop(scenario())
    record.check_one_writer()
    assert all(r.primaries[0][1] == EARLIER.first for r in record.values())
    assert all(r.primaries[-1][1] >= LATER.first for r in record.values())


def test_a_leader_whose_lease_has_run_out_sends_nothing(
    record: WriteRecord,
    fabric: HostFabric,
    artefacts: Artefacts,
) -> None:
    targets = {
        name: Target(server.address, fabric.topology.switch[name].device_id)
        for name, server in fabric.servers.items()
    }
    leads = True

    async def scenario() -> None:
        nonlocal leads
        witness = Witness()
        fleet = SwitchFleet(fabric.topology, targets, artefacts, Here(fabric.topology), witness)
        fleet.start(EARLIER, lambda: leads)
        await until(lambda: len(witness.ready) == len(targets))
        taken = sum(len(r.taken) for r in record.values())
        leads = False
        assert await fleet.apply(DOWN) == ()
        assert not await fleet.packet_out("leaf1", b"x" * 60, 1, False)
        assert sum(len(r.taken) for r in record.values()) == taken
        assert all(r.refused == [] for r in record.values())
        await fleet.stop()

    on_loop(scenario())


@pytest.mark.parametrize(
    ("earlier", "later"), [((1, 1), (1, 2)), ((1, 2**48 - 1), (2, 1)), ((1, 41), (1, 44))]
)
def test_the_range_of_a_later_leader_is_above(earlier, later):
    assert ElectionIds.of_leader(*earlier).last < ElectionIds.of_leader(*later).first


def test_a_leader_outbids_any_controller_that_began_alone():
    assert ElectionIds.of_leader(1, 1).first > ALONE + 2**32


def test_a_deposed_leader_cannot_outbid_its_successor():
    deposed, successor = ElectionIds.of_leader(1, 7), ElectionIds.of_leader(1, 9)
    for seen in (successor.first, successor.last):
        with pytest.raises(DeposedError, match=str(seen)):
            deposed.at_least(seen)
    for attempts in range(3):
        assert deposed.at_least(deposed.first + attempts) == deposed.first + attempts
    with pytest.raises(DeposedError):
        deposed.at_least(deposed.last + 1)


def test_a_bid_is_never_below_the_range():
    assert ElectionIds.of_leader(1, 7).at_least(ALONE) == ElectionIds.of_leader(1, 7).first


@pytest.mark.parametrize(("epoch", "revision"), [(0, 1), (1, 0), (1, 2**48), (2**63, 1)])
def test_what_does_not_fit_is_refused(epoch, revision):
    with pytest.raises(ValueError, match="legal"):
        ElectionIds.of_leader(epoch, revision)
